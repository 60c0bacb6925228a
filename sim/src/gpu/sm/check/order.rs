//! Happens-before order of accesses: vector clocks of warps or of blocks.

use std::collections::HashMap;

/// Knowledge of a participant: the clock of others up to which their accesses happened before its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge(HashMap<u32, u32>);

impl Knowledge {
    /// Adds the accesses of `id` up to a clock.
    pub fn raise(&mut self, id: u32, clock: u32) {
        let known = self.0.entry(id).or_insert(0);
        *known = (*known).max(clock);
    }

    /// Whether the accesses of `id` at a clock are known.
    pub fn has(&self, id: u32, clock: u32) -> bool {
        self.0.get(&id).is_some_and(|&known| known >= clock)
    }

    /// Adds what `other` knows.
    pub fn join(&mut self, other: &Knowledge) {
        for (&id, &clock) in &other.0 {
            self.raise(id, clock);
        }
    }
}

/// The clocks of all participants, and of the objects they synchronize through.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    participants: HashMap<u32, Knowledge>,
    /// By the address of the atomic access.
    released: HashMap<u64, Knowledge>,
}

impl Clocks {
    /// The clock of `id`, of which its accesses are marked with.
    pub fn now(&mut self, id: u32) -> u32 {
        *self.participants.entry(id).or_default().0.entry(id).or_insert(1)
    }

    /// Whether an access of `other` at its clock `at` happened before what `id` does now.
    pub fn knows(&self, id: u32, other: u32, at: u32) -> bool {
        id == other || self.participants.get(&id).is_some_and(|known| known.has(other, at))
    }

    /// Returns the knowledge that `id` passes to those that synchronize with it now; its further accesses are
    /// later.
    pub fn release(&mut self, id: u32) -> Knowledge {
        self.now(id);
        let own = self.participants.entry(id).or_default();
        let passed = own.clone();
        *own.0.entry(id).or_insert(1) += 1;
        passed
    }

    /// `id` gains the knowledge that was passed on.
    pub fn acquire(&mut self, id: u32, passed: &Knowledge) {
        self.now(id);
        self.participants.entry(id).or_default().join(passed);
    }

    /// `id` publishes its knowledge at `address`.
    pub fn release_at(&mut self, id: u32, address: u64) {
        let passed = self.release(id);
        self.released.entry(address).or_default().join(&passed);
    }

    /// `id` gains the knowledge published at `address`; false if there is none.
    pub fn acquire_at(&mut self, id: u32, address: u64) -> bool {
        self.now(id);
        let Some(passed) = self.released.get(&address) else { return false };
        self.participants.entry(id).or_default().join(passed);
        true
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
}
