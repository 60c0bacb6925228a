//! Happens-before order of accesses: vector clocks of warps or of blocks.

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::knowledge::Knowledge;
use crate::gpu::sm::check::published::{Learned, Published};

/// A participant: its clock, and what it knows of the others.
#[derive(Debug)]
struct Participant {
    clock: u32,
    known: Knowledge,
}

impl Default for Participant {
    fn default() -> Self {
        Participant { clock: 1, known: Knowledge::default() }
    }
}

/// Participants up to this number are at hand: warps, their copies and products, the first blocks.
const AT_HAND: usize = 96;

/// The clocks of all participants, and what they have published.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    participants: Participants,
    published: Published,
}

#[derive(Debug, Default)]
struct Participants {
    at_hand: Vec<Participant>,
    others: FxHashMap<u32, Participant>,
}

impl Participants {
    #[inline]
    fn of(&mut self, id: u32) -> &mut Participant {
        let at = id as usize;
        if at >= AT_HAND {
            return self.others.entry(id).or_default();
        }
        if self.at_hand.len() <= at {
            self.at_hand.resize_with(at + 1, Participant::default);
        }
        &mut self.at_hand[at]
    }
}

impl Clocks {
    /// The clock of `id`, which its accesses are marked with.
    #[inline]
    pub fn now(&mut self, id: u32) -> u32 {
        self.participants.of(id).clock
    }

    /// Begins a step of `id`; returns its clock.
    #[inline]
    pub fn tick(&mut self, id: u32) -> u32 {
        let own = self.participants.of(id);
        own.clock += 1;
        own.clock
    }

    /// Whether an access of `other` at its clock `at` happened before what `id` does now.
    pub fn knows(&self, id: u32, other: u32, at: u32) -> bool {
        id == other || self.known(id).is_some_and(|known| known.has(other, at))
    }

    /// Returns what `id` knows of others, if anything.
    #[inline]
    pub fn known(&self, id: u32) -> Option<&Knowledge> {
        let Participants { at_hand, others } = &self.participants;
        let own = at_hand.get(id as usize).or_else(|| others.get(&id));
        own.map(|own| &own.known)
    }

    /// Returns the knowledge that `id` passes to those that synchronize with it now; its further accesses are
    /// later.
    pub fn release(&mut self, id: u32) -> Knowledge {
        let own = self.participants.of(id);
        own.known.raise(id, own.clock);
        own.clock += 1;
        own.known.clone()
    }

    /// `id` gains the knowledge that was passed on.
    pub fn acquire(&mut self, id: u32, passed: &Knowledge) {
        self.participants.of(id).known.join(passed);
    }

    /// `id` publishes its knowledge at words of lines, by the lanes that `lanes_at` tells for a word of the n-th line.
    pub fn release_at(
        &mut self,
        id: u32,
        places: impl Iterator<Item = (u64, u32)>,
        lanes_at: impl Fn(usize, u32) -> (u8, u8),
    ) {
        let own = self.participants.of(id);
        own.known.raise(id, own.clock);
        self.published.release((id, own.clock), &own.known, places, lanes_at);
        own.clock += 1;
    }

    /// `id` gains the knowledge published at words of a line; shows `own` what it has published itself.
    pub fn acquire_at(&mut self, id: u32, place: (u64, u32), own: impl FnMut(u32, u32, (u8, u8))) -> Learned {
        self.published.acquire(id, &mut self.participants.of(id).known, place, own)
    }

    /// `id` has ended: it learns nothing any more.
    pub fn end(&mut self, id: u32) {
        self.participants.others.remove(&id);
        if let Some(own) = self.participants.at_hand.get_mut(id as usize) {
            own.known = Knowledge::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_an_acquire_knows_what_came_before_the_release() {
        let mut clocks = Clocks::default();
        let before = clocks.now(1);
        assert!(!clocks.knows(2, 1, before));
        let (here, there) = ((2, 1 << 5), (2, 1 << 6));
        clocks.release_at(1, [here].into_iter(), |_, _| (0, 0));
        let after = clocks.now(1);
        let learns = |clocks: &mut Clocks, place| clocks.acquire_at(2, place, |_, _, _| {}).others;
        assert!(learns(&mut clocks, here) && !learns(&mut clocks, there));
        assert!(clocks.knows(2, 1, before) && !clocks.knows(2, 1, after));
        // Knowledge is passed on.
        clocks.release_at(2, [there].into_iter(), |_, _| (0, 0));
        clocks.acquire_at(3, there, |_, _, _| {});
        assert!(clocks.knows(3, 1, before) && clocks.knows(1, 1, after));
    }
}
