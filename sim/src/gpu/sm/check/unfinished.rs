//! Copies to shared memory that nothing has waited for.
//!
//! The interpreter copies at once, so a missing wait has no consequence here. On a GPU the words hold
//! anything until `cp.async.wait_group`, or until a phase of a barrier object that the copy arrives at is
//! complete. So copies are participants with clocks of their own: their writes are known to those that waited
//! for them.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::findings::Finding;
use crate::gpu::sm::check::knowledge::Knowledge;
use crate::gpu::sm::check::order::Clocks;

/// Warps of a block.
const WARPS: u32 = 32;
const BULK: u32 = 1 << 31;

/// Returns the participant that writes for a warp's asynchronous copies (`cp.async`).
pub(super) fn copies_of(warp: u32) -> u32 {
    WARPS + warp
}

/// Returns the participant that reads for a warp's products of matrices in shared memory.
pub(super) fn products_of(warp: u32) -> u32 {
    2 * WARPS + warp
}

/// Returns the participant that writes for the bulk copies of a barrier object.
pub(super) fn bulk_copies_of(object: u64) -> u32 {
    BULK | object as u32
}

/// The other side of an access to shared memory that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// Another warp, or a copy that it waited for.
    Warp,
    /// An asynchronous copy that its own warp has not waited for.
    Copy,
    /// A bulk copy.
    Bulk,
    /// A product of matrices, which only reads.
    Product,
}

impl Writer {
    /// Returns the kind of participant `id`, of a warp, as of its clock.
    pub fn of(clocks: &Clocks, id: u32, warp: u32, clock: u32) -> Self {
        match id {
            _ if id >= BULK => Writer::Bulk,
            _ if id == copies_of(warp) && !clocks.knows(warp, id, clock) => Writer::Copy,
            _ if id == products_of(warp) => Writer::Product,
            _ => Writer::Warp,
        }
    }
}

/// The copies of a block.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCopies {
    /// Groups of asynchronous copies that each warp has ended, the oldest first: the knowledge that a wait
    /// gains.
    groups: FxHashMap<u32, VecDeque<Knowledge>>,
    /// The youngest bulk copy of each barrier object that nothing has waited for: its clock, and the finding
    /// if nothing does.
    bulk: BTreeMap<u64, (u32, Finding)>,
}

impl UnfinishedCopies {
    /// A warp ends a group.
    pub fn commit(&mut self, warp: u32, copies: Knowledge) {
        self.groups.entry(warp).or_default().push_back(copies);
    }

    /// A warp waits until no more than `left` of its groups are unfinished; returns the knowledge that it
    /// gains. A group's copies know of those before them.
    pub fn wait(&mut self, warp: u32, left: u32) -> Option<Knowledge> {
        let groups = self.groups.get_mut(&warp)?;
        let finished = groups.len().checked_sub(left as usize)?;
        groups.drain(..finished).next_back()
    }

    /// A bulk copy begins.
    pub fn begin_bulk(&mut self, object: u64, clock: u32, unless_waited_for: Finding) {
        self.bulk.insert(object, (clock, unless_waited_for));
    }

    /// A thread finds a phase of the object complete, and gains this knowledge.
    pub fn learn(&mut self, object: u64, known: &Knowledge) {
        if self.bulk.get(&object).is_some_and(|(clock, _)| known.has(bulk_copies_of(object), *clock)) {
            self.bulk.remove(&object);
        }
    }

    /// The block ends; returns the findings of copies that nothing has waited for.
    pub fn end(&mut self) -> impl Iterator<Item = Finding> {
        std::mem::take(&mut self.bulk).into_values().map(|(_, finding)| finding)
    }
}
