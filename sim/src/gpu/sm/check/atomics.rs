//! Atomic operations on a line of shared memory: the last of each participant on each word. They race with plain
//! accesses alone, and a loop of them leaves one after another on any word.

use crate::gpu::sm::check::access::lanes;
use crate::gpu::sm::check::mark::{Kind, Mark};
use crate::gpu::sm::check::pieces::Owners;

/// The last atomic operation on a word.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    clock: u32,
    pc: u32,
    lanes: (u8, u8),
}

/// The atomic operations of one participant.
#[derive(Clone, Debug)]
pub(super) struct OfOne {
    /// One of them: what all have in common.
    mark: Mark,
    mask: u32,
    last: Box<[Last; 32]>,
}

impl OfOne {
    /// Notes an operation on words by the lanes that `lanes_at` tells for each.
    #[inline]
    pub fn note(&mut self, mark: &Mark, mask: u32, lanes_at: impl Fn(u32) -> (u8, u8)) {
        self.mask |= mask;
        for word in lanes(mask) {
            self.last[word as usize] = Last { clock: mark.clock, pc: mark.pc, lanes: lanes_at(word) };
        }
    }
}

/// The atomic operations on a line.
#[derive(Clone, Debug, Default)]
pub(super) struct Atomics(Vec<OfOne>);

impl Atomics {
    /// Whether it has accesses of a kind: atomic operations that are no part of another change.
    #[inline]
    pub fn take(kind: Kind) -> bool {
        kind - Kind::OF_BLOCK == Kind::WRITES | Kind::STRONG | Kind::ATOMIC
    }

    /// Returns the operations of a participant.
    #[inline]
    pub fn of(&mut self, mark: &Mark) -> &mut OfOne {
        let same = |one: &OfOne| (one.mark.id, one.mark.kind) == (mark.id, mark.kind);
        let at = self.0.iter().position(same).unwrap_or_else(|| {
            self.0.push(OfOne { mark: *mark, mask: 0, last: Box::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// The last ones on each of these words.
    pub fn each(&self, mask: u32) -> impl Iterator<Item = (u32, Mark)> {
        self.0.iter().flat_map(move |one| {
            lanes(one.mask & mask).map(|word| {
                let Last { clock, pc, lanes: (first, last) } = one.last[word as usize];
                (word, Mark { clock, pc, owners: Owners::all(first.into(), last.into()), ..one.mark })
            })
        })
    }

    /// Words are overwritten: an access that races with the operations before races with that, so they need not be
    /// looked at any more.
    pub fn forget(&mut self, mask: u32) {
        self.0.iter_mut().for_each(|one| one.mask &= !mask);
        self.0.retain(|one| one.mask != 0);
    }
}
