//! The results of a matrix phase: one thread per pair of rows.

use half::f16;
use ptxgen::{Cache, Global, Pointer, Reg, Shared};

use crate::kernels::activation::silu_times;
use crate::kernels::cache::store_pair;
use crate::kernels::rotation::rotate_by;
use crate::kernels::state::{take_better, warp_best};
use crate::kernels::step::block::Step;
use crate::kernels::step::record::{at, segment};

/// Bytes of the operand of a thread's first pair of results: two values with flags, or the rotation of a pair
/// per position.
pub(super) const NEEDED_BYTES: u32 = 16;

impl Step<'_> {
    /// Starts to copy the operand of the thread's first pair of the first segment to shared memory. The input
    /// has arrived.
    pub(super) fn fetch_needed(&self) {
        let k = self.k;
        let record = self.task.plus(at::SEGMENT);
        let word = |at: i64| k.load(record.plus(at));
        let (first, pairs) = self.share(word(segment::PAIRS), word(segment::REST));
        let pair = k.add(first, self.tid);
        let epilogue = self.word(at::EPILOGUE);
        let mine = k.lt(self.tid, pairs);
        k.if_(k.both(mine, k.eq(epilogue, 1)), || {
            k.copy_async(self.needed(), self.sums_of(pair), 4);
        });
        k.if_(k.both(mine, k.ge(epilogue, 3)), || {
            let turn = self.turn_of(k.add(word(segment::FIRST), pair));
            k.copy_async(self.needed().cast(), turn, 1);
        });
        k.commit_copies();
    }

    /// The thread's operand in shared memory.
    fn needed(&self) -> Pointer<Shared, u32> {
        self.k.at_stride(self.needed.cast::<u8>(), self.tid, NEEDED_BYTES).cast()
    }

    /// Address of the two values with flags that pair `pair` of rows is added to.
    fn sums_of(&self, pair: Reg<u32>) -> Pointer<Global, u32> {
        self.k.at_stride(self.address::<u32>(at::OUT), pair, 16)
    }

    /// Address of the rotation per position of pair `pair` of queries and keys.
    fn turn_of(&self, pair: Reg<u32>) -> Pointer<Global, u64> {
        let k = self.k;
        let j = k.rem(pair, k.shr(self.word(at::HEAD_DIM), 1));
        k.at(self.address::<u64>(at::TURNS), j)
    }

    /// Uses the sums in shared memory. Begins with a barrier.
    pub(super) fn use_results(&self) {
        let k = self.k;
        // Each thread waits for its own copies.
        k.wait_copies(0);
        k.sync_threads();
        let epilogue = self.word(at::EPILOGUE);
        let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
        let before = k.var(0u32);
        let parts_log2 = self.word(at::PARTS_LOG2);
        let parts = k.shl(k.var(1u32), parts_log2);
        k.for_(0u32, self.word(at::SEGMENTS), 1u32, |number: Reg<u32>| {
            let record = k.at(self.task.plus(at::SEGMENT), k.scale(number, at::SEGMENT_WORDS as u32));
            let word = |at: i64| k.load(record.plus(at));
            let (first, pairs) = self.share(word(segment::PAIRS), word(segment::REST));
            let (rows, offset) = (word(segment::ROWS), word(segment::FIRST));
            let scale = k.var(0f32);
            k.if_(k.lt(self.tid, pairs), || {
                k.set(scale, k.mul(self.input_scale(), k.bits::<u32, f32>(word(segment::FACTOR))));
            });
            k.for_(self.tid, pairs, self.shape.threads(), |local: Reg<u32>| {
                let (a, b) = (k.var(0f32), k.var(0f32));
                let item = k.add(before, k.shl(local, parts_log2));
                k.for_(0u32, parts, 1u32, |part: Reg<u32>| {
                    let both = k.at(self.results, k.scale(k.add(item, part), 2));
                    let both = k.load_with(both, 2, Cache::Default);
                    k.set(a, k.add(a, both[0]));
                    k.set(b, k.add(b, both[1]));
                });
                let (a, b) = (k.mul(a, scale), k.mul(b, scale));
                let pair = k.add(first, local);
                let known = k.both(k.eq(local, self.tid), k.eq(number, 0));
                let is = |code: u32| k.eq(epilogue, code);
                k.if_(is(0), || {
                    let row = k.shl(pair, 1);
                    let out = k.at(self.address::<f32>(at::OUT), row);
                    k.store(out, a);
                    take_better(k, best, (a, row));
                    k.if_(k.lt(k.add(row, 1), rows), || {
                        k.store(out.plus(1), b);
                        take_better(k, best, (b, k.add(row, 1)));
                    });
                });
                k.if_(is(1), || {
                    let sums = [k.var(0u32), k.var(0u32)];
                    let set = |words: [Reg<u32>; 4]| [0, 1].map(|i| k.set(sums[i], words[2 * i]));
                    k.if_else(
                        known,
                        || _ = set(k.load_n(self.needed(), Cache::Default)),
                        || _ = set(k.load_relaxed(self.sums_of(pair))),
                    );
                    let sums = [(sums[0], a), (sums[1], b)].map(|(sum, v)| k.add(k.bits::<u32, f32>(sum), v));
                    self.store_flagged(k.shl(pair, 1), &sums);
                });
                k.if_(is(2), || {
                    k.store(k.at(self.address::<f32>(at::OUT), pair), silu_times(k, a, b));
                });
                k.if_(k.ge(epilogue, 3), || {
                    let pair = k.add(offset, pair);
                    let turn = k.var(0u64);
                    k.if_else(
                        known,
                        || k.set(turn, k.load(self.needed().cast::<u64>())),
                        || k.set(turn, k.load_with(self.turn_of(pair), 1, Cache::ReadOnly)[0]),
                    );
                    self.store_heads(pair, a, b, turn);
                });
            });
            k.set(before, k.add(before, k.shl(pairs, parts_log2)));
        });
        k.if_(k.eq(epilogue, 0), || self.propose(best));
    }

    /// Stores pair `pair` of queries, keys and values. Keys and values of a cache in q8_0 are stored after
    /// the queries: their blocks may come from several thread blocks, and attention quantizes them.
    fn store_heads(&self, pair: Reg<u32>, a: Reg<f32>, b: Reg<f32>, turn: Reg<u64>) {
        let k = self.k;
        let (q_pairs, k_pairs) = (self.word(at::Q_PAIRS), self.word(at::K_PAIRS));
        let half_dim = k.shr(self.word(at::HEAD_DIM), 1);
        let (x, y) = (k.var(a), k.var(b));
        k.if_(k.lt(pair, k_pairs), || {
            let (c, s) = rotate_by(k, turn, self.position(), a, b);
            k.set(x, c);
            k.set(y, s);
        });
        k.if_else(
            k.either(k.lt(pair, q_pairs), k.ne(self.word(at::EPILOGUE), 3)),
            || {
                let to = k.at(self.address::<f32>(at::OUT), k.scale(pair, 2));
                k.store_n(to, &[x, y]);
            },
            || {
                let is_key = k.lt(pair, k_pairs);
                let pair = k.sub(pair, k.select(is_key, q_pairs, k_pairs));
                let head = k.div(pair, half_dim);
                let j = k.sub(pair, k.mul(head, half_dim));
                let row = k.mad(head, self.word(at::CONTEXT), self.position());
                let (keys, values) = (self.address::<f16>(at::KEYS), self.address::<f16>(at::VALUES));
                store_pair(k, k.select_ptr(is_key, keys, values), None, (row, half_dim, j), [x, y]);
            },
        );
    }

    /// Writes the best of all threads as the block's candidate.
    fn propose(&self, best: (Reg<f32>, Reg<u32>)) {
        let k = self.k;
        self.block_best(best);
        k.if_(k.eq(self.tid, 0), || {
            k.store(k.at(self.candidates().0, self.block), best.0);
            k.store(k.at(self.candidates().1, self.block), best.1);
        });
    }

    /// Gives the first warp the best of the block.
    pub(super) fn block_best(&self, best: (Reg<f32>, Reg<u32>)) {
        let k = self.k;
        warp_best(k, best);
        let indices: Pointer<Shared, u32> = self.squares.plus(i64::from(self.shape.warps)).cast();
        k.sync_threads();
        k.if_(k.eq(self.lane, 0), || {
            k.store(k.at(self.squares, self.warp), best.0);
            k.store(k.at(indices, self.warp), best.1);
        });
        k.sync_threads();
        k.if_(k.eq(self.warp, 0), || {
            let other = k.and(self.lane, self.shape.warps - 1);
            k.set(best.0, k.load(k.at(self.squares, other)));
            k.set(best.1, k.load(k.at(indices, other)));
            warp_best(k, best);
        });
    }
}
