//! Accesses to memory, and those that nothing orders.

use crate::findings::Event;
use crate::order::shadow::{Strength, Threads};

/// An access of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// Number of the line.
    pub(crate) line: u64,
    /// Its words.
    pub(crate) mask: u32,
    /// Bytes of each.
    pub(crate) bytes: u8,
    /// It reads; an atomic operation does both.
    pub(crate) reads: bool,
    /// It writes.
    pub(crate) writes: bool,
    /// It synchronizes.
    pub(crate) strong: bool,
    /// The instruction.
    pub(crate) site: u32,
    /// The block of the grid.
    pub(crate) block: u32,
    /// The threads of the block.
    pub(crate) threads: Threads,
}

/// Two accesses that nothing orders.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    /// The word of the line.
    pub(crate) word: u32,
    /// Description of the later one.
    pub(crate) text: &'static str,
    /// The work, and the missing order.
    pub(crate) detail: String,
    /// The earlier one.
    pub(crate) earlier: Event,
}

/// Whether two accesses may meet without an order: both synchronize, or a kernel polls the writes of another
/// unit. Of each: its strength, and whether it writes.
pub(super) fn may_meet(old: (Strength, bool), new: (Strength, bool)) -> bool {
    use Strength::{Strong, Unit};
    matches!(
        (old, new),
        ((Strong, _), (Strong, _)) | ((Unit, true), (Strong, false)) | ((Strong, false), (Unit, true))
    )
}
