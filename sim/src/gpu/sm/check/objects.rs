//! Barrier objects in shared memory: what their phases order.
//!
//! An arrival passes on the thread's earlier accesses; a wait that finds the phase complete learns those of
//! all its arrivals. Arrivals of a phase that is not complete order nothing.

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::knowledge::Knowledge;

/// An object, as far as it is known by its arrivals.
#[derive(Debug, Default)]
struct Object {
    /// Of the current phase.
    arriving: Knowledge,
    /// Of all phases that are complete.
    complete: Knowledge,
}

/// The objects of a block, by their offsets in units of 8 bytes.
#[derive(Debug, Default)]
pub(super) struct Objects(FxHashMap<u64, Object>);

/// The object that holds a word of shared memory.
pub(super) fn object_of(word: u64) -> u64 {
    word / 2
}

impl Objects {
    /// An arrival passes on its knowledge, and ends the phase or not.
    pub fn arrive(&mut self, object: u64, passed: &Knowledge, ends: bool) {
        let object = self.0.entry(object).or_default();
        object.arriving.join(passed);
        if ends {
            let arrived = std::mem::take(&mut object.arriving);
            object.complete.join(&arrived);
        }
    }

    /// Returns the knowledge that a wait for a complete phase gains; `None` where nothing has arrived at an
    /// object.
    pub fn completed(&self, object: u64) -> Option<&Knowledge> {
        self.0.get(&object).map(|object| &object.complete)
    }

    /// Whether none has arrivals.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The object begins anew, or its memory is used otherwise.
    pub fn forget(&mut self, object: u64) {
        self.0.remove(&object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::sm::check::order::Clocks;

    #[test]
    fn a_wait_learns_of_phases_that_are_complete() {
        let (mut clocks, mut objects) = (Clocks::default(), Objects::default());
        let first = clocks.now(1);
        objects.arrive(7, &clocks.release(1), false);
        assert!(!objects.completed(7).unwrap().has(1, first), "the phase goes on");
        objects.arrive(7, &clocks.release(2), true);
        let second = clocks.now(1);
        objects.arrive(7, &clocks.release(1), false);
        let known = objects.completed(7).unwrap();
        assert!(known.has(1, first) && !known.has(1, second));
        objects.forget(7);
        assert!(objects.completed(7).is_none());
    }
}
