//! Why a QMD could not be built or read.

use crate::reduction::ReductionOp;
use crate::target::Target;
use crate::version::Version;

/// An axis of a grid or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// The fastest varying one.
    X,
    /// The middle one.
    Y,
    /// The slowest varying one.
    Z,
}

impl Axis {
    /// All of them, in the order of a `[u32; 3]`.
    pub const ALL: [Self; 3] = [Self::X, Self::Y, Self::Z];
}

impl std::fmt::Display for Axis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::X => "x",
            Self::Y => "y",
            Self::Z => "z",
        })
    }
}

/// Why a QMD could not be built or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Fewer bytes than the structure has.
    #[error("{len} bytes do not hold a QMD {version}, which is {need} bytes long")]
    Truncated {
        /// The version to read as.
        version: Version,
        /// Bytes given.
        len: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The version fields name a layout this crate does not know.
    #[error("QMD version {major}.{minor} is not known; 3.0 and 4.0 are")]
    UnknownVersion {
        /// `QMD_MAJOR_VERSION`.
        major: u32,
        /// `QMD_VERSION` or `QMD_MINOR_VERSION`.
        minor: u32,
    },
    /// A field of one version was written to a QMD of another.
    #[error("QMD {version} has no field {field} at that place; it belongs to another version")]
    ForeignField {
        /// Name of the field.
        field: &'static str,
        /// Version of the QMD.
        version: Version,
    },
    /// A raw value is wider than its field.
    #[error("{value:#x} does not fit into {field}, which is {width} bits wide")]
    FieldOverflow {
        /// Name of the field.
        field: &'static str,
        /// The value.
        value: u32,
        /// Width of the field.
        width: u8,
    },
    /// A launch was built without something that it needs.
    #[error("the launch has no {what}; set it before building")]
    Missing {
        /// The missing setting.
        what: &'static str,
    },
    /// An address is not aligned as the hardware needs it.
    #[error("{what} at {address:#x} is not a multiple of {align} bytes")]
    Misaligned {
        /// The object at the address.
        what: &'static str,
        /// The GPU virtual address.
        address: u64,
        /// The alignment in bytes.
        align: u64,
    },
    /// An address has more bits than its fields hold.
    #[error("{what} at {address:#x} is out of reach: QMD {version} stores {bits} bits of it, place it below {limit:#x}", limit = 1u64 << bits)]
    OutOfReach {
        /// The object at the address.
        what: &'static str,
        /// The GPU virtual address.
        address: u64,
        /// Bits of the address that can be stored.
        bits: u8,
        /// The version.
        version: Version,
    },
    /// A grid dimension is zero or too large.
    #[error("grid {axis} is {value}; it must be 1 to {limit}")]
    Grid {
        /// The dimension.
        axis: Axis,
        /// Blocks along it.
        value: u32,
        /// The most it can be.
        limit: u32,
    },
    /// A block dimension is zero or too large.
    #[error("block {axis} is {value}; it must be 1 to {limit}")]
    Block {
        /// The dimension.
        axis: Axis,
        /// Threads along it.
        value: u32,
        /// The most it can be.
        limit: u32,
    },
    /// A block has too many threads.
    #[error("a block of {threads} threads is too large; 1024 is the most")]
    Threads {
        /// Product of the three dimensions.
        threads: u64,
    },
    /// A register count the field or the hardware does not know.
    #[error("{count} registers per thread; it must be 1 to 255")]
    Registers {
        /// The count.
        count: u32,
    },
    /// A block needs more registers than an SM has.
    #[error(
        "a block of {warps} warps with {registers} registers per thread does not fit on an SM; \
         {limit} warps do: launch fewer threads or compile with fewer registers"
    )]
    RegisterFile {
        /// Warps in the block.
        warps: u32,
        /// Registers per thread.
        registers: u32,
        /// Warps that fit with that many registers.
        limit: u32,
    },
    /// More barriers than a block can have.
    #[error("{count} barriers; a block has at most 16")]
    Barriers {
        /// The count.
        count: u32,
    },
    /// A part whose launch descriptors are not known.
    #[error("{target} is decoded and not run: no header names its launch descriptor")]
    NotRun {
        /// The part.
        target: Target,
    },
    /// A block needs more shared memory than the part gives one.
    #[error("a block with {bytes} bytes of shared memory is too large; {target} gives at most {limit}")]
    SharedMemory {
        /// Static, dynamic and reserved bytes together.
        bytes: u64,
        /// The most there is.
        limit: u32,
        /// The part.
        target: Target,
    },
    /// The target carve-out is larger than any the part has.
    #[error("a shared-memory carve-out of {bytes} bytes is too large; {target} has at most {limit}")]
    CarveOut {
        /// The target in bytes.
        bytes: u32,
        /// The most there is.
        limit: u32,
        /// The part.
        target: Target,
    },
    /// The carve-out cap is smaller than the launch needs.
    #[error("the carve-out is capped at {cap} bytes, but the launch asks for {needed}")]
    CarveOutCap {
        /// The cap, rounded up to a carve-out.
        cap: u32,
        /// Bytes that a block needs, or the target carve-out.
        needed: u32,
    },
    /// More local memory than a thread's window holds.
    #[error("{bytes} bytes of local memory per thread are too many; the window holds {limit}")]
    LocalMemory {
        /// Low and high part together.
        bytes: u64,
        /// Size of the window.
        limit: u32,
    },
    /// A slot that the QMD does not have.
    #[error("there is no {what} {index}; QMD {version} has {count}")]
    Slot {
        /// Purpose of the slot.
        what: &'static str,
        /// The index.
        index: usize,
        /// Number of slots.
        count: usize,
        /// The version.
        version: Version,
    },
    /// A constant buffer is empty or larger than a bank.
    #[error("constant buffer {index} has {bytes} bytes; it must have 1 to 65536")]
    ConstantBufferSize {
        /// The bank.
        index: usize,
        /// Its size.
        bytes: u32,
    },
    /// QMD v3.0 cannot prefetch a constant buffer before the launch.
    #[error("constant buffer {index}: QMD {version} cannot prefetch before the launch")]
    PrefetchPre {
        /// The bank.
        index: usize,
        /// The version.
        version: Version,
    },
    /// A reduction that the memory system does not do on that width.
    #[error("a 64-bit release cannot reduce by {op:?}; use a 32-bit payload or another operation")]
    WideReduction {
        /// The operation.
        op: ReductionOp,
    },
    /// A group number that does not fit.
    #[error("QMD group {group} does not exist; groups go from 0 to 63")]
    Group {
        /// The number.
        group: u32,
    },
}
