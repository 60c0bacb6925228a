//! A launch while it runs: which blocks are resident, in which order they get time, and how it ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use sass::Word;

use crate::gpu::sm::block::Block;
use crate::gpu::sm::code::{Bound, Code, Target};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::counters::Counters;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::l2::L2;
use crate::gpu::sm::launch::{Config, Launch, Memory, Schedule};
use crate::gpu::sm::run::SliceEnd;

/// The order in which a worker gives out time.
#[derive(Debug)]
pub(crate) struct Order {
    /// State of a xorshift generator; 0 stands for the fixed order.
    seed: u64,
}

impl Order {
    pub fn new(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Shuffled(seed) => Order { seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 },
            Schedule::Parallel | Schedule::Deterministic => Order { seed: 0 },
        }
    }

    fn next(&mut self, n: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as usize % n
    }

    /// The path to run next, out of `n`.
    pub fn pick(&mut self, n: usize) -> usize {
        if self.seed == 0 { n - 1 } else { self.next(n) }
    }

    /// The warp to run at place `i` of `n`.
    pub fn warp(&mut self, i: usize, n: usize) -> usize {
        if self.seed == 0 { i } else { self.next(n) }
    }

    /// Jumps that a path may take at a stretch.
    pub fn fuel(&mut self, usual: u32) -> u32 {
        if self.seed == 0 { usual } else { 1 + self.next(64) as u32 }
    }

    /// Instructions that a block may run at a stretch.
    pub fn slice(&mut self, usual: u64) -> u64 {
        if self.seed == 0 { usual } else { 1 + self.next(5000) as u64 }
    }

    /// Whether to go on with another block although this one could.
    fn exchange(&mut self) -> bool {
        self.seed != 0 && self.next(2) == 0
    }
}

/// A running launch.
pub(crate) struct Grid<'a> {
    pub launch: &'a Launch,
    pub memory: &'a dyn Memory,
    pub target: Target,
    /// What counts DRAM traffic, if anything does.
    pub l2: Option<&'a L2>,
    schedule: Schedule,
    stop: &'a AtomicBool,
    bound: RwLock<Arc<Bound>>,
    /// Blocks handed out.
    started: AtomicU64,
    finished: AtomicU64,
    /// Blocks that fit the modelled GPU at once.
    limit: u64,
    stall_budget: u64,
    /// Warp instructions since the last block finished.
    stalled: AtomicU64,
    failed: AtomicBool,
    fault: Mutex<Option<Fault>>,
}

impl<'a> Grid<'a> {
    pub fn new(
        launch: &'a Launch,
        memory: &'a dyn Memory,
        target: Target,
        config: &Config,
        l2: Option<&'a L2>,
        code: Arc<Code>,
        stop: &'a AtomicBool,
    ) -> Self {
        let bound = Arc::new(Bound::new(code, memory, launch, target));
        Grid {
            launch,
            memory,
            target,
            l2,
            schedule: config.schedule,
            stop,
            bound: RwLock::new(bound),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            limit: resident_blocks(launch),
            stall_budget: config.stall_budget,
            stalled: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            fault: Mutex::new(None),
        }
    }

