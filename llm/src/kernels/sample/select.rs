//! The search for a token by the sum of the weights before it in the order of ranks.

use ptxgen::{Atomic, Cache, Kernel, Pointer, Pred, Reg, Shared, Shuffle};

use crate::kernels::sample::weigh::{key, there, weight};
use crate::sampler::arithmetic::Draw;

/// Threads of the block.
pub const THREADS: u32 = 1024;
/// Bits of a rank that a step of a search looks at.
const STEP_BITS: u32 = 11;
/// Groups of a step.
const GROUPS: u32 = 1 << STEP_BITS;
/// Low bits of a rank: the number of the token.
pub const TOKEN_BITS: u32 = 23;
/// Shift of a rank in the first step.
const FIRST_SHIFT: u32 = 4 * STEP_BITS;
/// Bits of a weight that are added together: sums of 2^21 such parts stay below 2^32.
const PART_BITS: u32 = 10;
/// Parts of a weight, and the tokens themselves, are counted in this many words per group.
const PARTS: u32 = 4;

/// The search for the last of the `top_k` most likely tokens.
const TOP_K: u32 = 0;
/// The search for the token at which `top_p` is reached.
const TOP_P: u32 = 1;
/// The search for the drawn token.
const DRAWN: u32 = 2;

/// Options that the host sets, in shared memory.
#[derive(Clone, Copy)]
pub struct Options {
    pub top_k: Reg<u32>,
    pub least: Reg<u32>,
    pub slope: Reg<f32>,
    pub top_p: Reg<u64>,
    pub random: Reg<u64>,
}

/// A search, by all threads of the block.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    pub k: &'a Kernel,
    pub tid: Reg<u32>,
    pub lane: Reg<u32>,
    pub options: Options,
    /// Sums by group: [`PARTS`] arrays of [`GROUPS`] words; zero between steps.
    pub groups: Pointer<Shared, u32>,
    /// Sums of the warps, one `u64` each.
    pub sums: Pointer<Shared, u64>,
    /// The findings of one thread: four words.
    pub found: Pointer<Shared, u32>,
    /// Ranks that are kept are below this one; at the end one more than that of the token.
    pub bound: Reg<u64>,
}

/// The sum of the weights before a thread's groups, and of all.
struct Sums {
    before: Reg<u64>,
    all: Reg<u64>,
}

impl<'a> Search<'a> {
    /// Words of shared memory for the sums by group.
    pub const GROUP_WORDS: u32 = PARTS * GROUPS;

    /// Clears the sums by group.
    pub fn clear(&self) {
        let zero = [(); 4].map(|()| self.k.var(0u32));
        for block in 0..Self::GROUP_WORDS / 4 / THREADS {
            let at = self.k.add(self.tid, block * THREADS);
            self.k.store_n(self.k.at(self.groups, self.k.scale(at, 4)), &zero);
        }
    }

    /// Makes the searches that the options ask for among `count` tokens; `token` gives the distance and the
    /// number of one.
    pub fn run(&self, count: Reg<u32>, token: &dyn Fn(Reg<u32>) -> (Reg<f32>, Reg<u32>)) {
        let (k, o) = (self.k, self.options);
        k.for_(TOP_K, DRAWN + 1, 1u32, |stage: Reg<u32>| {
            let all = k.both(k.eq(stage, TOP_K), k.eq(o.top_k, 0u32));
            let whole = k.both(k.eq(stage, TOP_P), k.eq(o.top_p, Draw::ALL));
            k.if_(k.unless(k.either(all, whole)), || self.search(stage, count, token));
        });
    }

