//! State of a block for the checks: accesses to its shared memory, and the barriers that ordered its warps.

use std::collections::{BTreeSet, VecDeque};

use crate::gpu::sm::check::access::WarpAccess;
use crate::gpu::sm::check::early::EarlyLoads;
use crate::gpu::sm::check::knowledge::Knowledge;
use crate::gpu::sm::check::lane_order::LaneOrder;
use crate::gpu::sm::check::objects::{Objects, object_of};
use crate::gpu::sm::check::order::Clocks;
use crate::gpu::sm::check::pieces::{Pieces, words_of};
use crate::gpu::sm::check::products::Products;
use crate::gpu::sm::check::shadow::Shadow;
use crate::gpu::sm::check::unfinished::UnfinishedCopies;

use rustc_hash::FxHashMap;
use sass::Access;

/// The number of no block.
const NONE: u64 = u64::MAX;

/// The blocks of a launch, of which one runs at a time.
#[derive(Debug)]
pub(super) struct Blocks {
    running: (u64, Box<BlockWatch>),
    others: FxHashMap<u64, Box<BlockWatch>>,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks { running: (NONE, Box::default()), others: FxHashMap::default() }
    }
}

impl Blocks {
    /// Returns the state of a block, which runs now.
    #[inline]
    pub fn of(&mut self, index: u64) -> &mut BlockWatch {
        if self.running.0 != index {
            self.exchange(index);
        }
        &mut self.running.1
    }

    /// Returns the state of a block that has begun.
    pub fn get(&self, index: u64) -> Option<&BlockWatch> {
        let (running, block) = &self.running;
        if *running == index { Some(block) } else { self.others.get(&index).map(Box::as_ref) }
    }

    #[cold]
    fn exchange(&mut self, index: u64) {
        let next = (index, self.others.remove(&index).unwrap_or_default());
        let (before, block) = std::mem::replace(&mut self.running, next);
        if before != NONE {
            self.others.insert(before, block);
        }
    }

    /// Removes a block that has ended.
    pub fn end(&mut self, index: u64) -> BlockWatch {
        self.of(index);
        *std::mem::replace(&mut self.running, (NONE, Box::default())).1
    }
}

/// The phases of a barrier: what the warps know that arrive in each.
#[derive(Debug, Default)]
struct Phases {
    /// Those that no warp waits for any more.
    ended: usize,
    open: VecDeque<Knowledge>,
}

impl Phases {
    /// Begins a phase, and forgets those before `oldest`, or all, which no warp waits for.
    fn begin(&mut self, oldest: Option<usize>) {
        let all = self.ended + self.open.len();
        let ended = oldest.unwrap_or(all).min(all) - self.ended;
        self.open.drain(..ended);
        self.ended += ended;
        self.open.push_back(Knowledge::default());
    }
}

/// A block while it is checked.
#[derive(Debug, Default)]
pub(super) struct BlockWatch {
    /// Of its warps.
    pub clocks: Clocks,
    /// Of the lanes of each warp.
    lanes: Vec<LaneOrder>,
    /// Warps whose last access to shared memory comes before a fence of theirs.
    pub fenced: u32,
    pub shadow: Shadow,
    /// Loads that are not in `shadow` yet.
    pub early: EarlyLoads,
    pub objects: Objects,
    /// Offsets of the barrier objects that threads have arrived at.
    pub met: BTreeSet<u32>,
    /// Threads that have left for a routine that brings lanes together: the op of their BRA.DIV or BRA.CONV, and
    /// of the WARPSYNC in the routine once they have come there.
    pub gone: FxHashMap<u32, (u32, Option<u32>)>,
    /// Copies to shared memory that no warp has waited for.
    pub unfinished: UnfinishedCopies,
    /// Products of matrices in shared memory that warps have not waited for.
    pub products: Products,
    /// Arrivals at each barrier.
    barriers: [Phases; 16],
    /// Phases that warps wait for: warp, barrier, phase.
    waiting: Vec<(u32, usize, usize)>,
}

impl BlockWatch {
    /// A warp arrives at a barrier, which begins a phase with it if `first`, and waits or not.
    pub fn arrive(&mut self, warp: u32, barrier: usize, first: bool, waits: bool) {
        let passed = self.clocks.release(warp);
        let phases = &mut self.barriers[barrier & 15];
        if first || phases.open.is_empty() {
            let waits = self.waiting.iter().filter(|(_, other, _)| *other == barrier & 15);
            phases.begin(waits.map(|(.., phase)| *phase).min());
        }
        let phase = phases.ended + phases.open.len() - 1;
        phases.open[phase - phases.ended].join(&passed);
        if waits {
            self.waiting.push((warp, barrier & 15, phase));
        }
    }

