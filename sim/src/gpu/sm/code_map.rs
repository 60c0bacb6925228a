//! Origins of the instructions of a lowered program.

use std::collections::HashMap;

/// The guest address and the word of each op, and the op of each address.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeMap {
    vas: Vec<u64>,
    words: Vec<u128>,
    index: HashMap<u64, u32>,
}

impl CodeMap {
    /// Adds the next op: `word` at guest address `va`.
    pub fn push(&mut self, va: u64, word: u128) {
        self.vas.push(va);
        self.words.push(word);
    }

    /// Makes `op` the target of jumps to its address.
    pub fn enter(&mut self, va: u64, op: u32) {
        self.index.insert(va, op);
    }

    /// The op at a guest address.
    pub fn index_of(&self, va: u64) -> Option<u32> {
        self.index.get(&va).copied()
    }

    /// Guest address of an op; 0 where there is none.
    pub fn va(&self, op: u32) -> u64 {
        self.vas.get(op as usize).copied().unwrap_or(0)
    }

    /// The word of an op; 0 where there is none.
    pub fn word(&self, op: u32) -> u128 {
        self.words.get(op as usize).copied().unwrap_or(0)
    }
}
