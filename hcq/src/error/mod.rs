//! Errors, in the terms of the object and the number they concern.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno as Nix;

use crate::address::{Bytes, GpuVa};
use crate::cubin::error::CubinError;
use crate::errno::Errno;
use crate::error::report::FaultReport;
use crate::tegra::Tegra;

mod hint;
pub(crate) mod report;

/// An error of an `hcq` call.
///
/// `Debug`, which `unwrap` and a `main` that returns it print, gives what a person needs: the message, its
/// causes, and [`Error::hint`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `HCQ_DEVICE` or a command line named a backend that does not exist.
    #[error("unknown device {name:?}: expected auto, nvgpu, rm or sim")]
    UnknownSelector {
        /// The name asked for.
        name: String,
    },
    /// An environment variable has a value that means nothing.
    #[error("{variable} is {value:?}: expected {expected}")]
    UnknownSetting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values it may have.
        expected: Cow<'static, str>,
    },
    /// The file of settings that `HCQ_PROFILE` names cannot be read, or one of its lines means nothing.
    #[error("cannot use the profile {}, which HCQ_PROFILE names", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// A [`BadProfile`](crate::BadProfile), or the reason it cannot be read.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The backend asked for is not part of this build.
    #[error("the {backend} backend is not part of this build")]
    NotBuilt {
        /// The backend.
        backend: &'static str,
    },
    /// Neither a Jetson's GPU nor a desktop GPU can be used, and the software ga10b is not part of this
    /// build.
    #[error("no GPU can be used: {}; {}", with_causes(nvgpu), with_causes(rm))]
    NoDevice {
        /// The Jetson backend's reason.
        nvgpu: Box<Self>,
        /// The desktop backend's reason.
        rm: Box<Self>,
    },
    /// A device node could not be opened.
    #[error("cannot open {}{}", path.to_string_lossy(), of_group(group))]
    Open {
        /// The node.
        path: CString,
        /// The group whose members may open it, where that is why it could not be opened.
        group: Option<String>,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// nvgpu is loaded and its GPU did not start: of the nodes in `/dev/nvgpu/igpu0` `power` alone is there.
    #[error("cannot open {}: the GPU did not start, its node `power` alone is there", path.to_string_lossy())]
    NotStarted {
        /// The node that is not there.
        path: CString,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// The driver refused a request.
    #[error("{name} ({request:#010x}) failed")]
    Ioctl {
        /// The request as the kernel headers spell it.
        name: &'static str,
        /// Its number.
        request: u32,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// The driver answered a request with something that cannot be used.
    #[error("{name} returned {value:#x}, expected {expected}")]
    Answer {
        /// The request.
        name: &'static str,
        /// The value that came back.
        value: u64,
        /// The values that would have been right.
        expected: &'static str,
    },
    /// A CPU mapping could not be made.
    #[error("cannot map {} of {what} into the process", Bytes(*len))]
    Mmap {
        /// The object to map.
        what: &'static str,
        /// How many bytes of it.
        len: u64,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// A call into the desktop driver came back with a status other than success.
    #[error("the driver refused {call}: {}", rm_sys::Status(*status))]
    Status {
        /// The class, control or call as the driver's headers spell it.
        call: &'static str,
        /// `NV_STATUS`.
        status: u32,
    },
    /// The desktop driver is not loaded, or of a release whose structs are not known.
    #[error("the desktop driver cannot be used")]
    Driver {
        /// The fault of its version.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The GPU is of a kind this crate does not drive.
    #[error("{what} {value:#x} is not supported (supported: {supported})")]
    Unsupported {
        /// The quantity: an SM version, a class, a driver version.
        what: &'static str,
        /// The number found.
        value: u64,
        /// The numbers that would do.
        supported: &'static str,
    },
    /// `/dev/nvidiactl` is that of an Orin's display, whose driver computes nothing: `nvgpu` does that.
    #[error("/dev/nvidiactl is that of an Orin's display, and no GPU to compute on: nvgpu serves that one")]
    DisplayDriver,
    /// The GPU's SMs are of a version this crate has no launch descriptors and no kernels for.
    #[error("the GPU is an sm_{sm}{}; sm_80, sm_86, sm_87, sm_89 and sm_90 are supported", of_tegra(*sm))]
    UnsupportedSm {
        /// The version, 120 for 12.0.
        sm: u32,
    },
    /// Memory is used up, or there is less in all than was asked for.
    #[error("cannot allocate {} for a {what}{}", Bytes(*len), room(*free, *total))]
    OutOfMemory {
        /// Its purpose: "buffer", "program", "command ring", ...
        what: &'static str,
        /// The bytes that the driver was asked for: for small objects that of the memory they share.
        len: u64,
        /// The bytes that could be allocated when the call failed, where the driver says.
        free: Option<u64>,
        /// All bytes of that kind, where the driver says.
        total: Option<u64>,
        /// The call that failed.
        source: Box<Self>,
    },
    /// No free range of addresses is long enough.
    #[error("no {} of GPU addresses left", Bytes(*len))]
    OutOfAddresses {
        /// The length asked for, in bytes.
        len: u64,
    },
    /// A mapping would overlap a window the hardware claims for itself.
    #[error("{} at {va} overlaps the {window} window", Bytes(*len))]
    InWindow {
        /// The address asked for.
        va: GpuVa,
        /// The length asked for, in bytes.
        len: u64,
        /// Which window.
        window: &'static str,
    },
    /// A fixed address range is not free, not aligned or outside the address space.
    #[error(
        "{} at {va} cannot be reserved: the range must be free, page-aligned and inside the address space",
        Bytes(*len)
    )]
    AddressTaken {
        /// The address asked for.
        va: GpuVa,
        /// The length asked for, in bytes.
        len: u64,
    },
    /// A length or offset does not fit the object it is used on.
    #[error("{what}: {len} bytes at offset {offset} do not fit {}", Bytes(*size))]
    OutOfBounds {
        /// The object.
        what: &'static str,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the object in bytes.
        size: u64,
    },
    /// The CPU cannot reach memory it was to read or write.
    #[error("the memory at {va} has no CPU mapping")]
    NotMapped {
        /// The address.
        va: GpuVa,
    },
    /// A buffer of no bytes was asked for.
    #[error("a buffer needs at least one byte")]
    EmptyBuffer,
    /// The object belongs to another device.
    #[error("the {what} belongs to another device")]
    ForeignDevice {
        /// The object.
        what: &'static str,
    },
    /// The cubin could not be loaded.
    #[error("cannot load the cubin")]
    Cubin(#[from] CubinError),
    /// The program has no kernel of that name.
    #[error("no kernel {name:?} in the program, which has: {}", available.join(", "))]
    NoKernel {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
    /// A launch cannot run on this GPU as asked.
    #[error("cannot launch {kernel}: {what} is {value}, the limit is {limit}")]
    LaunchLimit {
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
        "cannot launch {kernel} in blocks of {} threads: it was compiled for blocks of {} (.reqntid)",
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
        "{kernel} has no griddepcontrol.wait: it cannot begin before the launch that it follows has ended"
    )]
    NoGridWait {
        /// The kernel.
        kernel: String,
    },
    /// The arguments do not match the kernel's parameters.
    #[error("kernel {kernel} takes {expected} bytes of parameters, {given} were given")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// Bytes the kernel's parameters occupy.
        expected: u32,
        /// Bytes the arguments occupy.
        given: u32,
    },
    /// A patch names arguments that the launch does not have.
    #[error("the launch of {kernel} has {count} arguments, a patch names {given} from number {index} on")]
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
    /// A patch would replace an argument by one of another width.
    #[error("argument {index} of {kernel} has {expected} bytes, one of {given} was given")]
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
    /// An argument was given an alignment that none can have.
    #[error("an argument cannot be aligned to {align} bytes: alignments are powers of two up to {limit}")]
    Alignment {
        /// The alignment asked for.
        align: usize,
        /// The largest there is.
        limit: usize,
    },
    /// The queue metadata could not be built.
    #[error("cannot build the queue metadata of {kernel}")]
    Qmd {
        /// The kernel.
        kernel: String,
        /// The field that does not fit.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The device has as many queues as its driver lets one device have.
    #[error("the device has {limit} queues, the most that its driver lets one device have")]
    TooManyQueues {
        /// The limit.
        limit: usize,
    },
    /// The operation needs another kind of queue.
    #[error("a {queue} queue cannot {operation}")]
    WrongQueue {
        /// The kind of queue.
        queue: &'static str,
        /// The operation asked for.
        operation: &'static str,
    },
    /// One submission needs more memory than its ring has.
    #[error("{what} needs {}, its ring holds {}", Bytes(*len), Bytes(*capacity))]
    RingTooSmall {
        /// The object.
        what: &'static str,
        /// The bytes that it needs.
        len: u64,
        /// The bytes that there are.
        capacity: u64,
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
    /// A copy would read what it writes.
    #[error("{len} bytes at offset {from} and at offset {to} of one buffer overlap")]
    Overlap {
        /// First byte to read.
        from: u64,
        /// First byte to write.
        to: u64,
        /// Bytes to copy.
        len: u64,
    },
    /// Signals interrupted a request again and again, for as long as the device's patience.
    #[error("{name} ({request:#010x}) was interrupted by signals for as long as the device's patience")]
    Interrupted {
        /// The request as the kernel headers spell it.
        name: &'static str,
        /// Its number.
        request: u32,
    },
    /// The device was opened before a fork, by the parent: its rings, memory and timelines are the parent's
    /// alone.
    #[error("the device belongs to process {owner}, and this is process {process}, a fork of it")]
    Forked {
        /// The process that opened the device.
        owner: u32,
        /// The process that made the call.
        process: u32,
    },
    /// The GPU did not reach a point in time.
    #[error(
        "the GPU did not finish {}: timeline stands at {reached}, waited for {wanted}{}",
        limit(*waited),
        said(explanation)
    )]
    Timeout {
        /// Time that the call waited.
        waited: Duration,
        /// The value waited for.
        wanted: u64,
        /// The value last seen.
        reached: u64,
        /// Why, in the words of the software ga10b. Empty on hardware, which is silent.
        explanation: Vec<String>,
    },
    /// The work did not end within the device's patience when its queue was dropped, and was stopped.
    #[error("the work was stopped before its end: its queue was dropped, and it did not end in time")]
    Stopped,
    /// The work waits ([`Queue::wait_for`](crate::Queue::wait_for)) for work that was [`Stopped`](Self::Stopped),
    /// or follows work that does: it will never start.
    #[error(
        "the work cannot start: it waits for work of a queue that was dropped, and that did not end in time"
    )]
    Starved,
    /// The work asked about was never submitted, and its queue is gone.
    #[error("the work was discarded: its queue was dropped before it was submitted")]
    Discarded,
    /// The GPU stopped a channel.
    #[error("{0}")]
    Fault(Box<FaultReport>),
    /// The device was lost to an earlier fault.
    #[error("the device was lost to an earlier fault: {0}")]
    Lost(Box<FaultReport>),
}

