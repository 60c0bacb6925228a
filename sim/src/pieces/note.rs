//! Notes: what a program knows of its GPU memory and a driver never asks.
//!
//! A driver sees mappings. What lies in them (buffers cut from one mapping, command rings, machine code, names)
//! only the program knows. With a check the software ga10b takes [`Note`]s of it through
//! [`Annotations`](crate::Annotations) and compares accesses of kernels with them, as a memory debugger does
//! with the requests of an allocator.

use serde::{Deserialize, Serialize};

/// Purpose of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum PieceKind {
    /// Data of the program's.
    Buffer = 0,
    /// Commands that the host unit fetches.
    Commands = 1,
    /// Launch descriptors and their constant banks.
    Launches = 2,
    /// A loaded program: code, constants, variables. Pieces inside it say which is what.
    Program = 3,
    /// Machine code.
    Code = 4,
    /// Constants of a program.
    Constants = 5,
    /// Variables of a program.
    Variables = 6,
    /// Backing of the local memory of threads.
    Local = 7,
    /// Buffers through which copies between CPU and GPU pass.
    Staging = 8,
    /// Semaphores and timestamps.
    Signal = 9,
    /// Anything else.
    Other = 10,
}

impl PieceKind {
    /// All kinds, each at the place of its number.
    pub const ALL: [Self; 11] = [
        Self::Buffer,
        Self::Commands,
        Self::Launches,
        Self::Program,
        Self::Code,
        Self::Constants,
        Self::Variables,
        Self::Local,
        Self::Staging,
        Self::Signal,
        Self::Other,
    ];

    /// The kind of that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its name, in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::Commands => "commands",
            Self::Launches => "launch descriptors",
            Self::Program => "program",
            Self::Code => "code",
            Self::Constants => "constants",
            Self::Variables => "variables",
            Self::Local => "local memory",
            Self::Staging => "staging memory",
            Self::Signal => "semaphore",
            Self::Other => "memory",
        }
    }
}

/// Loads and stores that kernels may do to a piece. Copy engines, semaphores and constant banks reach memory
/// in other ways, which this does not concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum KernelAccess {
    /// Nothing.
    None = 0,
    /// Load.
    Read = 1,
    /// Load, store, and atomic operations.
    ReadWrite = 2,
}

impl KernelAccess {
    /// The access of that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::None, Self::Read, Self::ReadWrite].get(usize::try_from(number).ok()?).copied()
    }
}

/// A piece of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceNote<'a> {
    /// First GPU address.
    pub va: u64,
    /// Length in bytes, exact: the bytes behind belong to no piece.
    pub bytes: u64,
    /// Purpose of the memory.
    pub kind: PieceKind,
    /// Its name; may be empty.
    pub name: &'a str,
    /// Accesses allowed to kernels.
    pub access: KernelAccess,
}

/// The part of local memory that the stack of a thread takes, as offsets into the window of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNote {
    /// Start of the stack; it grows towards 0.
    pub top: u32,
    /// Most bytes that it takes.
    pub bytes: u32,
}

/// An array in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayNote<'a> {
    /// Its name.
    pub name: &'a str,
    /// Offset into the shared memory of a block.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

/// The shared memory of a block as the compiler laid it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedNote<'a> {
    /// Bytes that every launch has, what precedes the arrays included.
    pub bytes: u32,
    /// Whether a launch may ask for more, which follows.
    pub may_have_more: bool,
    /// All arrays, or none where they are not known.
    pub arrays: &'a [ArrayNote<'a>],
}

/// The source of an instruction and of those that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNote<'a> {
    /// Offset of the instruction from the start of the kernel, in bytes.
    pub offset: u64,
    /// File and line, such as `k.cu:7`, and those of the calls it was inlined by.
    pub source: &'a str,
}

/// A kernel that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNote<'a> {
    /// GPU address of its first instruction.
    pub va: u64,
    /// Bytes of code.
    pub bytes: u64,
    /// Its name.
    pub name: &'a str,
    /// The stack of its threads, if that is known.
    pub stack: Option<StackNote>,
    /// The shared memory of its blocks, if that is known.
    pub shared: Option<SharedNote<'a>>,
    /// Source lines by offset, ascending; may be empty.
    pub lines: &'a [LineNote<'a>],
}

/// A note. It concerns one GPU address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// A piece of a mapping came into use. From then on whatever lies in the mapping outside all pieces is out
    /// of bounds; a mapping of which no piece is noted is not checked further than the MMU does. One inside
    /// an earlier piece is a part of it.
    Piece(PieceNote<'a>),
    /// The piece that starts there was freed, with its parts and kernels.
    Freed {
        /// First GPU address.
        va: u64,
    },
    /// The piece that starts there has another name now.
    Named {
        /// First GPU address.
        va: u64,
        /// The name.
        name: &'a str,
    },
    /// A kernel was loaded.
    Kernel(KernelNote<'a>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kinds() {
        for (number, kind) in (0..).zip(PieceKind::ALL) {
            assert_eq!((kind as u32, PieceKind::from_number(number)), (number, Some(kind)));
        }
        assert_eq!(PieceKind::from_number(PieceKind::ALL.len() as u32), None);
        assert_eq!(KernelAccess::from_number(2), Some(KernelAccess::ReadWrite));
        assert_eq!((KernelAccess::from_number(3), KernelAccess::from_number(u32::MAX)), (None, None));
    }
}
