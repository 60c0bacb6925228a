//! Copies to shared memory (`cp.async`) that their warp has not waited for.
//!
//! The interpreter copies at once, so a missing wait has no consequence here. On a GPU the words hold anything
//! until `cp.async.wait_group`, or an arrival that waits for the copies.

use std::collections::HashMap;

/// A copy of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    warp: u32,
    group: u32,
    /// Op of the program.
    pub pc: u32,
    /// Thread of the block.
    pub thread: u32,
}

/// The copies of a block.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCopies {
    /// By the word that is written.
    words: HashMap<u64, Copy>,
    /// Groups that each warp has ended.
    groups: HashMap<u32, u32>,
}

impl UnfinishedCopies {
    /// A copy that belongs to the next group of a warp.
    pub fn copy(&self, warp: u32, pc: u32, thread: u32) -> Copy {
        Copy { warp, group: self.groups.get(&warp).copied().unwrap_or(0), pc, thread }
    }

    pub fn insert(&mut self, word: u64, copy: Copy) {
        self.words.insert(word, copy);
    }

    /// The copy that writes a word.
    pub fn of(&self, word: u64) -> Option<Copy> {
        self.words.get(&word).copied()
    }

    /// A warp ends a group.
    pub fn commit(&mut self, warp: u32) {
        *self.groups.entry(warp).or_insert(0) += 1;
    }

    /// A warp waits until no more than `left` of its groups are unfinished.
    pub fn wait(&mut self, warp: u32, left: u32) {
        let ended = self.groups.get(&warp).copied().unwrap_or(0).saturating_sub(left);
        self.words.retain(|_, copy| copy.warp != warp || copy.group >= ended);
    }

    /// A warp arrives at a barrier object when its copies have ended: who waits there waits for them.
    pub fn arrive(&mut self, warp: u32) {
        self.words.retain(|_, copy| copy.warp != warp);
    }
}
