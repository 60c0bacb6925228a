//! Order of the accesses of blocks if every message needs its fence: a strong store or an atomic operation
//! publishes the block's accesses before its last fence, and a strong load learns of them at the next fence,
//! or when its SM's level-1 cache is emptied. Accesses that strong ones do not order even without fences are
//! a race, which is the other check's.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::gpu::sm::check::knowledge::Knowledge;
use crate::gpu::sm::check::mark::{Kind, Mark};
use crate::gpu::sm::check::order::Clocks;
use crate::gpu::sm::check::shadow::{Conflict, Orders, Shadow};

/// The clocks of blocks, and their knowledge of each other.
#[derive(Debug, Default)]
pub(super) struct Fences {
    clocks: Clocks,
    shadow: Shadow,
    /// Accesses of each block before its last fence.
    fenced: FxHashMap<u32, Knowledge>,
    /// The clock of each block at its last fence of its own scope (`.cta`).
    narrow: FxHashMap<u32, u32>,
    /// Knowledge that each has read since.
    pending: FxHashMap<u32, Knowledge>,
    /// Blocks that have had a fence of their own scope since they read that.
    pending_narrow: FxHashSet<u32>,
    /// By the address of the strong access.
    released: FxHashMap<u64, Knowledge>,
    /// Knowledge that blocks would have if no message needed a fence, and would have published.
    unfenced: FxHashMap<u32, Knowledge>,
    unfenced_released: FxHashMap<u64, Knowledge>,
}

impl Fences {
    /// A fence of a block.
    pub fn fence(&mut self, id: u32) {
        self.learn(id);
        let passed = self.clocks.release(id);
        self.fenced.insert(id, passed);
    }

    /// A fence of a block of its own scope, which orders nothing for others.
    pub fn fence_block(&mut self, id: u32) {
        self.narrow.insert(id, self.clocks.tick(id));
        if self.pending.contains_key(&id) {
            self.pending_narrow.insert(id);
        }
    }

    /// Later loads of a block see the stores that precede the messages it has read.
    pub fn learn(&mut self, id: u32) {
        self.pending_narrow.remove(&id);
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
        self.clocks.tick(id);
    }

    pub fn acquire_at(&mut self, id: u32, address: u64) {
        if let Some(passed) = self.released.get(&address) {
            self.pending.entry(id).or_default().join(passed);
        }
        if let Some(passed) = self.unfenced_released.get(&address) {
            self.unfenced.entry(id).or_default().join(passed);
        }
    }

    /// A block has ended: it learns nothing any more.
    pub fn end(&mut self, id: u32) {
        self.clocks.end(id);
        self.fenced.remove(&id);
        self.pending.remove(&id);
        self.unfenced.remove(&id);
    }

    /// The clock of a block.
    pub fn now(&mut self, id: u32) -> u32 {
        self.clocks.now(id)
    }

    /// Notes an access to words of a line; returns the write that it may not see, or may precede, for want of a
    /// fence, and whether there is one of too narrow a scope.
    ///
    /// These come before the access if messages need no fence, and may come after it because they do. A load
    /// has ended when its value is used, so accesses after a read need none. Nor does a strong store that
    /// another block has seen, or any store before a fence whose message has arrived: it has reached the
    /// level-2 cache, and readers past their level-1 cache see it too.
    pub fn access(&mut self, place: (u64, u32), mark: Mark, past_l1: bool) -> Option<(Conflict, bool)> {
        let Fences { clocks, shadow, fenced, narrow, pending, pending_narrow, unfenced, .. } = self;
        let orders = Orders { blocks: clocks.known(mark.block), inside: None };
        let has = |known: Option<&Knowledge>, writer: &Mark| {
            known.is_some_and(|known| known.has(writer.block, writer.block_clock))
        };
        let (seen, fetched) = (unfenced.get(&mark.block), pending.get(&mark.block));
        let mut first = None;
        let mut judge = |conflict: Conflict| {
            let writer = &conflict.earlier;
            let in_l2 = writer.kind.contains(Kind::STRONG) || has(fetched, writer);
            if first.is_none() && has(seen, writer) && !(in_l2 && past_l1) {
                let after = narrow.get(&writer.block).is_some_and(|clock| *clock > writer.block_clock);
                let too_narrow =
                    after && !has(fenced.get(&writer.block), writer) || pending_narrow.contains(&mark.block);
                first = Some((conflict, too_narrow));
            }
        };
        // Only writes are to be seen.
        match (mark.kind.contains(Kind::WRITES), seen) {
            (true, _) => shadow.access(&orders, place, mark, 0, judge),
            (false, Some(_)) => shadow.look(&orders, place, mark, &mut judge),
            (false, None) => {}
        }
        first
    }
}