    /// A key at or above which at most those of `top_k` threads are not: that many tokens have keys up to it.
    /// `distance` is that of the thread's largest logit. The largest key if fewer threads have a logit.
    pub fn near(&self, distance: Reg<f32>) -> Reg<u32> {
        let k = self.k;
        let low_bits = 32 - STEP_BITS;
        let sums = self.sums.cast::<u32>();
        k.if_(k.eq(self.tid, 0u32), || k.store(self.found, u32::MAX));
        k.if_(there(k, distance), || {
            k.atomic(k.at(self.groups, k.shr(key(k, distance), low_bits)), Atomic::Add, 1u32);
        });
        k.sync_threads();
        let at = k.at(self.groups, k.scale(self.tid, 2));
        let [first, second] = k.load_n::<2, _, _>(at, Cache::Default);
        let zero = k.var(0u32);
        k.store_n(at, &[zero, zero]);
        let own = k.add(first, second);
        let in_warp = self.scan_word(own);
        let warp = k.shr(self.tid, 5);
        k.if_(k.eq(self.lane, 31u32), || k.store(k.at(sums, warp), in_warp));
        k.sync_threads();
        let warps = self.scan_word(k.load(k.at(sums, self.lane)));
        let earlier = k.select(k.eq(warp, 0u32), 0u32, k.broadcast(warps, k.sub(warp, 1u32)));
        let before = k.sub(k.add(earlier, in_warp), own);
        let passes = k.both(k.lt(before, self.options.top_k), k.ge(k.add(before, own), self.options.top_k));
        k.if_(passes, || {
            let later = k.select(k.lt(k.add(before, first), self.options.top_k), 1u32, 0u32);
            k.store(self.found, k.mad(self.tid, 2u32, later));
        });
        k.sync_threads();
        let group = k.load(self.found);
        k.select(k.eq(group, u32::MAX), u32::MAX, k.or(k.shl(group, low_bits), (1u32 << low_bits) - 1))
    }

    /// The sum of a lane's word and those of the lanes before it.
    fn scan_word(&self, word: Reg<u32>) -> Reg<u32> {
        let k = self.k;
        [1, 2, 4, 8, 16].into_iter().fold(word, |sum, lanes| {
            let other = k.shuffle(sum, Shuffle::Up(lanes));
            k.add(sum, k.select(k.ge(self.lane, lanes), other, 0u32))
        })
    }

    fn search(&self, stage: Reg<u32>, count: Reg<u32>, token: &dyn Fn(Reg<u32>) -> (Reg<f32>, Reg<u32>)) {
        let k = self.k;
        let (prefix, aim) = (k.var(0u64), k.var(0u64));
        let shift = k.var(FIRST_SHIFT);
        let counts = k.eq(stage, TOP_K);
        k.loop_(|steps| {
            self.each(count, token, |there, rank, distance| {
                let inside = k.eq(k.shr(rank, k.add(shift, STEP_BITS)), prefix);
                let weight = self.weigh(stage, k.both(there, inside), distance);
                let group = k.and(k.convert::<u64, u32>(k.shr(rank, shift)), GROUPS - 1);
                self.add(counts, group, weight);
            });
            k.sync_threads();
            let (tokens, weights) = self.take_groups(counts);
            let sums = self.sums(k.add(weights[0], weights[1]));
            k.if_(k.eq(shift, FIRST_SHIFT), || k.set(aim, self.aim(stage, sums.all)));
            // Fewer than `top_k` tokens: all are kept.
            k.break_if(steps, k.le(sums.all, aim));
            let middle = k.add(sums.before, weights[0]);
            for (i, (before, weight)) in (0u32..).zip([(sums.before, weights[0]), (middle, weights[1])]) {
                let passes = k.both(k.le(before, aim), k.lt(aim, k.add(before, weight)));
                k.if_(passes, || {
                    let (low, high) = self.halves(k.sub(aim, before));
                    let group = k.mad(self.tid, 2u32, i);
                    k.store_n(self.found, &[low, high, group, tokens[i as usize]]);
                });
            }
            k.sync_threads();
            let [low, high, group, tokens] = k.load_n::<4, _, _>(self.found, Cache::Default);
            k.set(aim, self.whole(low, high));
            k.set(prefix, k.or(k.shl(prefix, STEP_BITS), k.convert::<u32, u64>(group)));
            k.if_(k.eq(tokens, 1u32), || {
                k.sync_threads();
                self.each(count, token, |there, rank, distance| {
                    let inside = k.eq(k.shr(rank, shift), prefix);
                    let weight = self.weigh(stage, k.both(there, inside), distance);
                    k.if_(k.ne(weight, 0u32), || {
                        let (low, high) = self.halves(k.add(rank, 1u64));
                        k.store_n(self.found, &[low, high]);
                    });
                });
                k.sync_threads();
                let [low, high] = k.load_n::<2, _, _>(self.found, Cache::Default);
                k.set(self.bound, self.whole(low, high));
            });
            k.break_if(steps, k.eq(tokens, 1u32));
            // Ranks differ, so the last step leaves one token.
            k.set(shift, k.sub(shift, STEP_BITS));
        });
        // Findings have been read when they are written again.
        k.sync_threads();
    }

