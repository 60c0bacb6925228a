//! A worker: the loops that run a path, a warp, a block, and blocks until none is left.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::gpu::sm::block::Block;
use crate::gpu::sm::bound::Bound;
use crate::gpu::sm::check::Watch;
use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::counters::Counters;
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::grid::Grid;
use crate::gpu::sm::lanes::Isa;
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::order::Order;
use crate::gpu::sm::warp::Path;

/// Taken jumps after which a path gives way to others.
const FUEL: u32 = 4096;
/// Warp instructions after which a block gives way to others.
const SLICE: u64 = 400_000;

/// One of so many time slices, by chance, ends with the block's late stores visible: they do not stay hidden
/// for ever.
const SHOWN: usize = 4;

/// End of a block's time slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceEnd {
    /// All its threads have exited.
    Done,
    /// It can go on later.
    Yielded,
    /// The core holds the fault.
    Fault,
}

/// Observer of each operation before it runs.
trait Observe {
    fn before(&mut self, core: &mut Core<'_>, op: &MicroOp);
}

/// Nothing does: the loop is compiled without it.
struct Nobody;

impl Observe for Nobody {
    #[inline(always)]
    fn before(&mut self, _: &mut Core<'_>, _: &MicroOp) {}
}

impl Observe for Watch {
    #[inline(always)]
    fn before(&mut self, core: &mut Core<'_>, op: &MicroOp) {
        Watch::before(self, core, op);
    }
}

/// Runs the current path until it ends, waits or must give way.
#[inline(always)]
fn path_loop(core: &mut Core<'_>, ops: &[MicroOp], observer: &mut impl Observe) -> Flow {
    let ops = ops.as_ptr();
    let (mut issued, mut lanes) = (0u64, 0u64);
    // Kept in a register too: the next op does not wait for the last one's way through memory.
    let mut pc = core.pc;
    let flow = loop {
        // SAFETY: `pc` is the index of an op: jumps only go to ops that exist, and lowering ends every run of
        // ops with one that does not continue with the next. The caller keeps the ops borrowed.
        let op = unsafe { &*ops.add(pc as usize) };
        let mask = core.active & (core.warp.preds[usize::from(op.guard & 31)] ^ op.guard_xor);
        issued += 1;
        if mask == 0 {
            pc += 1;
            continue;
        }
        core.pc = pc;
        lanes += u64::from(mask.count_ones());
        core.mask = mask | op.widen;
        observer.before(core, op);
        // SAFETY: the op was made for the features of this host (`Isa::detect`).
        match unsafe { (op.run)(core, op) } {
            Flow::Next => pc += 1,
            Flow::Jump => {
                pc = core.pc;
                core.fuel -= 1;
                if core.fuel == 0 {
                    break Flow::Yield;
                }
            }
            other => break other,
        }
    };
    core.counters.warp_instructions += issued;
    core.counters.thread_instructions += lanes;
    flow
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
fn path_loop_avx2(core: &mut Core<'_>, ops: &[MicroOp], observer: &mut impl Observe) -> Flow {
    path_loop(core, ops, observer)
}

fn run_path(core: &mut Core<'_>, ops: &[MicroOp], observer: &mut impl Observe) -> Flow {
    match core.env.target.isa {
        Isa::Baseline => path_loop(core, ops, observer),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::detect` found the features.
        Isa::Avx2 | Isa::Avx512 => unsafe { path_loop_avx2(core, ops, observer) },
    }
}

/// One worker of a launch.
pub(crate) struct Worker<'a> {
    grid: &'a Grid<'a>,
    bound: Arc<Bound>,
    core: Core<'a>,
    order: Order,
    /// Checks of the kernel, if any: then this is the only worker.
    watch: Option<Box<Watch>>,
}

impl<'a> Worker<'a> {
    pub fn new(grid: &'a Grid<'a>) -> Self {
        let (bound, mut core) = (grid.bound(), Core::new(&grid.env));
        core.bind(&bound.pool, &bound.code.map);
        Worker { grid, bound, core, order: grid.order(), watch: grid.watch() }
    }

    /// Runs blocks until none is left, or until the launch is preempted.
    pub fn run(mut self) -> Counters {
        let mut queue: VecDeque<Block> = VecDeque::new();
        let mut spare = Block::default();
        // A new block is begun only when those at hand have had a turn: a block that runs to its end keeps
        // the caches warm.
        let mut want_new = true;
        while !self.grid.env.is_stopping() {
            let mut block = None;
            if want_new || queue.is_empty() {
                block = self.grid.unpark().or_else(|| {
                    let index = self.grid.take_block()?;
                    let mut block = std::mem::take(&mut spare);
                    block.start(self.grid.env.launch, index, self.bound.code.layout, self.grid.env.fresh());
                    Some(block)
                });
            }
            let Some(block) = block.or_else(|| queue.pop_front()) else {
                if self.grid.all_started() {
                    break;
                }
                if self.grid.is_preempted() || self.grid.is_held() {
                    break;
                }
                // Other workers hold all the blocks that fit.
                std::thread::sleep(Duration::from_micros(20));
                continue;
            };
            self.core.block = block;
            self.core.tlb.refresh();
            if let Some(watch) = &mut self.watch {
                watch.exchange_block(&mut self.core);
            }
            let before = self.core.counters.warp_instructions;
            let stores = self.core.counters.global_stores;
            let end = self.run_block();
            self.leave_block();
            let spent = self.core.counters.warp_instructions - before;
            let mut block = std::mem::take(&mut self.core.block);
            block.instructions += spent;
            match end {
                SliceEnd::Done => {
                    let counters = &mut self.core.counters;
                    counters.busiest_block_instructions =
                        block.instructions.max(counters.busiest_block_instructions);
                    counters.blocks += 1;
                    if let Some(watch) = &mut self.watch {
                        watch.end_block(block.index);
                    }
                    counters.warps += block.warps.len() as u64;
                    spare = block;
                    self.grid.finish(spent);
                    want_new = queue.is_empty() || self.order.exchange();
                }
                SliceEnd::Yielded => {
                    let stored = self.core.counters.global_stores != stores;
                    let (core, watch) = (&self.core, self.watch.as_mut());
                    let tell = || watch.is_some_and(|watch| watch.stalled(core, &block));
                    self.grid.spend(spent, stored, (&block, &core.map), tell);
                    queue.push_back(block);
                    want_new = true;
                }
                SliceEnd::Fault => {
                    if let Some(mut fault) = self.core.fault.take() {
                        let core = &self.core;
                        if let Some(watch) = &mut self.watch {
                            watch.faulted(core, block.index, &mut fault);
                        }
                        self.grid.fail(fault.with_state(core.env.launch, &block, &core.map, core.active));
                    }
                }
            }
            if self.grid.is_preempted() {
                break;
            }
        }
        if let Some(watch) = &mut self.watch
            && (self.grid.env.is_stopping() || (queue.is_empty() && self.grid.all_started()))
        {
            watch.end(&mut self.core);
        }
        self.grid.park(queue, self.order, self.watch);
        self.core.counters
    }

    /// The current block's time slice has ended: its late stores stay its own, unless chance shows them.
    fn leave_block(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if watch.delays_stores() && self.order.pick(SHOWN) == 0 {
            watch.show(&self.core);
        }
        watch.exchange_block(&mut self.core);
        if watch.hides_ended_block() && self.order.pick(SHOWN) == 0 {
            watch.show_ended_blocks(&mut self.core);
        }
    }

    /// Gives each path of the current warp a turn. `false`: a fault.
    ///
    /// Lanes that park end their path, not their turn: what they, or lanes that they release, do next uses
    /// the same fuel. So a loop that diverges and reconverges ends its turn as any other does.
    fn run_warp(&mut self) -> bool {
        self.core.attach();
        let mut yields = 0;
        let mut fuel = self.order.fuel(FUEL);
        while !self.core.warp.paths.is_empty() {
            let core = &mut self.core;
            let pick = self.order.pick(core.warp.paths.len());
            let resting = std::mem::take(&mut core.warp.resting);
            let pick = match resting {
                0 => pick,
                _ => core.warp.paths.iter().position(|p| p.mask == resting).unwrap_or(pick),
            };
            let path = core.warp.paths.remove(pick);
            (core.pc, core.active, core.fuel) = (path.pc, path.mask, fuel);
            let flow = match &mut self.watch {
                Some(watch) => run_path(core, self.bound.ops(), &mut **watch),
                None => run_path(core, self.bound.ops(), &mut Nobody),
            };
            match flow {
                Flow::Park => {
                    core.busy = true;
                    fuel = core.fuel - 1;
                    if fuel == 0 {
                        if core.env.is_stopping() {
                            break;
                        }
                        // The lanes released last run first: without this, others might never.
                        if let Some(last) = core.warp.paths.pop() {
                            core.warp.paths.insert(0, last);
                        }
                        fuel = self.order.fuel(FUEL);
                        yields += 1;
                        if yields >= core.warp.paths.len() {
                            break;
                        }
                    }
                }
                Flow::Yield => {
                    fuel = self.order.fuel(FUEL);
                    // Out of fuel: it computes. Otherwise it said itself that it has nothing to do.
                    core.busy |= core.fuel == 0;
                    core.warp.paths.insert(0, Path { pc: core.pc, mask: core.active });
                    yields += 1;
                    if yields >= core.warp.paths.len() {
                        break;
                    }
                }
                Flow::Rest => {
                    core.warp.resting = core.active;
                    core.warp.paths.push(Path { pc: core.pc, mask: core.active });
                    break;
                }
                Flow::Missing => {
                    fuel = core.fuel;
                    core.warp.paths.push(Path { pc: core.pc, mask: core.active });
                    self.grid.extend(core.missing);
                    self.bound = self.grid.bound();
                    core.bind(&self.bound.pool, &self.bound.code.map);
                }
                Flow::Fault => return false,
                Flow::Next | Flow::Jump => unreachable!("the path loop goes on after these"),
            }
        }
        true
    }

    /// Runs the current block for a while.
    fn run_block(&mut self) -> SliceEnd {
        let start = self.core.counters.warp_instructions;
        let slice = self.order.slice(SLICE);
        loop {
            let mut ran = false;
            self.core.busy = false;
            let warps = self.core.block.warps.len();
            for i in 0..warps {
                let i = self.order.warp(i, warps);
                if !self.core.block.warps[i].is_runnable() {
                    continue;
                }
                ran = true;
                std::mem::swap(&mut self.core.warp, &mut self.core.block.warps[i]);
                let fine = self.run_warp();
                std::mem::swap(&mut self.core.warp, &mut self.core.block.warps[i]);
                if !fine {
                    return SliceEnd::Fault;
                }
                if self.core.env.is_stopping() {
                    return SliceEnd::Yielded;
                }
            }
            let core = &mut self.core;
            if core.block.warps.iter().all(|w| w.is_done()) {
                return SliceEnd::Done;
            }
            if !ran && !core.block.warps.iter().any(|w| w.is_runnable()) && report_deadlock(core) {
                if let Some(watch) = &mut self.watch {
                    watch.stuck(core);
                }
                return SliceEnd::Fault;
            }
            // A block that only waits for others lets them run.
            let spent = core.counters.warp_instructions - start;
            if !core.busy || spent >= slice || core.env.is_hurried() {
                return SliceEnd::Yielded;
            }
        }
    }
}

/// Records that no warp of the current block can go on; false when none waits either.
fn report_deadlock(core: &mut Core<'_>) -> bool {
    let waiting = core.block.warps.iter().find_map(|w| w.waiting.first().map(|x| (w.index, *x)));
    let Some((warp, w)) = waiting else { return false };
    let text = format!("deadlock: {}", core.block.describe(&core.map));
    core.warp.index = warp;
    core.pc = w.pc - 1;
    core.raise_text(esr::NONE, w.mask, None, None, text);
    true
}
