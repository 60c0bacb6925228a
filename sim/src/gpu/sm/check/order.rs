//! Happens-before order of accesses: vector clocks of warps or of blocks.

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::published::{Learned, Published};

/// Participants from this number on are few and far between.
const SPARSE: u32 = 1 << 24;

/// Knowledge of a participant: the clock of others up to which their accesses happened before its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    /// By the number of the participant.
    dense: Vec<u32>,
    /// Of those from [`SPARSE`] on.
    sparse: Vec<(u32, u32)>,
}

impl Knowledge {
    /// Adds the accesses of `id` up to a clock.
    pub fn raise(&mut self, id: u32, clock: u32) {
        if id < SPARSE {
            let at = id as usize;
            if self.dense.len() <= at {
                self.dense.resize(at + 1, 0);
            }
            self.dense[at] = self.dense[at].max(clock);
        } else {
            match self.sparse.iter_mut().find(|(other, _)| *other == id) {
                Some((_, known)) => *known = (*known).max(clock),
                None => self.sparse.push((id, clock)),
            }
        }
    }

    /// The clock up to which the accesses of `id` are known; 0 if none is.
    #[inline]
    pub fn of(&self, id: u32) -> u32 {
        match id < SPARSE {
            true => self.dense.get(id as usize).copied().unwrap_or(0),
            false => self.sparse.iter().find(|(other, _)| *other == id).map_or(0, |(_, known)| *known),
        }
    }

    /// Whether the accesses of `id` at a clock, from 1 on, are known.
    #[inline]
    pub fn has(&self, id: u32, clock: u32) -> bool {
        self.of(id) >= clock
    }

    /// Whether it has all that `other` has.
    pub fn includes(&self, other: &Knowledge) -> bool {
        other.dense.iter().enumerate().all(|(id, clock)| self.has(id as u32, *clock))
            && other.sparse.iter().all(|(id, clock)| self.has(*id, *clock))
    }

    /// Adds what `other` knows.
    pub fn join(&mut self, other: &Knowledge) {
        if self.dense.len() < other.dense.len() {
            self.dense.resize(other.dense.len(), 0);
        }
        for (own, theirs) in self.dense.iter_mut().zip(&other.dense) {
            *own = (*own).max(*theirs);
        }
        other.sparse.iter().for_each(|&(id, clock)| self.raise(id, clock));
    }
}

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

    /// `id` publishes its knowledge at words of lines.
    pub fn release_at(&mut self, id: u32, places: impl Iterator<Item = (u64, u32)>) {
        let own = self.participants.of(id);
        own.known.raise(id, own.clock);
        self.published.release((id, own.clock), &own.known, places);
        own.clock += 1;
    }

    /// `id` gains the knowledge published at words of a line.
    pub fn acquire_at(&mut self, id: u32, place: (u64, u32)) -> Learned {
        self.published.acquire(id, &mut self.participants.of(id).known, place)
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
        clocks.release_at(1, [here].into_iter());
        let after = clocks.now(1);
        assert!(clocks.acquire_at(2, here).others && !clocks.acquire_at(2, there).others);
        assert!(clocks.knows(2, 1, before) && !clocks.knows(2, 1, after));
        // Knowledge is passed on.
        clocks.release_at(2, [there].into_iter());
        clocks.acquire_at(3, there);
        assert!(clocks.knows(3, 1, before) && clocks.knows(1, 1, after));
    }

    #[test]
    fn participants_with_large_numbers_are_known_too() {
        let (mut one, mut two) = (Knowledge::default(), Knowledge::default());
        one.raise(SPARSE | 7, 3);
        two.raise(SPARSE | 7, 2);
        two.raise(5, 1);
        two.join(&one);
        assert!(two.has(SPARSE | 7, 3) && !two.has(SPARSE | 7, 4) && !two.has(SPARSE | 8, 1));
        assert!(two.has(5, 1) && !one.has(5, 1));
        assert!(two.includes(&one) && !one.includes(&two));
    }
}