    /// Calls `body` with whether there is a token that is kept, its rank and its distance; whole warps call it.
    fn each(
        &self,
        count: Reg<u32>,
        token: &dyn Fn(Reg<u32>) -> (Reg<f32>, Reg<u32>),
        body: impl FnOnce(Pred, Reg<u64>, Reg<f32>),
    ) {
        let k = self.k;
        let last = k.sub(count, 1u32);
        k.for_(0u32, count, THREADS, |first: Reg<u32>| {
            let index = k.add(first, self.tid);
            let (distance, number) = token(k.min(index, last));
            let upper = k.shl(k.convert::<u32, u64>(key(k, distance)), TOKEN_BITS);
            let rank = k.or(upper, k.convert::<u32, u64>(number));
            let kept = k.both(there(k, distance), k.lt(rank, self.bound));
            body(k.both(k.lt(index, count), kept), rank, distance);
        });
    }

    /// The weight of a token in a search; 0 where `there` does not hold.
    fn weigh(&self, stage: Reg<u32>, there: Pred, distance: Reg<f32>) -> Reg<u32> {
        let (k, o) = (self.k, self.options);
        let found = k.var(1u32);
        k.if_(k.both(there, k.ne(stage, TOP_K)), || {
            let plain = weight(k, distance, k.var(Draw::PLAIN));
            k.set(found, plain);
            k.if_(k.eq(stage, DRAWN), || {
                let drawn = weight(k, distance, o.slope);
                k.set(found, k.select(k.lt(plain, o.least), 0u32, drawn));
            });
        });
        k.select(there, found, 0u32)
    }

    /// Adds a weight to those of its group.
    fn add(&self, counts: Pred, group: Reg<u32>, weight: Reg<u32>) {
        let k = self.k;
        let weighs = k.ne(weight, 0u32);
        let lanes = k.ballot(weighs);
        // The highest lane with a weight.
        let leader = k.sub(31u32, k.clz(lanes));
        let same = k.all(k.either(k.eq(group, k.broadcast(group, leader)), k.unless(weighs)));
        let to = |part: u32| k.at(self.groups, group).plus(i64::from(part * GROUPS));
        let part = |i: u32| match i {
            0 => k.and(weight, (1u32 << PART_BITS) - 1),
            1 => k.and(k.shr(weight, PART_BITS), (1u32 << PART_BITS) - 1),
            _ => k.shr(weight, 2 * PART_BITS),
        };
        k.if_else(
            same,
            || {
                // Otherwise equal logits would be drawn alternately.
                let sums = [0, 1, 2].map(|i| k.reduce(part(i), ptxgen::Reduce::Add));
                k.if_(k.both(k.ne(lanes, 0u32), k.eq(self.lane, leader)), || {
                    k.atomic(to(0), Atomic::Add, k.popc(lanes));
                    k.if_(k.unless(counts), || {
                        for (i, sum) in (1..).zip(sums) {
                            k.atomic(to(i), Atomic::Add, sum);
                        }
                    });
                });
            },
            || {
                k.if_(weighs, || {
                    k.atomic(to(0), Atomic::Add, 1u32);
                    k.if_(k.unless(counts), || {
                        for i in 0..3 {
                            k.atomic(to(1 + i), Atomic::Add, part(i));
                        }
                    });
                });
            },
        );
    }

