//! Operations of random programs: the PTX that one writes, and what it computes.

use ptxgen::{Global, Kernel, Pointer, Reg, Shared};

/// Threads of a program's only block.
pub const THREADS: usize = 256;
/// The operands of an operation: four words and the program's constant.
pub type Words = [u32; 4];
/// The registers holding them.
pub type Regs = [Reg<u32>; 4];

/// An operation of one thread by itself.
#[derive(Debug)]
pub struct LaneOp {
    pub name: &'static str,
    pub emit: fn(&Kernel, Regs, u32) -> Reg<u32>,
    /// `None` where the value is not laid down (the bits of a NaN that a conversion makes).
    pub eval: fn(Words, u32) -> Option<u32>,
}

/// An operation among the threads of a warp or a block, or on memory they share.
#[derive(Debug)]
pub struct BlockOp {
    pub name: &'static str,
    pub emit: fn(&Kernel, &Site, Regs, u32) -> Reg<u32>,
    pub eval: fn(&mut Memory<'_>, &[Words], u32) -> Vec<u32>,
}

/// The place of a block operation.
pub struct Site {
    pub thread: Reg<u32>,
    /// Memory of the block: one word per thread, twice.
    pub shared: Pointer<Shared, u32>,
    /// The operation's own words of the table: one per thread.
    pub row: Pointer<Global, u32>,
}

/// An operation's own words of the table.
#[derive(Debug)]
pub struct Memory<'a> {
    pub(super) row: &'a mut [u32],
}

impl<'a> Memory<'a> {
    /// Over one row.
    pub fn new(row: &'a mut [u32]) -> Self {
        Self { row }
    }
}
