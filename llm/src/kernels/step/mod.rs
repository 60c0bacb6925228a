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
mod cached;
mod input;
mod results;
mod shape;
mod task;
mod tile;

use ptxgen::{Atomic, Element, Global, Kernel, Pointer, Pred, Reg, Shared, Special};

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
    /// The phase's number.
    index: Reg<u32>,
    /// The record of the phase.
    task: Pointer<Shared, u32>,
    /// What would only take registers: see [`own`].
    own: Pointer<Shared, u32>,
    /// Sums of a matrix phase: two per item.
    results: Pointer<Shared, f32>,
    /// Input of a matrix phase, or scratch.
    inputs: Pointer<Shared, u8>,
    /// Two words per warp.
    squares: Pointer<Shared, f32>,
    /// What the results will need, 16 bytes per thread.
    needed: Pointer<Shared, u32>,
    state: Pointer<Global, u32>,
    sync: Pointer<Global, u32>,
    /// Where to put times; 0 for nowhere.
    times: Reg<u64>,
}

/// What a block keeps in shared memory for the whole step, in words: tiles of weights need nearly all registers.
mod own {
    /// Position of the token that is taken in.
    pub const POSITION: i64 = 0;
    /// The step's first flag.
    pub const FIRST_FLAG: i64 = 1;
    /// What the counter has when all blocks have ended the phase before; for the first thread.
    pub const TARGET: i64 = 2;
    /// What the counter had before this block's last arrival; for the first thread.
    pub const ARRIVED: i64 = 3;
    pub const WORDS: u32 = 4;
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
    let own = k.shared::<u32>(own::WORDS);
    let needed = k.shared::<u32>(shape.threads() * results::NEEDED_BYTES / 4);
    let dynamic = k.dynamic_shared::<u8>();
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let (block, blocks) = (k.special(Special::CtaidX), k.special(Special::NctaidX));
    let warp = k.shr(tid, 5);
    let reads = k.lt(tid, task::WORDS);
    let slot = |index: Reg<u32>| k.at(slots, k.scale(k.and(index, 1), task::WORDS));
    let read = |index: Reg<u32>| {
        let record = k.at(tasks, k.scale(index, task::WORDS));
        k.copy_async(k.at(slot(index), tid), k.at(record, tid), 1);
    };
    k.if_(reads, || read(first));
    k.if_(k.eq(tid, 0), || {
        k.store(own.plus(own::POSITION), k.load(state));
        k.store(own.plus(own::FIRST_FLAG), k.load(sync.plus(i64::from(FIRST_FLAG_AT))));
        k.store(own.plus(own::TARGET), k.var(0u32));
        k.store(own.plus(own::ARRIVED), k.var(0u32));
    });
    k.commit_copies();
    k.wait_copies(0);
    k.sync_threads();

    let index = k.var(first);
    let step = |index: Reg<u32>| Step {
        k: &k,
        formats: variant.formats,
        shape,
        tid,
        lane,
        warp,
        block,
        blocks,
        index,
        task: slot(index),
        own,
        results: dynamic.cast(),
        inputs: k.at(dynamic, inputs),
        squares,
        needed,
        state,
        sync,
        times,
    };
    k.loop_(|l| {
        let s = step(index);
        // The record of the next phase goes where that of the phase before was.
        let following = k.add(index, 1);
        k.if_(k.both(reads, k.lt(following, last)), || read(following));
        k.commit_copies();
        s.stamp(0);
        let kind = s.word(at::KIND);
        k.if_(k.eq(kind, task::MATVEC), || s.multiply_matrices());
        k.if_(k.eq(kind, task::ATTENTION), || s.attend());
        k.if_(k.eq(kind, task::EMBED), || s.embed());
        s.stamp(4);
        // Computed anew: what is kept through a phase takes a register from its tiles.
        let following = k.add(index, 1);
        let ends = k.ge(following, last);
        let arrives = k.either(s.is_set(task::ARRIVES), ends);
        k.wait_copies(0);
        k.sync_threads();
        k.if_(k.both(k.eq(tid, 0), arrives), || s.arrive(ends));
        s.stamp(5);
        k.set(index, following);
        k.break_if(l, k.ge(index, last));
    });
    step(k.sub(index, 1)).finish();
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

