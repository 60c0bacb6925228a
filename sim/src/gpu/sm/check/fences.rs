//! Order of the accesses of blocks if every message needs its fence: a strong store or an atomic operation
//! publishes the block's accesses before its last fence, and a strong load learns of them at the next fence,
//! or when its SM's level-1 cache is emptied. Accesses that strong ones do not order even without fences are
//! a race, which is the other check's.

use std::collections::HashMap;

use crate::gpu::sm::check::order::{Clocks, Knowledge};
use crate::gpu::sm::check::shadow::{Kind, Mark, Shadow};

/// The clocks of blocks, and their knowledge of each other.
#[derive(Debug, Default)]
pub(super) struct Fences {
    clocks: Clocks,
    shadow: Shadow,
    /// Accesses of each block before its last fence.
    fenced: HashMap<u32, Knowledge>,
    /// Knowledge that each has read since.
    pending: HashMap<u32, Knowledge>,
    /// By the address of the strong access.
    released: HashMap<u64, Knowledge>,
    /// Knowledge that blocks would have if no message needed a fence, and would have published.
    unfenced: HashMap<u32, Knowledge>,
    unfenced_released: HashMap<u64, Knowledge>,
}

impl Fences {
    /// A fence of a block.
    pub fn fence(&mut self, id: u32) {
        self.learn(id);
        let passed = self.clocks.release(id);
        self.fenced.insert(id, passed);
    }

    /// Later loads of a block see the stores that precede the messages it has read.
    pub fn learn(&mut self, id: u32) {
        if let Some(pending) = self.pending.remove(&id) {
            self.clocks.acquire(id, &pending);
        }
    }

    pub fn release_at(&mut self, id: u32, address: u64) {
        if let Some(passed) = self.fenced.get(&id) {
            self.released.entry(address).or_default().join(passed);
        }
        let own = self.unfenced.entry(id).or_default();
        own.raise(id, self.clocks.now(id));
        self.unfenced_released.entry(address).or_default().join(own);
        // Later accesses are not part of the message.
        self.clocks.release(id);
    }

    pub fn acquire_at(&mut self, id: u32, address: u64) {
        if let Some(passed) = self.released.get(&address) {
            self.pending.entry(id).or_default().join(passed);
        }
        if let Some(passed) = self.unfenced_released.get(&address) {
            self.unfenced.entry(id).or_default().join(passed);
        }
    }

    /// The write that comes before an access if messages need no fence, and may come after it because they
    /// do.
    ///
    /// A load has ended when its value is used, so accesses after a read need none. Nor does a strong store
    /// that another block has seen, or any store before a fence whose message has arrived: it has reached the
    /// level-2 cache, and readers past their level-1 cache see it too.
    fn needs_fence(&mut self, word: u64, mark: &Mark, past_l1: bool) -> Option<Mark> {
        let writer = self.shadow.unordered_write(&self.clocks, word, mark)?;
        let seen = self.unfenced.get(&mark.id).is_some_and(|known| known.has(writer.id, writer.clock));
        let in_l2 = writer.atomic
            || self.pending.get(&mark.id).is_some_and(|known| known.has(writer.id, writer.clock));
        (seen && !(in_l2 && past_l1)).then_some(writer)
    }

    /// The clock of a block.
    pub fn now(&mut self, id: u32) -> u32 {
        self.clocks.now(id)
    }

    /// Notes an access to a word; returns the write that it may not see, or may precede, for want of a fence.
    pub fn access(&mut self, word: u64, mark: Mark, kind: Kind, past_l1: bool) -> Option<Mark> {
        let earlier = self.needs_fence(word, &mark, past_l1);
        self.shadow.access(&self.clocks, word, mark, kind);
        earlier.filter(|_| kind != Kind::Store { changes: false })
    }
}
