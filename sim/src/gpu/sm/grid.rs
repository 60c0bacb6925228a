//! A launch while it runs: which blocks are resident, and how it ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::clock::StallBudget;
use crate::findings::Checks;
use crate::gpu::sm::block::Block;
use crate::gpu::sm::bound::Bound;
use crate::gpu::sm::check::Watch;
use crate::gpu::sm::code::Code;
use crate::gpu::sm::code_map::CodeMap;
use crate::gpu::sm::environment::Environment;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::launch::{Config, Launch, Schedule};
use crate::gpu::sm::order::Order;
use crate::gpu::sm::translate::extend;
use crate::gpu::sm::warp::Path;

/// Warp instructions that a launch runs before another channel may have the SMs: some milliseconds, as a
/// time slice of the real runlist.
const TIME_SLICE: u64 = 1 << 20;

/// Condition at which a launch gives way.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// Answers whether something else waits for the SMs.
    pub wanted: &'a (dyn Fn() -> bool + Sync),
    /// Answers, for a launch and the number of blocks that were started, whether no further one may start.
    pub hold: &'a (dyn Fn(&Launch, u64) -> bool + Sync),
}

impl Turn<'_> {
    /// A turn that lasts as long as the launch.
    pub const WHOLE: Turn<'static> = Turn { wanted: &|| false, hold: &|_, _| false };
}

/// Progress of a launch: the state that is kept of it while another one has the SMs.
pub(crate) struct Progress {
    bound: RwLock<Arc<Bound>>,
    /// Blocks started.
    started: AtomicU64,
    finished: AtomicU64,
    /// Blocks that fit the modelled GPU at once.
    limit: u64,
    stall: StallBudget,
    /// Blocks that were preempted, the next one first.
    parked: Mutex<VecDeque<Block>>,
    /// Position of a single worker in its order.
    order: Mutex<Order>,
    /// The checks of the kernel.
    watch: Mutex<Option<Box<Watch>>>,
}

impl Progress {
    pub fn new(env: &Environment<'_>, config: &Config, code: Arc<Code>, watch: Option<Box<Watch>>) -> Self {
        let bound = Arc::new(Bound::new(code, env.memory, env.launch, env.target));
        Progress {
            bound: RwLock::new(bound),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            limit: resident_blocks(env.launch),
            stall: env.clock.stall_budget(config.budget()),
            parked: Mutex::default(),
            order: Mutex::new(Order::new(config.schedule)),
            watch: Mutex::new(watch),
        }
    }

    /// The program as it is now.
    pub fn code(&self) -> Arc<Code> {
        self.bound.read().unwrap_or_else(PoisonError::into_inner).code.clone()
    }

    /// Whether no block has started that has not ended.
    pub fn is_between_blocks(&self) -> bool {
        self.finished.load(Relaxed) >= self.started.load(Relaxed)
    }

    /// Whether every block that has started and not ended can go on.
    pub fn is_intact(&self) -> bool {
        let parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        self.finished.load(Relaxed) + parked >= self.started.load(Relaxed)
    }

    /// Whether every block of the launch has ended.
    pub fn is_complete(&self, launch: &Launch) -> bool {
        self.finished.load(Relaxed) >= launch.blocks()
    }
}

/// A launch while it has the SMs, shared by its workers.
pub(crate) struct Grid<'a> {
    pub env: Environment<'a>,
    progress: &'a Progress,
    /// The condition at which it gives way.
    turn: Turn<'a>,
    /// Warp instructions of a turn.
    time_slice: u64,
    /// Whether time slices may end anywhere: the order of blocks does not matter.
    free_order: bool,
    /// Set when the workers are to park their blocks.
    preempted: AtomicBool,
    /// Warp instructions of this turn.
    spent: AtomicU64,
    fault: Mutex<Option<Fault>>,
}

impl<'a> Grid<'a> {
    pub fn new(env: Environment<'a>, progress: &'a Progress, config: &Config, turn: Turn<'a>) -> Self {
        let time_slice = match config.checks.contains(Checks::ORDER) {
            true => progress.order.lock().unwrap_or_else(PoisonError::into_inner).turn(TIME_SLICE),
            false => TIME_SLICE,
        };
        Grid {
            time_slice,
            free_order: config.schedule == Schedule::Parallel,
            env,
            progress,
            turn,
            preempted: AtomicBool::new(false),
            spent: AtomicU64::new(0),
            fault: Mutex::new(None),
        }
    }