    /// A warp runs again: the barriers it waited for are complete.
    pub fn resume(&mut self, warp: u32) {
        let BlockWatch { clocks, barriers, waiting, .. } = self;
        waiting.retain(|&(waiter, barrier, phase)| {
            if waiter == warp {
                let phases = &barriers[barrier];
                clocks.acquire(warp, &phases.open[phase - phases.ended]);
            }
            waiter != warp
        });
    }

    /// Returns the order of a warp's lanes.
    #[inline]
    pub fn lanes(&mut self, warp: u32) -> &mut LaneOrder {
        let warp = warp as usize;
        if self.lanes.len() <= warp {
            self.lanes.resize_with(warp + 1, LaneOrder::default);
        }
        &mut self.lanes[warp]
    }

    /// A warp gains the knowledge published at words of a line: all its lanes of what others have published, and of
    /// what the warp itself has, those that `lanes_at` tells for a word.
    pub fn acquire_at(&mut self, warp: u32, place: (u64, u32), lanes_at: impl Fn(u32) -> (u8, u8)) {
        self.lanes(warp);
        let BlockWatch { clocks, lanes, .. } = self;
        let order = &mut lanes[warp as usize];
        let of_warp =
            clocks.acquire_at(warp, place, |word, step, from| order.hand_over(from, lanes_at(word), step));
        order.join_until(of_warp.own);
    }

    /// All lanes of a warp know of each other.
    pub fn join_lanes(&mut self, warp: u32) {
        let step = self.clocks.now(warp);
        if (warp as usize) < self.lanes.len() {
            self.lanes[warp as usize].join_all(step);
        }
    }

    /// Returns the order of the accesses of the block, for one by a warp or what goes on beside it, and its shared
    /// memory.
    #[inline]
    pub fn parts(&mut self, by: u32, warp: u32) -> ((Option<&Knowledge>, &LaneOrder), &mut Shadow) {
        self.lanes(warp);
        ((self.clocks.known(by), &self.lanes[warp as usize]), &mut self.shadow)
    }

    /// Whether an access is a store that says that what its warp did before its last fence is done: to few
    /// words, and before anything but such stores.
    #[inline]
    pub fn is_message(&mut self, warp: u32, access: &WarpAccess, pieces: &Pieces, most: u32) -> bool {
        let fenced = self.fenced >> warp & 1 != 0;
        let few = || pieces.iter().map(|piece| piece.mask.count_ones()).sum::<u32>() <= most;
        let plain = access.memory.access == Access::Store && access.by == warp && !access.memory.object;
        let message = fenced && plain && few();
        if !message {
            self.fenced &= !(1 << warp);
        }
        message
    }

    /// A warp loads words of shared memory: it learns what was published there if it polls them, and of the
    /// complete phases of a barrier object, which code for SM 8.x reads by plain loads. Whether there is one.
    pub fn waits(&mut self, warp: u32, pieces: &Pieces, polls: bool) -> bool {
        let mut is_object = false;
        if !polls && self.objects.are_none() {
            return is_object;
        }
        for piece in pieces.iter().filter(|piece| !piece.global) {
            if polls {
                self.acquire_at(warp, (piece.line, piece.mask), |word| piece.owners.of(word));
            }
            for word in words_of(piece) {
                is_object |= self.learn(warp, object_of(word));
            }
        }
        is_object
    }

    /// A warp finds a phase of a barrier object complete; whether there is one.
    pub fn learn(&mut self, warp: u32, object: u64) -> bool {
        let Some(known) = self.objects.completed(object) else { return false };
        self.clocks.acquire(warp, known);
        self.unfinished.learn(object, known);
        self.join_lanes(warp);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_learn_of_their_warp_what_it_had_published() {
        let mut block = BlockWatch::default();
        let flag = (2, 1 << 7);
        let before = block.clocks.tick(0);
        block.clocks.release_at(0, [flag].into_iter(), |_, _| (4, 4));
        let after = block.clocks.tick(0);
        block.acquire_at(0, flag, |_| (3, 3));
        let lanes = block.lanes(0);
        assert!(lanes.knows(3, 4, before) && !lanes.knows(3, 4, after), "lane 3 has read what lane 4 wrote");
        assert!(!lanes.knows(3, 5, before) && !lanes.knows(5, 4, before), "and no other");
        // By way of another warp, the knowledge is the warp's.
        block.acquire_at(1, flag, |_| (0, 0));
        block.clocks.release_at(1, [flag].into_iter(), |_, _| (0, 0));
        block.acquire_at(0, flag, |_| (3, 3));
        assert!(block.lanes(0).knows(9, 8, before) && !block.lanes(0).knows(9, 8, after));
    }
}
