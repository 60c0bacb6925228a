//! The loops that run a path, a warp and a block.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::grid::Order;
use crate::gpu::sm::lanes::Isa;
use crate::gpu::sm::warp::Path;

/// Taken jumps after which a path gives way to others.
const FUEL: u32 = 4096;
/// Warp instructions after which a block gives way to others.
const SLICE: u64 = 400_000;

/// How a block's time slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceEnd {
    /// All its threads have exited.
    Done,
    /// It can go on later.
    Yielded,
    /// `core.fault` is set.
    Fault,
}

/// Runs the current path until it ends, waits or must give way.
#[inline(always)]
fn path_loop(core: &mut Core<'_>) -> Flow {
    let ops = core.bound.ops().as_ptr();
    let (mut issued, mut lanes) = (0u64, 0u64);
    let flow = loop {
        // SAFETY: `pc` is the index of an op: jumps only go to ops that exist, and lowering ends every run of ops with one that does
        // not continue with the next. Ops do not exchange `core.bound`, which owns them.
        let op = unsafe { &*ops.add(core.pc as usize) };
        let mask = core.active & (core.warp.preds[usize::from(op.guard & 31)] ^ op.guard_xor);
        issued += 1;
        if mask == 0 {
            core.pc += 1;
            continue;
        }
        lanes += u64::from(mask.count_ones());
        core.mask = mask | op.widen;
        // SAFETY: the op was made for the features of this host (`Isa::detect`).
        match unsafe { (op.run)(core, op) } {
            Flow::Next => core.pc += 1,
            Flow::Jump => {
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
fn path_loop_avx2(core: &mut Core<'_>) -> Flow {
    path_loop(core)
}

fn run_path(core: &mut Core<'_>) -> Flow {
    match core.grid.target.isa {
        Isa::Baseline => path_loop(core),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::detect` found the features.
        Isa::Avx2 => unsafe { path_loop_avx2(core) },
    }
}

impl Core<'_> {
    /// Gives each path of the current warp a turn. `false`: a fault.
    fn run_warp(&mut self, order: &mut Order) -> bool {
        self.attach();
        let mut yields = 0;
        while !self.warp.paths.is_empty() {
            let pick = order.pick(self.warp.paths.len());
            let path = self.warp.paths.remove(pick);
            (self.pc, self.active, self.fuel) = (path.pc, path.mask, order.fuel(FUEL));
            match run_path(self) {
                Flow::Park => self.busy = true,
                Flow::Yield => {
                    // Out of fuel: it computes. Otherwise it said itself that it has nothing to do.
                    self.busy |= self.fuel == 0;
                    self.warp.paths.insert(0, Path { pc: self.pc, mask: self.active });
                    yields += 1;
                    if yields >= self.warp.paths.len() {
                        break;
                    }
                }
                Flow::Missing => {
                    self.warp.paths.push(Path { pc: self.pc, mask: self.active });
                    self.grid.extend(self.missing);
                    self.bound = self.grid.bound();
                    self.attach();
                }
                Flow::Fault => return false,
                Flow::Next | Flow::Jump => unreachable!("the path loop goes on after these"),
            }
        }
        true
    }

    /// Runs the current block for a while.
    pub fn run_block(&mut self, order: &mut Order) -> SliceEnd {
        let start = self.counters.warp_instructions;
        let slice = order.slice(SLICE);
        loop {
            let mut ran = false;
            self.busy = false;
            for i in 0..self.block.warps.len() {
                let i = order.warp(i, self.block.warps.len());
                if !self.block.warps[i].is_runnable() {
                    continue;
                }
                ran = true;
                std::mem::swap(&mut self.warp, &mut self.block.warps[i]);
                let fine = self.run_warp(order);
                std::mem::swap(&mut self.warp, &mut self.block.warps[i]);
                if !fine {
                    return SliceEnd::Fault;
                }
            }
            if self.block.warps.iter().all(|w| w.is_done()) {
                return SliceEnd::Done;
            }
            if !ran && !self.block.warps.iter().any(|w| w.is_runnable()) {
                let text = format!("deadlock: {}", self.block.describe(&self.bound.code.vas));
                let waiting =
                    self.block.warps.iter().flat_map(|w| w.waiting.first().map(|x| (w.index, *x))).next();
                if let Some((warp, w)) = waiting {
                    self.warp.index = warp;
                    self.pc = w.pc - 1;
                    self.raise_text(esr::NONE, w.mask, None, None, text);
                    return SliceEnd::Fault;
                }
            }
            // A block that only waits for others lets them run.
            if !self.busy || self.counters.warp_instructions - start >= slice || self.grid.is_stopping() {
                return SliceEnd::Yielded;
            }
        }
    }
}
