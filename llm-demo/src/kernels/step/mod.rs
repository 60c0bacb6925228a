//! The decode step: one kernel that works through a list of phases.
//!
//! A phase is a record in device memory ([`Task`]): a row of the embedding; matrices times a vector, with what comes before
//! (norm, integers) and after (residual, gate, rotation and cache, the choice of a token); attention. The kernel runs any range
//! of the list. Launched once with all of it, it is the whole step, and blocks wait for each other between phases through a
//! counter in device memory; launched once per phase, the same code gives the same bits with an ordinary end of a launch in
//! between. The weights of a phase do not depend on the phase before: each warp starts to load its first tile before it waits,
//! and, if asked to, a phase has the weights of the next one brought to L2 when it has loaded its own.
//!
//! Vectors that every block reads whole and that are short (the residual stream, what attention gives) need no such counter:
//! each value has a flag beside it in the same eight bytes, the number of the step and of the phase that made it, and a reader
//! looks until the flag is there. That saves a fence, an atomic operation and the wait for it. What may be overwritten is safe
//! because every layer has two phases for which all blocks wait, behind every reader.
//!
//! All blocks must be resident together. Waiting is bounded and ends in a trap.

mod attend;
mod input;
mod results;
mod shape;
mod task;
mod tile;

use ptxgen::{Atomic, Cache, Element, Global, Kernel, Pointer, Pred, Reg, Shared, Special};

pub use shape::{Grid, Shape};
pub use task::{Attention, Finish, Heads, Input, MAX_SEGMENTS, Results, Segment, Task, WORDS as TASK_WORDS};

use self::task::at;
use super::format::Format;
use super::state::TOKENS_AT;
use super::state::take_better;

/// Most blocks that there may be.
pub const MAX_BLOCKS: u32 = 512;
/// Words of the synchronization buffer: the blocks' counter, the step's first flag, then values and indices of candidates.
pub const SYNC_WORDS: u32 = CANDIDATES + 2 * MAX_BLOCKS;
const CANDIDATES: u32 = 32;
/// The step's first flag in the synchronization buffer; it must not be 0 at first.
pub const FIRST_FLAG_AT: u32 = 1;
/// Flags of a step, all numbers below this.
pub const FLAGS_PER_STEP: u32 = 4096;
/// Marks per phase in the buffer of times.
pub const MARKS: u32 = 8;
/// Looks at the counter before a block goes to sleep in between, and after which it gives up: some seconds.
const LOOKS: u32 = 4;
const MOST_LOOKS: u32 = 1 << 24;

/// The formats that one step kernel can take, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its module.
    pub module: &'static str,
    /// Last part of the kernel's name.
    pub name: &'static str,
    /// What the matrices may be.
    pub formats: &'static [Format],
}

/// The step kernels there are, the more special ones first.
pub const VARIANTS: &[Variant] = &[
    Variant { module: "step_f32", name: "f32", formats: &[Format::F32] },
    Variant { module: "step_f16", name: "f16", formats: &[Format::F16] },
    Variant { module: "step_bf16", name: "bf16", formats: &[Format::Bf16] },
    Variant { module: "step_q8_0", name: "q8_0", formats: &[Format::Q8_0] },
    Variant { module: "step_q6_k", name: "q6_k", formats: &[Format::Q6K] },
    Variant { module: "step_q4_0", name: "q4_0", formats: &[Format::Q4_0, Format::Q6K] },
    Variant { module: "step_q4_k", name: "q4_k", formats: &[Format::Q4K, Format::Q6K] },
    Variant { module: "step_q5_k", name: "q5_k", formats: &[Format::Q5K, Format::Q6K] },
];

impl Variant {
    /// The kernel's name.
    pub fn kernel_name(&self, shape: Shape) -> String {
        format!("step_{}{}", self.name, shape.suffix())
    }

    /// The first that takes all of `formats`.
    pub fn for_formats(formats: &[Format]) -> Option<Self> {
        VARIANTS.iter().copied().find(|v| formats.iter().all(|f| v.formats.contains(f)))
    }
}

