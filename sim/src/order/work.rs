//! Work that accesses memory: launches, copies, the program.

use std::fmt;

use crate::findings::Event;

/// Number of a piece of work, in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WorkId(pub(super) u32);

/// A launch that begins before the one it follows has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The launch: what its threads do after they have waited.
    pub(crate) launch: WorkId,
    /// Their accesses before that.
    pub(crate) early: WorkId,
    /// The wait drops the contents of the level-1 caches.
    pub(crate) invalidates: bool,
}

/// A launch, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchShape {
    /// Address of the first instruction.
    pub(crate) program: u64,
    /// Blocks in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub(crate) block: [u32; 3],
}

/// A piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A kernel.
    Launch(LaunchShape),
    /// A transfer by the copy engine: guest addresses and bytes.
    Copy {
        /// From here; `None` for constants.
        from: Option<u64>,
        /// To here.
        to: u64,
        /// Bytes written.
        len: u64,
    },
    /// Data of the pushbuffer.
    Inline {
        /// To here.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// Accesses of the program.
    Program,
}

/// An instruction of a kernel, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Guest address.
    pub(crate) pc: u64,
    /// As text.
    pub(crate) sass: String,
}

impl Work {
    /// Guest address of the kernel; 0 for other work.
    pub(crate) fn program(&self) -> u64 {
        match self {
            Self::Launch(shape) => shape.program,
            _ => 0,
        }
    }

    /// An access: of a launch by an instruction in a thread of a block.
    pub(crate) fn event(&self, site: Option<&Site>, block: u32, thread: u32) -> Event {
        match (self, site) {
            (Self::Launch(shape), Some(site)) => Event {
                pc: site.pc,
                sass: site.sass.clone(),
                block: coordinates(shape.grid, block),
                thread: coordinates(shape.block, thread),
                source: None,
            },
            _ => Event { pc: 0, sass: self.to_string(), block: [0; 3], thread: [0; 3], source: None },
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(shape) => write!(f, "launch of the kernel at {:#x}", shape.program),
            Self::Copy { from: Some(from), to, len } => {
                write!(f, "copy engine, {len} bytes from {from:#x} to {to:#x}")
            }
            Self::Copy { from: None, to, len } => {
                write!(f, "copy engine, {len} bytes of constants to {to:#x}")
            }
            Self::Inline { to, len } => write!(f, "inline data, {len} bytes to {to:#x}"),
            Self::Program => f.write_str("the program on the CPU"),
        }
    }
}

/// A number by its three parts.
fn coordinates(size: [u32; 3], n: u32) -> [u32; 3] {
    let [x, y, _] = size.map(|n| n.max(1));
    [n % x, n / x % y, n / x / y]
}
