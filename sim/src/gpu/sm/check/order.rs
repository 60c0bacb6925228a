//! Happens-before order of accesses: vector clocks of warps or of blocks.

use rustc_hash::FxHashMap;

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

    /// Whether the accesses of `id` at a clock are known.
    #[inline]
    pub fn has(&self, id: u32, clock: u32) -> bool {
        let known = match id < SPARSE {
            true => self.dense.get(id as usize).copied(),
            false => self.sparse.iter().find(|(other, _)| *other == id).map(|(_, known)| *known),
        };
        known.is_some_and(|known| known >= clock)
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

/// The clocks of all participants, and of the objects they synchronize through.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    at_hand: Vec<Participant>,
    others: FxHashMap<u32, Participant>,
    /// By the address of the atomic access.
    released: FxHashMap<u64, Knowledge>,
}

impl Clocks {
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

    /// The clock of `id`, which its accesses are marked with.
    #[inline]
    pub fn now(&mut self, id: u32) -> u32 {
        self.of(id).clock
    }

    /// Begins a step of `id`; returns its clock.
    #[inline]
    pub fn tick(&mut self, id: u32) -> u32 {
        let own = self.of(id);
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
        let own = self.at_hand.get(id as usize).or_else(|| self.others.get(&id));
        own.map(|own| &own.known)
    }

    /// Returns the knowledge that `id` passes to those that synchronize with it now; its further accesses are
    /// later.
    pub fn release(&mut self, id: u32) -> Knowledge {
        let own = self.of(id);
        own.known.raise(id, own.clock);
        own.clock += 1;
        own.known.clone()
    }

    /// `id` gains the knowledge that was passed on.
    pub fn acquire(&mut self, id: u32, passed: &Knowledge) {
        self.of(id).known.join(passed);
    }

    /// `id` publishes its knowledge at `address`.
    pub fn release_at(&mut self, id: u32, address: u64) {
        let mut released = self.released.remove(&address).unwrap_or_default();
        let own = self.of(id);
        own.known.raise(id, own.clock);
        own.clock += 1;
        released.join(&own.known);
        self.released.insert(address, released);
    }

    /// `id` gains the knowledge published at `address`; false if there is none.
    pub fn acquire_at(&mut self, id: u32, address: u64) -> bool {
        let Some(passed) = self.released.remove(&address) else { return false };
        self.acquire(id, &passed);
        self.released.insert(address, passed);
        true
    }

    /// `id` has ended: it learns nothing any more.
    pub fn end(&mut self, id: u32) {
        self.others.remove(&id);
        if let Some(own) = self.at_hand.get_mut(id as usize) {
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
        clocks.release_at(1, 64);
        let after = clocks.now(1);
        assert!(clocks.acquire_at(2, 64) && !clocks.acquire_at(2, 128));
        assert!(clocks.knows(2, 1, before) && !clocks.knows(2, 1, after));
        // Knowledge is passed on.
        clocks.release_at(2, 128);
        clocks.acquire_at(3, 128);
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
    }
}
