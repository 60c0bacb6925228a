//! A launch while it runs: which blocks are resident, and how it ends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sass::Arch;

use crate::clock::StallBudget;
use crate::gpu::sm::block::Block;
use crate::gpu::sm::bound::Bound;
use crate::gpu::sm::code::Code;
use crate::gpu::sm::code_map::CodeMap;
use crate::gpu::sm::environment::Environment;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::launch::{Config, Launch, Schedule};
use crate::gpu::sm::translate::extend;
use crate::gpu::sm::warp::Path;

/// A running launch, shared by its workers.
pub(crate) struct Grid<'a> {
    pub env: Environment<'a>,
    pub schedule: Schedule,
    bound: RwLock<Arc<Bound>>,
    /// Blocks started.
    started: AtomicU64,
    finished: AtomicU64,
    /// Blocks that fit the modelled GPU at once.
    limit: u64,
    stall: StallBudget,
    fault: Mutex<Option<Fault>>,
}

impl<'a> Grid<'a> {
    pub fn new(env: Environment<'a>, config: &Config, code: Arc<Code>) -> Self {
        let bound = Arc::new(Bound::new(code, env.memory, env.launch, env.target));
        Grid {
            schedule: config.schedule,
            bound: RwLock::new(bound),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            limit: resident_blocks(env.launch),
            stall: env.clock.stall_budget(config.stall_budget),
            fault: Mutex::new(None),
            env,
        }
    }

    /// The program as it is now.
    pub fn bound(&self) -> Arc<Bound> {
        self.bound.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds what an indirect jump leads to.
    pub fn extend(&self, va: u64) {
        let env = &self.env;
        let mut bound = self.bound.write().unwrap_or_else(PoisonError::into_inner);
        if bound.code.map.index_of(va).is_none() {
            let mut code = Code::clone(&bound.code);
            extend(&mut code, env.memory, env.target, va);
            *bound = Arc::new(Bound::new(Arc::new(code), env.memory, env.launch, env.target));
        }
    }

    /// Ends the launch with an error, unless it has one.
    pub fn fail(&self, fault: Fault) {
        self.env.failed.store(true, Relaxed);
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// The number of the next block, if there is one and it fits beside those that run.
    pub fn take_block(&self) -> Option<u64> {
        let total = self.env.launch.blocks();
        self.started
            .fetch_update(Relaxed, Relaxed, |n| {
                (n < total && n - self.finished.load(Relaxed).min(n) < self.limit).then_some(n + 1)
            })
            .ok()
    }

    /// Whether every block was started.
    pub fn all_started(&self) -> bool {
        self.started.load(Relaxed) >= self.env.launch.blocks()
    }

    /// A block is done; its last time slice took `instructions`.
    pub fn finish(&self, instructions: u64) {
        self.finished.fetch_add(1, Relaxed);
        self.stall.progress(instructions);
    }

    /// A time slice of a block took `instructions` and did not end it.
    pub fn spend(&self, instructions: u64, block: &Block, map: &CodeMap) {
        if let Some(stalled) = self.stall.spend(instructions) {
            self.fail(self.stall_report(block, map, stalled));
        }
    }

    fn stall_report(&self, block: &Block, map: &CodeMap, stalled: u64) -> Fault {
        let (warp, path) = block
            .warps
            .iter()
            .find_map(|w| w.paths.first().map(|p| (w.index, *p)))
            .unwrap_or((0, Path { pc: 0, mask: 0 }));
        let resident = self.started.load(Relaxed) - self.finished.load(Relaxed);
        Fault {
            code: esr::NONE,
            pc: map.va(path.pc),
            block: block.id,
            sm: block.sm,
            warp,
            lanes: path.mask,
            address: None,
            mmu: None,
            text: format!(
                "hung: no block finished within {stalled} warp instructions; {resident} blocks are resident, of {} in the grid and {} \
                 that fit",
                self.env.launch.blocks(),
                self.limit
            ),
        }
    }

    /// The first fault, if the launch failed.
    pub fn into_fault(self) -> (Option<Fault>, Arc<Code>) {
        let code = self.bound().code.clone();
        (self.fault.into_inner().unwrap_or_else(PoisonError::into_inner), code)
    }
}

/// Most blocks of an SM (CUDA C++ programming guide, technical specifications per compute capability).
fn most_blocks(arch: Arch) -> u32 {
    match arch {
        Arch::Sm80 | Arch::Sm90 => 32,
        Arch::Sm86 | Arch::Sm87 => 16,
        Arch::Sm89 => 24,
    }
}

/// Blocks that the modelled GPU holds at once: by warps, registers (64 Ki per SM) and shared memory.
fn resident_blocks(launch: &Launch) -> u64 {
    let warps = launch.warps_per_block().max(1);
    let by_warps = launch.max_warps_per_sm.max(1) / warps;
    let registers = launch.registers.max(1).next_multiple_of(8) * 32 * warps;
    let by_registers = 65_536 / registers.max(1);
    let by_shared = launch.shared_bytes_per_sm / launch.shared_bytes.max(1);
    let per_sm = by_warps.min(by_registers).min(by_shared).clamp(1, most_blocks(launch.arch));
    u64::from(per_sm) * u64::from(launch.sm_count.max(1))
}