/// What the code of a phase works with.
struct Step<'a> {
    k: &'a Kernel,
    formats: &'static [Format],
    shape: Shape,
    tid: Reg<u32>,
    lane: Reg<u32>,
    warp: Reg<u32>,
    block: Reg<u32>,
    blocks: Reg<u32>,
    /// Position of the token that is taken in.
    position: Reg<u32>,
    /// The step's first flag.
    first_flag: Reg<u32>,
    /// The record of the phase.
    task: Pointer<Shared, u32>,
    /// Sums of a matrix phase: two per item.
    results: Pointer<Shared, f32>,
    /// Input of a matrix phase, or scratch.
    inputs: Pointer<Shared, u8>,
    /// Two words per warp.
    squares: Pointer<Shared, f32>,
    state: Pointer<Global, u32>,
    sync: Pointer<Global, u32>,
    /// What the counter has when all blocks have ended the phase before.
    target: Reg<u32>,
    /// Where to put times, and whether this thread does.
    times: Pointer<Global, u32>,
    stamps: Pred,
}

/// The kernel `step_NAME(tasks, state, sync, times, first, last, inputs)`: phases `first` to before `last`; `inputs` is the
/// place of the input in dynamic shared memory, in bytes. `times` may be 0; else block 0 leaves [`MARKS`] clock readings per
/// phase there.
pub fn kernel(variant: &Variant, shape: Shape) -> Kernel {
    let k = Kernel::new(&variant.kernel_name(shape));
    k.max_threads(shape.threads());
    k.min_blocks_per_sm(shape.blocks_per_sm);
    k.keep_loops();
    let tasks = k.param_ptr::<u32>("tasks", 16);
    let state = k.param_ptr::<u32>("state", 16);
    let sync = k.param_ptr::<u32>("sync", 16);
    let times = k.param::<u64>("times");
    let first = k.param::<u32>("first");
    let last = k.param::<u32>("last");
    let inputs = k.param_multiple("inputs", 16);

    let slots = k.shared::<u32>(2 * task::WORDS);
    let squares = k.shared::<f32>(2 * shape.warps);
    let dynamic = k.dynamic_shared::<u8>();
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let (block, blocks) = (k.special(Special::CtaidX), k.special(Special::NctaidX));
    let warp = k.shr(tid, 5);
    let position = k.load(state);
    let first_flag = k.load(sync.plus(i64::from(FIRST_FLAG_AT)));
    let reads = k.lt(tid, task::WORDS);
    let slot = |index: Reg<u32>| k.at(slots, k.scale(k.and(index, 1), task::WORDS));
    let record = |index: Reg<u32>| k.at(k.at(tasks, k.scale(index, task::WORDS)), tid);
    k.if_(reads, || {
        k.store(k.at(slot(first), tid), k.load_with(record(first), 1, Cache::ReadOnly)[0]);
    });
    k.sync_threads();

    let index = k.var(first);
    let (target, arrived) = (k.var(0u32), k.var(0u32));
    let stamps = k.both(k.ne(times, 0u64), k.eq(k.add(block, tid), 0));
    let times = k.pointer::<u32>(times, 4);
    let step = |index: Reg<u32>| Step {
        k: &k,
        formats: variant.formats,
        shape,
        tid,
        lane,
        warp,
        block,
        blocks,
        position,
        first_flag,
        task: slot(index),
        results: dynamic.cast(),
        inputs: k.at(dynamic, inputs),
        squares,
        state,
        sync,
        target,
        times: k.at(times, k.scale(index, MARKS)),
        stamps,
    };
    k.loop_(|l| {
        let s = step(index);
        let following = k.add(index, 1);
        let more = k.lt(following, last);
        let next = k.var(0u32);
        k.if_(k.both(reads, more), || k.set(next, k.load_with(record(following), 1, Cache::ReadOnly)[0]));
        s.stamp(0);
        let kind = s.word(at::KIND);
        k.if_(k.eq(kind, task::MATVEC), || s.multiply_matrices());
        k.if_(k.eq(kind, task::ATTENTION), || s.attend());
        k.if_(k.eq(kind, task::EMBED), || s.embed());
        k.if_(reads, || k.store(k.at(slot(following), tid), next));
        s.stamp(4);
        k.sync_threads();
        let arrives = k.either(s.is_set(task::ARRIVES), k.unless(more));
        k.if_(arrives, || {
            k.if_(k.eq(tid, 0), || {
                k.fence();
                k.set(arrived, k.atomic(sync, Atomic::Add, 1u32));
            });
            k.add_to(target, blocks);
        });
        s.stamp(5);
        k.set(index, following);
        k.break_if(l, k.ge(index, last));
    });
    step(k.sub(index, 1)).finish(arrived);
    k
}

