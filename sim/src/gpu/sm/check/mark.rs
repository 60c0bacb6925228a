//! An access to words of a line, as it is remembered.

use bitflags::bitflags;

use crate::gpu::sm::check::pieces::Owners;

bitflags! {
    /// Kind of an access.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Kind: u8 {
        const WRITES = 1 << 0;
        /// It synchronizes: atomic, volatile, relaxed, acquire, release.
        const STRONG = 1 << 1;
        /// ... within its block alone (`.cta`).
        const OF_BLOCK = 1 << 2;
        /// An arrival at a barrier object, whose waits are loads, on SM 8.x plain ones.
        const ARRIVAL = 1 << 3;
        /// An atomic operation.
        const ATOMIC = 1 << 4;
        /// Of a load and a store that change a value in two steps.
        const UPDATE = 1 << 5;
        /// A load that may be served by a cache that no write reaches (`.nc`).
        const CONSTANT = 1 << 6;
    }
}

/// An access to words of a line: participant and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The warp of the block, or what goes on beside it: whose clock it is.
    pub id: u32,
    /// Its clock.
    pub clock: u32,
    /// Block of the grid.
    pub block: u32,
    /// The clock of the block.
    pub block_clock: u32,
    /// Op of the program.
    pub pc: u32,
    pub warp: u8,
    pub kind: Kind,
    /// Bytes of each word.
    pub bytes: u8,
    pub owners: Owners,
}

impl Mark {
    /// Whether what conflicts with earlier accesses later conflicts with this one too.
    #[inline]
    pub fn overwrites(&self) -> bool {
        self.kind & (Kind::WRITES | Kind::STRONG) == Kind::WRITES
    }

    /// Whether the two would be a mistake if nothing orders them.
    #[inline]
    pub fn may_conflict(&self, new: &Mark) -> bool {
        let both = self.kind & new.kind;
        let either = self.kind | new.kind;
        if !either.contains(Kind::WRITES) || self.bytes & new.bytes == 0 {
            return false;
        }
        if both.contains(Kind::STRONG) {
            let loses = |one: &Mark, other: &Mark| {
                one.kind.contains(Kind::UPDATE) && other.kind.intersects(Kind::UPDATE | Kind::ATOMIC)
            };
            let too_narrow = either.contains(Kind::OF_BLOCK) && self.block != new.block;
            return too_narrow || loses(self, new) || loses(new, self);
        }
        // A wait.
        let plain_load = |mark: &Mark| !mark.kind.intersects(Kind::WRITES | Kind::STRONG);
        !(new.kind.contains(Kind::ARRIVAL) && plain_load(self))
    }
}
