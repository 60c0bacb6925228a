//! The step kernel: the loop over phases, matrix phases, the embedding, and the end of the step.

use ptxgen::{Kernel, Pointer, Reg, Shared, Special};

use crate::kernels::format::Format;
use crate::kernels::state::{TOKENS_AT, take_better};
use crate::kernels::step::block::{Step, own};
use crate::kernels::step::record::{self, at, segment};
use crate::kernels::step::results::NEEDED_BYTES;
use crate::kernels::step::shape::Shape;
use crate::kernels::step::sync::{FIRST_FLAG_AT, FLAGS_PER_STEP};
use crate::kernels::step::variant::Variant;

/// The kernel `step_NAME(tasks, state, sync, times, first, last, inputs)`: phases `first` to before `last`;
/// `inputs` is the offset of the input in dynamic shared memory, in bytes. `times` may be 0; else block 0
/// writes [`MARKS`] clock readings per phase there.
///
/// [`MARKS`]: crate::kernels::step::sync::MARKS
pub(crate) fn kernel(variant: &Variant, shape: Shape) -> Kernel {
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

    let slots = k.shared::<u32>(2 * record::WORDS);
    let squares = k.shared::<f32>(2 * shape.warps);
    let own = k.shared::<u32>(own::WORDS);
    let needed = k.shared::<u32>(shape.threads() * NEEDED_BYTES / 4);
    let dynamic = k.dynamic_shared::<u8>();
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let (block, blocks) = (k.special(Special::CtaidX), k.special(Special::NctaidX));
    let warp = k.shr(tid, 5);
    let reads = k.lt(tid, record::WORDS);
    let slot = |index: Reg<u32>| k.at(slots, k.scale(k.and(index, 1), record::WORDS));
    let read = |index: Reg<u32>| {
        let record = k.at(tasks, k.scale(index, record::WORDS));
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
        // The record of the next phase replaces that of the phase before.
        let following = k.add(index, 1);
        k.if_(k.both(reads, k.lt(following, last)), || read(following));
        k.commit_copies();
        s.stamp(0);
        let kind = s.word(at::KIND);
        k.if_(k.eq(kind, record::MATVEC), || s.multiply_matrices());
        k.if_(k.eq(kind, record::ATTENTION), || s.attend());
        k.if_(k.eq(kind, record::EMBED), || s.embed());
        s.stamp(4);
        // Computed again: a value that is kept through a phase takes a register from its tiles.
        let following = k.add(index, 1);
        let ends = k.ge(following, last);
        let arrives = k.either(s.is_set(record::ARRIVES), ends);
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
    /// A matrix phase.
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
        // To the first segment that has an item for this warp.
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
        k.if_(self.is_set(record::WAITS), || self.wait());
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
                    let ragged = k.ne(self.segment_word(&segment, segment::RAGGED), 0);
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
        let units = k.load(self.task.plus(at::SEGMENT + segment::UNITS));
        let rows = k.load(self.task.plus(at::SEGMENT + segment::ROWS));
        let token = k.load(k.at(self.state.plus(i64::from(TOKENS_AT)), self.position()));
        let row = k.mul(k.min(token, k.sub(rows, 1)), units);
        self.stamp(1);
        self.stamp(2);
        self.by_format(&segment, |format| {
            let weights = [self.weights(&segment)];
            let threads = self.shape.threads();
            let thread = k.mad(self.block, threads, self.tid);
            k.for_(thread, units, k.mul(self.blocks, threads), |unit: Reg<u32>| {
                let packed = format.fetch(k, &weights, k.add(row, unit));
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

    /// The end of the launch, done by the block that arrives last: chooses the token and moves to the next
    /// position.
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
                // Logits without any number give token 0.
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