impl Step<'_> {
    fn word(&self, at: i64) -> Reg<u32> {
        self.k.load(self.task.plus(at))
    }

    /// An address in the record, of something that is aligned to 16 bytes.
    fn address<E: Element>(&self, at: i64) -> Pointer<Global, E> {
        self.k.pointer(self.k.load(self.task.plus(at).cast::<u64>()), 16)
    }

    /// Leaves the clock in the buffer of times.
    fn stamp(&self, mark: i64) {
        let k = self.k;
        k.if_(self.stamps, || k.store(self.times.plus(mark), k.special(Special::Clock)));
    }

    /// Values and indices of the blocks' candidates for the next token.
    fn candidates(&self) -> (Pointer<Global, f32>, Pointer<Global, u32>) {
        let values = self.sync.plus(i64::from(CANDIDATES));
        (values.cast(), values.plus(i64::from(MAX_BLOCKS)))
    }

    fn is_set(&self, flag: u32) -> Pred {
        self.k.ne(self.k.and(self.word(at::FLAGS), flag), 0)
    }

    /// Waits until all blocks have ended the phases that are waited for, and sees what they wrote.
    fn wait(&self) {
        let k = self.k;
        k.if_(k.both(k.eq(self.tid, 0), k.ne(self.target, 0)), || {
            self.look(|| k.ge(k.load_acquire(self.sync), self.target));
        });
        k.sync_threads();
    }

    /// Repeats `look` until it says that it has seen what it looked for.
    fn look(&self, look: impl FnOnce() -> Pred) {
        let k = self.k;
        let looks = k.var(0u32);
        k.loop_(|l| {
            let seen = look();
            k.break_if(l, seen);
            k.add_to(looks, 1);
            k.if_(k.gt(looks, LOOKS), || {
                k.if_(k.gt(looks, MOST_LOOKS), || k.trap());
                k.sleep(32);
            });
        });
    }

    /// Stores one value, or two from an even index on, of the phase's flagged results.
    fn store_flagged(&self, index: Reg<u32>, values: &[Reg<f32>]) {
        let k = self.k;
        let flag = k.add(self.first_flag, self.word(at::OUTPUT_FLAG));
        let index = k.scale(k.halve(index, values.len().trailing_zeros()), values.len() as u32);
        let words: Vec<Reg<u32>> = values.iter().flat_map(|v| [k.bits(*v), flag]).collect();
        k.store_relaxed(k.at_stride(self.address::<u32>(at::OUT), index, 8), &words);
    }

    /// Runs the code for the format whose number is in `format`.
    fn by_format(&self, format: Reg<u32>, code: impl Fn(Format)) {
        let k = self.k;
        match self.formats {
            [only] => code(*only),
            formats => formats.iter().for_each(|f| k.if_(k.eq(format, *f as u32), || code(*f))),
        }
    }

    fn multiply_matrices(&self) {
        let k = self.k;
        let tiles: Vec<_> = (0..self.shape.tiles).map(|_| self.tile()).collect();
        let (loading, multiplying) = (self.cursor(), self.cursor());
        let segment = self.segment();
        let segments = self.word(at::SEGMENTS);
        let start = |format: Format| tiles.iter().for_each(|t| self.load(format, &segment, &loading, t));
        let first = |format: Format| self.load(format, &segment, &loading, &tiles[0]);
        let others =
            |format: Format| tiles[1..].iter().for_each(|t| self.load(format, &segment, &loading, t));
        // To the first segment that has something for this warp.
        k.loop_(|l| {
            self.enter(&segment, [&loading, &multiplying]);
            k.break_if(l, k.lt(loading.item, segment.items));
            k.set(segment.before, k.add(segment.before, segment.items));
            k.add_to(segment.number, 1);
            k.break_if(l, k.ge(segment.number, segments));
        });
        self.clear(&segment, &tiles);
        let some = k.lt(segment.number, segments);
        k.if_(some, || self.by_format(segment.format, first));
        let weights = self.norm_weights();
        k.if_(self.is_set(task::WAITS), || self.wait());
        self.stamp(1);
        let needed = self.needed();
        self.prepare_input(&weights, &|| k.if_(some, || self.by_format(segment.format, others)));
        self.stamp(2);
        k.if_(some, || {
            k.loop_(|l| {
                k.if_(k.lt(multiplying.item, segment.items), || {
                    self.by_format(segment.format, |format| {
                        let sums = [k.var(0f32), k.var(0f32)];
                        k.loop_(|l| {
                            for tile in &tiles {
                                self.multiply(format, &segment, &multiplying, tile, sums);
                                self.load(format, &segment, &loading, tile);
                                k.break_if(l, k.ge(multiplying.item, segment.items));
                            }
                        });
                    });
                });
                k.set(segment.before, k.add(segment.before, segment.items));
                k.add_to(segment.number, 1);
                k.break_if(l, k.ge(segment.number, segments));
                self.enter(&segment, [&loading, &multiplying]);
                k.if_(k.lt(loading.item, segment.items), || {
                    self.clear(&segment, &tiles);
                    self.by_format(segment.format, start);
                });
            });
        });
        self.stamp(3);
        self.use_results(&needed);
    }

    /// The current token's row of the embedding.
    fn embed(&self) {
        let k = self.k;
        let segment = self.segment();
        let cursor = self.cursor();
        self.enter(&segment, [&cursor, &cursor]);
        let units = k.load(self.task.plus(at::SEGMENT + task::segment::UNITS));
        let rows = k.load(self.task.plus(at::SEGMENT + task::segment::ROWS));
        let token = k.load(k.at(self.state.plus(i64::from(TOKENS_AT)), self.position));
        let row = k.mul(k.min(token, k.sub(rows, 1)), units);
        self.stamp(1);
        self.stamp(2);
        self.by_format(segment.format, |format| {
            let planes: Vec<Pointer<Global, u8>> = segment
                .plane_addresses()
                .iter()
                .take(format.planes().len())
                .map(|p| k.pointer(*p, 16))
                .collect();
            let threads = self.shape.threads();
            let thread = k.mad(self.block, threads, self.tid);
            k.for_(thread, units, k.mul(self.blocks, threads), |unit: Reg<u32>| {
                let packed = format.fetch(k, &planes, k.add(row, unit));
                let values = format.weights(k, &packed);
                for (start, values) in format.runs(k, unit).into_iter().zip(values) {
                    for (i, pair) in (0u32..).step_by(2).zip(values.chunks_exact(2)) {
                        self.store_flagged(k.add(start.reg(), i), pair);
                    }
                }
            });
        });
        self.stamp(3);
    }

    /// What the last of all blocks does; `arrived` is how many were there before it.
    fn finish(&self, arrived: Reg<u32>) {
        let k = self.k;
        let last: Pointer<Shared, u32> = self.squares.cast();
        k.sync_threads();
        k.if_(k.eq(self.tid, 0), || {
            k.fence();
            k.store(last, arrived);
        });
        k.sync_threads();
        k.exit_if(k.ne(k.add(k.load(last), 1), self.target));
        let finish = self.word(at::FINISH);
        let next = k.add(self.position, 1);
        k.if_(k.eq(finish, 1), || {
            let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
            let (values, indices) = self.candidates();
            k.for_(self.tid, self.blocks, self.shape.threads(), |i: Reg<u32>| {
                take_better(k, best, (k.load(k.at(values, i)), k.load(k.at(indices, i))));
            });
            self.block_best(best);
            k.if_(k.eq(self.tid, 0), || {
                // Logits without a single number give token 0.
                let token = k.select(k.eq(best.1, u32::MAX), 0u32, best.1);
                k.store(k.at(self.state.plus(i64::from(TOKENS_AT)), next), token);
            });
        });
        k.if_(k.eq(self.tid, 0), || {
            k.if_(k.ne(finish, 0), || {
                k.store(self.state, next);
                let flag = self.sync.plus(i64::from(FIRST_FLAG_AT));
                k.store(flag, k.add(self.first_flag, FLAGS_PER_STEP));
            });
            k.store(self.sync, 0u32);
        });
    }
}
