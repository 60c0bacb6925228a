//! Why a launch is refused.

use nv_hw::Shown;

/// Why a launch, or a node or an argument of a graph, is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A launch cannot run on this GPU as asked.
    #[error("cannot launch {}: {what} is {value}, the limit is {limit}", Shown(kernel))]
    Limit {
        /// The kernel.
        kernel: String,
        /// The quantity.
        what: &'static str,
        /// The value asked for.
        value: u64,
        /// The most there can be.
        limit: u64,
    },
    /// The kernel was compiled for blocks of one shape alone (`.reqntid`), and these have another.
    #[error(
        "cannot launch {} in blocks of {} threads: it was compiled for blocks of {} (.reqntid)",
        Shown(kernel),
        shape(given),
        shape(required)
    )]
    BlockShape {
        /// The kernel.
        kernel: String,
        /// Threads along x, y and z that it requires.
        required: [u32; 3],
        /// Threads along x, y and z that were asked for.
        given: [u32; 3],
    },
    /// A launch that is to begin before another has ended, of a kernel that does not wait for that.
    #[error(
        "{} has no griddepcontrol.wait: it cannot begin before the launch that it follows has ended",
        Shown(kernel)
    )]
    NoGridWait {
        /// The kernel.
        kernel: String,
    },
    /// The arguments have other bytes than the parameters of a kernel whose cubin does not list them.
    #[error("kernel {} takes {expected} bytes of parameters, {given} were given", Shown(kernel))]
    Arguments {
        /// The kernel.
        kernel: String,
        /// Bytes the kernel's parameters occupy.
        expected: u32,
        /// Bytes the arguments occupy.
        given: u32,
    },
    /// Too few arguments, or too many.
    #[error("{} takes {} arguments, of {} bytes; {given} were given", Shown(kernel), sizes.len(), list(sizes))]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Bytes of each parameter.
        sizes: Vec<u32>,
        /// The number of arguments.
        given: usize,
    },
    /// A patch names arguments that the launch does not have.
    #[error(
        "the launch of {} has {count} arguments, a patch names {given} from number {index} on",
        Shown(kernel)
    )]
    NoArgument {
        /// The kernel.
        kernel: String,
        /// Number of the first argument to replace, counted from 0.
        index: usize,
        /// How many were to be replaced.
        given: usize,
        /// How many the launch has.
        count: usize,
    },
    /// An argument has another width than the parameter of its number, or than the one that a patch replaces.
    #[error("argument {index} of {} has {expected} bytes, one of {given} was given", Shown(kernel))]
    ArgumentWidth {
        /// The kernel.
        kernel: String,
        /// Number of the argument, counted from 0.
        index: usize,
        /// Its width in bytes.
        expected: usize,
        /// The width that was given.
        given: usize,
    },
    /// An argument lies at another place than the parameter of its number, as it has another alignment.
    #[error(
        "argument {index} of {} lies at byte {expected} of the parameters, the one that was given at byte {given}",
        Shown(kernel)
    )]
    ArgumentPlace {
        /// The kernel.
        kernel: String,
        /// Number of the argument, counted from 0.
        index: usize,
        /// The parameter's first byte.
        expected: usize,
        /// The argument's first byte.
        given: usize,
    },
    /// An argument was given an alignment that none can have.
    #[error("an argument cannot be aligned to {align} bytes: alignments are powers of two up to {limit}")]
    Alignment {
        /// The alignment asked for.
        align: usize,
        /// The largest there is.
        limit: usize,
    },
    /// The queue metadata could not be built.
    #[error("cannot build the queue metadata of {}", Shown(kernel))]
    Qmd {
        /// The kernel.
        kernel: String,
        /// The field that does not fit.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node is of another kind than the call is about.
    #[error("node {node} of graph {graph} is not a launch")]
    NotALaunch {
        /// The node's number, as [`NodeId`](crate::NodeId) prints it.
        node: usize,
        /// The graph's, too.
        graph: u64,
    },
    /// The node is part of another graph.
    #[error("node {node} of graph {owner} is not part of graph {graph}")]
    ForeignNode {
        /// The node's number, as [`NodeId`](crate::NodeId) prints it.
        node: usize,
        /// Number of the graph that it is part of.
        owner: u64,
        /// Number of the graph that was called, as its own nodes print it.
        graph: u64,
    },
}

fn list(sizes: &[u32]) -> String {
    sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn shape([x, y, z]: &[u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}