/// A message followed by those of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))?;
        match self.hint() {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Of which Tegra chip the GPU is, if only one has SMs of that version.
fn of_tegra(sm: u32) -> String {
    Tegra::of_sm(sm).map_or_else(String::new, |tegra| format!(", {tegra}"))
}

fn of_group(group: &Option<String>) -> String {
    group.as_ref().map_or_else(String::new, |group| format!(", which belongs to group {group}"))
}

/// The time that a call waited, in words; one that did not wait only looked.
fn limit(waited: Duration) -> String {
    match waited {
        Duration::ZERO => "yet".to_owned(),
        waited => format!("within {waited:?}"),
    }
}

fn said(explanation: &[String]) -> String {
    explanation.iter().map(|words| format!("; {words}")).collect()
}

/// How much memory there is.
fn room(free: Option<u64>, total: Option<u64>) -> String {
    match (free, total) {
        (Some(free), Some(total)) => format!(": {} of {} are free", round(free), round(total)),
        (None, Some(total)) => format!(": the device has {}", round(total)),
        _ => String::new(),
    }
}

/// In MiB, unless there is less.
fn round(bytes: u64) -> Bytes {
    const MIB: u64 = 1 << 20;
    Bytes(if bytes < MIB { bytes } else { bytes / MIB * MIB })
}

fn shape([x, y, z]: &[u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

impl Error {
    /// A node that could not be opened.
    pub(crate) fn open(path: &CStr, errno: Nix) -> Self {
        let owner = || {
            let path = std::path::Path::new(path.to_str().ok()?);
            let gid = std::fs::metadata(path).ok()?.gid();
            let known = nix::unistd::Group::from_gid(gid.into()).ok().flatten();
            Some(known.map_or_else(|| gid.to_string(), |group| group.name))
        };
        let group = if matches!(errno, Nix::EACCES | Nix::EPERM) { owner() } else { None };
        Self::Open { path: path.into(), group, errno: Errno::of(errno) }
    }

    /// Whether a node is there and this user may not open it.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Open { errno, .. } if matches!(Nix::from_raw(errno.raw()), Nix::EACCES | Nix::EPERM))
    }

    /// A request that the driver refused, or that was given up.
    pub(crate) fn ioctl(e: nvgpu_sys::IoctlError) -> Self {
        let nvgpu_sys::IoctlError { name, request, errno } = e;
        match errno {
            Nix::EINTR => Self::Interrupted { name, request },
            errno => Self::Ioctl { name, request, errno: Errno::of(errno) },
        }
    }

    /// Whether a driver answers so to what it does not know or does not offer.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Ioctl { errno, .. } if matches!(errno.raw(), libc::ENOTTY | libc::EINVAL))
    }

    /// Whether memory or addresses were short.
    pub(crate) fn is_shortage(&self) -> bool {
        match self {
            Self::Ioctl { errno, .. } => Nix::from_raw(errno.raw()) == Nix::ENOMEM,
            Self::Status { status, .. } => {
                matches!(*status, rm_sys::NV_ERR_NO_MEMORY | rm_sys::NV_ERR_INSUFFICIENT_RESOURCES)
            }
            Self::OutOfAddresses { .. } => true,
            _ => false,
        }
    }

    /// A desktop driver whose version is not known.
    pub(crate) fn driver(source: rm_sys::VersionError) -> Self {
        Self::Driver { source: source.into() }
    }

    /// A launch that the queue metadata cannot express.
    pub(crate) fn qmd(kernel: &str, source: qmd::Error) -> Self {
        Self::Qmd { kernel: kernel.to_owned(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_told_from_a_wait() {
        let text = |waited| Error::Timeout { waited, wanted: 2, reached: 1, explanation: vec![] }.to_string();
        assert!(text(Duration::ZERO).starts_with("the GPU did not finish yet: "));
        assert!(text(Duration::from_secs(3)).starts_with("the GPU did not finish within 3s: "));
    }
}
