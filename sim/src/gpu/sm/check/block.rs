//! State of a block for the checks: accesses to its shared memory, and the barriers that ordered its warps.

use std::collections::BTreeSet;

use crate::gpu::sm::check::early::EarlyLoads;
use crate::gpu::sm::check::objects::Objects;
use crate::gpu::sm::check::order::{Clocks, Knowledge};
use crate::gpu::sm::check::products::Products;
use crate::gpu::sm::check::shadow::Shadow;
use crate::gpu::sm::check::unfinished::UnfinishedCopies;

/// A block while it is checked.
#[derive(Debug, Default)]
pub(super) struct BlockWatch {
    /// Of its warps.
    pub clocks: Clocks,
    pub shadow: Shadow,
    /// Loads that are not in `shadow` yet.
    pub early: EarlyLoads,
    pub objects: Objects,
    /// Offsets of the barrier objects that threads have arrived at.
    pub met: BTreeSet<u32>,
    /// Copies to shared memory that no warp has waited for.
    pub unfinished: UnfinishedCopies,
    /// Products of matrices in shared memory that warps have not waited for.
    pub products: Products,
    /// Arrivals at each barrier, phase by phase.
    barriers: [Vec<Knowledge>; 16],
    /// Phases that warps wait for: warp, barrier, phase.
    waiting: Vec<(u32, usize, usize)>,
}

impl BlockWatch {
    /// A warp arrives at a barrier, which begins a phase with it if `first`, and waits or not.
    pub fn arrive(&mut self, warp: u32, barrier: usize, first: bool, waits: bool) {
        let passed = self.clocks.release(warp);
        let phases = &mut self.barriers[barrier & 15];
        if first || phases.is_empty() {
            phases.push(Knowledge::default());
        }
        let phase = phases.len() - 1;
        phases[phase].join(&passed);
        if waits {
            self.waiting.push((warp, barrier & 15, phase));
        }
    }

    /// A warp runs again: the barriers it waited for are complete.
    pub fn resume(&mut self, warp: u32) {
        let BlockWatch { clocks, barriers, waiting, .. } = self;
        waiting.retain(|&(waiter, barrier, phase)| {
            if waiter == warp {
                clocks.acquire(warp, &barriers[barrier][phase]);
            }
            waiter != warp
        });
    }

    /// A warp finds a phase of a barrier object complete; whether there is one.
    pub fn learn(&mut self, warp: u32, object: u64) -> bool {
        let Some(known) = self.objects.completed(object) else { return false };
        self.clocks.acquire(warp, known);
        self.unfinished.learn(object, known);
        true
    }
}