    /// Position of the token that is taken in.
    fn position(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::POSITION))
    }

    /// The flag in word `at` of the record, as it is in this step.
    fn flag(&self, at: i64) -> Reg<u32> {
        self.k.add(self.k.load(self.own.plus(own::FIRST_FLAG)), self.word(at))
    }

    /// What the counter has when all blocks have ended the phase before.
    fn target(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::TARGET))
    }

    /// The first thread says that its block has ended the phase. Only behind the `last` one does it matter how many blocks had: an
    /// atomic operation whose result is not used need not be waited for.
    fn arrive(&self, last: Pred) {
        let k = self.k;
        let add = || k.atomic(self.sync, Atomic::Add, 1u32);
        k.fence();
        k.if_else(last, || k.store(self.own.plus(own::ARRIVED), add()), || _ = add());
        k.store(self.own.plus(own::TARGET), k.add(self.target(), self.blocks));
    }

    /// Leaves the clock in the buffer of times.
    fn stamp(&self, mark: i64) {
        let k = self.k;
        k.if_(k.both(k.ne(self.times, 0u64), k.eq(k.add(self.block, self.tid), 0)), || {
            let marks = k.at(k.pointer::<u32>(self.times, 4), k.scale(self.index, MARKS));
            k.store(marks.plus(mark), k.special(Special::Clock));
        });
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
        k.if_(k.eq(self.tid, 0), || {
            let target = self.target();
            k.if_(k.ne(target, 0), || self.look(|| k.ge(k.load_acquire(self.sync), target)));
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
        let flag = self.flag(at::OUTPUT_FLAG);
        let index = k.scale(k.halve(index, values.len().trailing_zeros()), values.len() as u32);
        let words: Vec<Reg<u32>> = values.iter().flat_map(|v| [k.bits(*v), flag]).collect();
        k.store_relaxed(k.at_stride(self.address::<u32>(at::OUT), index, 8), &words);
    }

    /// Runs the code for the format of the segment.
    fn by_format(&self, segment: &tile::Segment, code: impl Fn(Format)) {
        let k = self.k;
        match self.formats {
            [only] => code(*only),
            formats => {
                let format = self.segment_word(segment, task::segment::FORMAT);
                formats.iter().for_each(|f| k.if_(k.eq(format, *f as u32), || code(*f)));
            }
        }
    }

    fn multiply_matrices(&self) {
        let k = self.k;
        let tiles: Vec<_> = (0..self.shape.tiles).map(|_| self.tile()).collect();
        let loading = self.cursor();
        let segment = self.segment();
        let segments = self.word(at::SEGMENTS);
        let start = |format: Format| tiles.iter().for_each(|t| self.load(format, &segment, &loading, t));
        let first = |format: Format| self.load(format, &segment, &loading, &tiles[0]);
        let others =
            |format: Format| tiles[1..].iter().for_each(|t| self.load(format, &segment, &loading, t));
        // To the first segment that has something for this warp.
        k.loop_(|l| {
            self.enter(&segment, &loading);
            k.break_if(l, k.lt(loading.item, segment.items));
            k.set(segment.before, k.add(segment.before, segment.items));
            k.add_to(segment.number, 1);
            k.break_if(l, k.ge(segment.number, segments));
        });
        self.clear(&tiles);
        let some = k.lt(segment.number, segments);
        k.if_(some, || self.by_format(&segment, first));
        let weights = self.norm_weights();
        k.if_(self.is_set(task::WAITS), || self.wait());
        self.stamp(1);
        self.fetch_needed();
        self.prepare_input(&weights, &|| k.if_(some, || self.by_format(&segment, others)));
        self.stamp(2);
        k.if_(some, || {
            k.loop_(|l| {
                k.if_(k.lt(tiles[0].item, segment.items), || {
                    self.by_format(&segment, |format| {
                        let sums = [k.var(0f32), k.var(0f32)];
                        k.loop_(|l| {
                            for (tile, after) in tiles.iter().zip(tiles.iter().cycle().skip(1)) {
                                self.multiply(format, &segment, tile, after, sums);
                                self.load(format, &segment, &loading, tile);
                                k.break_if(l, k.ge(after.item, segment.items));
                            }
                        });
                    });
                });
                k.set(segment.before, k.add(segment.before, segment.items));
                k.add_to(segment.number, 1);
                k.break_if(l, k.ge(segment.number, segments));
                self.enter(&segment, &loading);
                k.set(tiles[0].item, loading.item);
                k.if_(k.lt(loading.item, segment.items), || {
                    let ragged = k.ne(self.segment_word(&segment, task::segment::RAGGED), 0);
                    k.if_(ragged, || self.clear(&tiles));
                    self.by_format(&segment, start);
                });
            });
        });
        self.stamp(3);
        self.use_results();
    }

    /// The current token's row of the embedding.
    fn embed(&self) {
        let k = self.k;
        let segment = self.segment();
        let cursor = self.cursor();
        self.enter(&segment, &cursor);
        let units = k.load(self.task.plus(at::SEGMENT + task::segment::UNITS));
        let rows = k.load(self.task.plus(at::SEGMENT + task::segment::ROWS));
        let token = k.load(k.at(self.state.plus(i64::from(TOKENS_AT)), self.position()));
        let row = k.mul(k.min(token, k.sub(rows, 1)), units);
        self.stamp(1);
        self.stamp(2);
        self.by_format(&segment, |format| {
            let planes = self.planes(&segment, format);
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

    /// What the last of all blocks does.
    fn finish(&self) {
        let k = self.k;
        let last: Pointer<Shared, u32> = self.squares.cast();
        k.sync_threads();
        k.if_(k.eq(self.tid, 0), || {
            k.fence();
            let others = k.load(self.own.plus(own::ARRIVED));
            k.store(last, k.select(k.eq(k.add(others, 1), self.target()), 1u32, 0u32));
        });
        k.sync_threads();
        k.exit_if(k.eq(k.load(last), 0));
        let finish = self.word(at::FINISH);
        let next = k.add(self.position(), 1);
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
                k.store(flag, k.add(k.load(self.own.plus(own::FIRST_FLAG)), FLAGS_PER_STEP));
            });
            k.store(self.sync, 0u32);
        });
    }
}