    /// The program as it is now.
    pub fn bound(&self) -> Arc<Bound> {
        self.bound.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds what an indirect jump leads to.
    pub fn extend(&self, va: u64) {
        let mut bound = self.bound.write().unwrap_or_else(PoisonError::into_inner);
        if bound.code.index_of(va).is_none() {
            let mut code = Code::clone(&bound.code);
            code.extend(self.memory, self.target, va);
            *bound = Arc::new(Bound::new(Arc::new(code), self.memory, self.launch, self.target));
        }
    }

    /// An instruction as text.
    pub fn text(&self, word: u128, va: u64) -> String {
        match sass::decode(self.target.arch, Word(word)) {
            Ok(i) => i.text(va),
            Err(e) => e.to_string(),
        }
    }

    /// Whether the launch is to end early.
    pub fn is_stopping(&self) -> bool {
        self.failed.load(Relaxed) || self.stop.load(Relaxed)
    }

    fn fail(&self, fault: Fault) {
        self.failed.store(true, Relaxed);
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// The number of the next block, if there is one and it fits beside those that run.
    fn take_block(&self) -> Option<u64> {
        let total = self.launch.blocks();
        self.started
            .fetch_update(Relaxed, Relaxed, |n| {
                (n < total && n - self.finished.load(Relaxed).min(n) < self.limit).then_some(n + 1)
            })
            .ok()
    }

    /// Runs blocks until none is left.
    pub fn work(&self) -> Counters {
        let mut core = Core::new(self);
        let mut order = Order::new(self.schedule);
        let mut queue: VecDeque<Block> = VecDeque::new();
        let mut spare = Block::default();
        // A new block is begun only when those at hand have had a turn: a block that runs to its end keeps the caches warm.
        let mut want_new = true;
        while !self.is_stopping() {
            let mut block = None;
            if want_new || queue.is_empty() {
                block = self.take_block().map(|index| {
                    let mut b = std::mem::take(&mut spare);
                    b.start(self.launch, index, core.bound.code.layout.len());
                    b
                });
            }
            let Some(block) = block.or_else(|| queue.pop_front()) else {
                if self.started.load(Relaxed) >= self.launch.blocks() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(20));
                continue;
            };
            core.block = block;
            core.tlb.refresh();
            let before = core.counters.warp_instructions;
            let end = core.run_block(&mut order);
            let mut block = std::mem::take(&mut core.block);
            block.instructions += core.counters.warp_instructions - before;
            match end {
                SliceEnd::Done => {
                    let busiest = &mut core.counters.busiest_block_instructions;
                    *busiest = block.instructions.max(*busiest);
                    core.counters.blocks += 1;
                    core.counters.warps += block.warps.len() as u64;
                    spare = block;
                    self.finished.fetch_add(1, Relaxed);
                    self.stalled.store(0, Relaxed);
                    want_new = queue.is_empty() || order.exchange();
                }
                SliceEnd::Yielded => {
                    let spent = core.counters.warp_instructions - before;
                    let stalled = self.stalled.fetch_add(spent, Relaxed) + spent;
                    if self.stall_budget != 0 && stalled > self.stall_budget {
                        self.fail(self.stall_report(&core, &block, stalled));
                    }
                    queue.push_back(block);
                    want_new = true;
                }
                SliceEnd::Fault => {
                    if let Some(fault) = core.fault.take() {
                        self.fail(*fault);
                    }
                }
            }
        }
        core.counters
    }

    fn stall_report(&self, core: &Core<'_>, block: &Block, stalled: u64) -> Fault {
        let (warp, path) = block
            .warps
            .iter()
            .find_map(|w| w.paths.first().map(|p| (w.index, *p)))
            .unwrap_or((0, crate::gpu::sm::warp::Path { pc: 0, mask: 0 }));
        let resident = self.started.load(Relaxed) - self.finished.load(Relaxed);
        Fault {
            code: esr::NONE,
            pc: core.bound.code.vas.get(path.pc as usize).copied().unwrap_or(0),
            block: block.id,
            sm: block.sm,
            warp,
            lanes: path.mask,
            address: None,
            mmu: None,
            text: format!(
                "hung: no block finished within {stalled} warp instructions; {resident} blocks are resident, of {} in the grid and {} \
                 that fit",
                self.launch.blocks(),
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

/// Blocks that the modelled GPU holds at once: by warps, registers (64 Ki per SM) and shared memory.
fn resident_blocks(launch: &Launch) -> u64 {
    let warps = launch.warps_per_block().max(1);
    let by_warps = launch.max_warps_per_sm.max(1) / warps;
    let registers = launch.registers.max(1).next_multiple_of(8) * 32 * warps;
    let by_registers = 65_536 / registers.max(1);
    let by_shared = launch.shared_bytes_per_sm / launch.shared_bytes.max(1);
    let per_sm = by_warps.min(by_registers).min(by_shared).clamp(1, 16);
    u64::from(per_sm) * u64::from(launch.sm_count.max(1))
}