    /// The program as it is now.
    pub fn bound(&self) -> Arc<Bound> {
        self.progress.bound.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The order in which a worker proceeds.
    pub fn order(&self) -> Order {
        self.progress.order.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the checks of the kernel: the first worker gets them.
    pub fn watch(&self) -> Option<Box<Watch>> {
        self.progress.watch.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether the workers are to park their blocks.
    pub fn is_preempted(&self) -> bool {
        self.preempted.load(Relaxed)
    }

    /// A worker stores its blocks, its position in the order, and the checks of the kernel.
    pub fn park(&self, blocks: VecDeque<Block>, order: Order, watch: Option<Box<Watch>>) {
        *self.progress.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
        self.progress.parked.lock().unwrap_or_else(PoisonError::into_inner).extend(blocks);
        *self.progress.order.lock().unwrap_or_else(PoisonError::into_inner) = order;
    }

    /// A block that was preempted.
    pub fn unpark(&self) -> Option<Block> {
        self.progress.parked.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Counts instructions of this turn, and ends it when it was long enough and something else waits.
    fn use_time(&self, instructions: u64) {
        let spent = self.spent.fetch_add(instructions, Relaxed) + instructions;
        if spent >= self.time_slice && !self.is_preempted() {
            if (self.turn.wanted)() {
                self.preempted.store(true, Relaxed);
                self.env.hurry.store(self.free_order, Relaxed);
            } else {
                self.spent.store(0, Relaxed);
            }
        }
    }

    /// Adds the code at the target of an indirect jump.
    pub fn extend(&self, va: u64) {
        let env = &self.env;
        let mut bound = self.progress.bound.write().unwrap_or_else(PoisonError::into_inner);
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

    /// The number of the next block, if there is one that may start and fits beside those that run.
    pub fn take_block(&self) -> Option<u64> {
        if self.is_held() {
            return None;
        }
        let total = self.env.launch.blocks();
        let Progress { started, finished, limit, .. } = self.progress;
        started
            .fetch_update(Relaxed, Relaxed, |n| {
                (n < total && n - finished.load(Relaxed).min(n) < *limit).then_some(n + 1)
            })
            .ok()
    }

    /// Whether no further block may start.
    pub fn is_held(&self) -> bool {
        (self.turn.hold)(self.env.launch, self.progress.started.load(Relaxed))
    }

    /// Whether every block was started.
    pub fn all_started(&self) -> bool {
        self.progress.started.load(Relaxed) >= self.env.launch.blocks()
    }

    /// A block is done; its last time slice took `instructions`.
    pub fn finish(&self, instructions: u64) {
        self.progress.finished.fetch_add(1, Relaxed);
        self.progress.stall.progress(instructions);
        self.use_time(instructions);
    }

    /// A time slice of a block took `instructions`, among them stores or not, and did not end it. The launch fails
    /// if nothing goes on; `tell` is asked whether a check has told why.
    pub fn spend(
        &self,
        instructions: u64,
        stored: bool,
        (block, map): (&Block, &CodeMap),
        tell: impl FnOnce() -> bool,
    ) {
        if let Some(stalled) = self.progress.stall.spend(instructions, stored) {
            let fault = Fault { found: tell(), ..self.stall_report(block, map, stalled) };
            self.fail(fault.with_state(self.env.launch, block, map, 0));
        }
        self.use_time(instructions);
    }

    fn stall_report(&self, block: &Block, map: &CodeMap, stalled: u64) -> Fault {
        let (warp, path) = block
            .warps
            .iter()
            .find_map(|w| w.paths.first().map(|p| (w.index, *p)))
            .unwrap_or((0, Path { pc: 0, mask: 0 }));
        let resident = self.progress.started.load(Relaxed) - self.progress.finished.load(Relaxed);
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
                self.progress.limit
            ),
            found: false,
            place: None,
            state: None,
        }
    }

    /// The first fault, if the launch failed.
    pub fn into_fault(self) -> Option<Fault> {
        self.fault.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks that the modelled GPU holds at once: by warps, registers (64 Ki per SM) and shared memory.
fn resident_blocks(launch: &Launch) -> u64 {
    let warps = launch.warps_per_block().max(1);
    let by_warps = launch.max_warps_per_sm.max(1) / warps;
    let registers = launch.registers.max(1).next_multiple_of(8) * 32 * warps;
    let by_registers = 65_536 / registers.max(1);
    let by_shared = launch.shared_bytes_per_sm / launch.shared_bytes.max(1);
    let per_sm = by_warps.min(by_registers).min(by_shared).clamp(1, launch.arch.max_blocks());
    u64::from(per_sm) * u64::from(launch.sm_count.max(1))
}
