//! An access of a warp to memory, lane by lane.

use crate::gpu::sm::check::act::Memory;
use crate::gpu::sm::check::registers::Group;

/// Memory that an access of one lane reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A guest address.
    Global(u64),
    /// An offset into shared memory.
    Shared(u32),
    /// An offset into the window of local memory.
    Local(u32),
}

impl Place {
    /// The address, or the offset.
    pub fn offset(self) -> u64 {
        match self {
            Place::Global(va) => va,
            Place::Shared(offset) | Place::Local(offset) => offset.into(),
        }
    }

    /// Another place of the same kind.
    pub fn moved_to(self, at: u64) -> Self {
        match self {
            Place::Global(_) => Place::Global(at),
            Place::Shared(_) => Place::Shared(at as u32),
            Place::Local(_) => Place::Local(at as u32),
        }
    }
}

/// An access of a warp: where, for the lanes that make it.
pub(super) struct WarpAccess {
    pub memory: Memory,
    pub lanes: u32,
    pub places: [Place; 32],
    /// First register of the data that is stored.
    pub data: Option<u16>,
    /// Registers that a load writes, if it is known when they are used.
    pub loaded: Group,
    /// The warp, or the copies that it started.
    pub by: u32,
}

/// The lanes of a mask.
#[inline]
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let first = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (first < 32).then_some(first)
    })
}

/// The words that an access of `bytes` at `address` touches: number of each, and the bytes within it.
pub(super) fn words(address: u64, bytes: u32) -> impl Iterator<Item = (u64, u8)> {
    let end = address + u64::from(bytes);
    (address / 4..end.div_ceil(4)).map(move |word| {
        let from = address.saturating_sub(word * 4).min(4);
        let to = (end - word * 4).min(4);
        (word, ((1u32 << to) - (1u32 << from)) as u8)
    })
}