    /// Numbers of tokens and weights of this thread's two groups, which are cleared.
    fn take_groups(&self, counts: Pred) -> ([Reg<u32>; 2], [Reg<u64>; 2]) {
        let k = self.k;
        let zero = [(); 2].map(|()| k.var(0u32));
        let parts: [[Reg<u32>; 2]; PARTS as usize] = std::array::from_fn(|part| {
            let at = k.at(self.groups, k.scale(self.tid, 2)).plus((part as i64) * i64::from(GROUPS));
            let words = k.load_n::<2, _, _>(at, Cache::Default);
            k.store_n(at, &zero);
            words
        });
        let [tokens, low, middle, high] = parts;
        let weights = [0, 1].map(|i| {
            let sum = k.mad_wide(middle[i], 1u32 << PART_BITS, k.convert::<u32, u64>(low[i]));
            let sum = k.mad_wide(high[i], 1u32 << (2 * PART_BITS), sum);
            k.select(counts, k.convert::<u32, u64>(tokens[i]), sum)
        });
        (tokens, weights)
    }

    /// Sums over the block, in the order of threads.
    fn sums(&self, own: Reg<u64>) -> Sums {
        let k = self.k;
        let in_warp = self.scan(own);
        let warp = k.shr(self.tid, 5);
        k.if_(k.eq(self.lane, 31u32), || k.store(k.at(self.sums, warp), in_warp));
        k.sync_threads();
        let warps = self.scan(k.load(k.at(self.sums, self.lane)));
        let (low, high) = self.halves(warps);
        let of = |lane: Reg<u32>| self.whole(k.broadcast(low, lane), k.broadcast(high, lane));
        let earlier = k.select(k.eq(warp, 0u32), 0u64, of(k.sub(warp, 1u32)));
        Sums { before: k.sub(k.add(earlier, in_warp), own), all: of(k.var(31u32)) }
    }

    /// The sum of a lane's value and those of the lanes before it.
    fn scan(&self, value: Reg<u64>) -> Reg<u64> {
        let k = self.k;
        [1, 2, 4, 8, 16].into_iter().fold(value, |sum, lanes| {
            let (low, high) = self.halves(sum);
            let [low, high] = [low, high].map(|word| k.shuffle(word, Shuffle::Up(lanes)));
            let other = self.whole(low, high);
            k.add(sum, k.select(k.ge(self.lane, lanes), other, 0u64))
        })
    }

    /// The value that the sum of the weights before the token and its own passes first at the token.
    fn aim(&self, stage: Reg<u32>, all: Reg<u64>) -> Reg<u64> {
        let (k, o) = (self.k, self.options);
        let last = k.convert::<u32, u64>(k.sub(o.top_k, 1u32));
        let budget = k.sub(k.max(k.mul_hi(all, o.top_p), 1u64), 1u64);
        let unit = k.mul_hi(all, o.random);
        k.select(k.eq(stage, TOP_K), last, k.select(k.eq(stage, TOP_P), budget, unit))
    }

    fn halves(&self, value: Reg<u64>) -> (Reg<u32>, Reg<u32>) {
        let k = self.k;
        (k.convert::<u64, u32>(value), k.convert::<u64, u32>(k.shr(value, 32)))
    }

    fn whole(&self, low: Reg<u32>, high: Reg<u32>) -> Reg<u64> {
        let k = self.k;
        k.or(k.shl(k.convert::<u32, u64>(high), 32), k.convert::<u32, u64>(low))
    }
}
