//! The kernel: the largest logit, the tokens worth a look, the searches.

use ptxgen::{Atomic, Cache, Global, Kernel, Pointer, Ptr, Reg, Shared, Special, kernel_params};

use crate::kernels::sample::select::{Options, Search, THREADS, TOKEN_BITS};
use crate::kernels::sample::weigh::{distance, key, there};
use crate::kernels::state::TOKENS_AT;
use crate::sampler::arithmetic::Draw;

/// The module and the kernel.
pub const NAME: &str = "sample";
/// Threads of the one block.
pub const BLOCK: u32 = THREADS;
/// Words of what the host sets.
pub const DRAW_WORDS: usize = 8;
/// Most tokens of a vocabulary: of sums of weights in parts.
pub const MOST_TOKENS: u32 = 1 << 21;
/// Tokens that are collected in shared memory.
const LIST: u32 = THREADS;
/// Vectors of four logits that a thread loads at a time, a span.
const SPAN: u32 = 4;

/// Bytes of dynamic shared memory for `count` logits: the largest of each span of each thread.
pub const fn dynamic_shared(count: u32) -> u32 {
    4 * THREADS * (count / 4).div_ceil(SPAN * THREADS)
}

/// The words that the host sets for a choice.
pub fn words(draw: &Draw) -> [u32; DRAW_WORDS] {
    let low = |word: u64| word as u32;
    let high = |word: u64| (word >> 32) as u32;
    let Draw { top_k, top_p, least, slope, random } = *draw;
    let (reach, slope) = (draw.reach(), slope.to_bits());
    [top_k, least, slope, reach, low(top_p), high(top_p), low(random), high(random)]
}

/// The kernel's state besides that of its searches.
struct Sample<'a> {
    k: &'a Kernel,
    search: Search<'a>,
    logits: Pointer<Global, f32>,
    count: Reg<u32>,
    /// The largest logit.
    best: Reg<f32>,
    /// Tokens that are collected: distances, numbers, and how many there are.
    distances: Pointer<Shared, f32>,
    numbers: Pointer<Shared, u32>,
    collected: Pointer<Shared, u32>,
    /// The largest logit of each span.
    tops: Pointer<Shared, f32>,
}

kernel_params! {
    /// `sample`: replaces the token at the state's position, that of the next step, by the one that `draw`
    /// names ([`words`]) among `count` logits. Logits without any number leave what is there. Takes
    /// [`dynamic_shared`] bytes.
    pub struct SampleToken { logits: Ptr<f32, 16>, state: Ptr<u32, 16>, draw: Ptr<u32, 16>, count: u32 }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new(NAME);
    k.max_threads(THREADS);
    let p = SampleToken::declare(&k);
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let groups = k.shared::<u32>(Search::GROUP_WORDS);
    let (distances, numbers) = (k.shared::<f32>(LIST), k.shared::<u32>(LIST));
    let (sums, found) = (k.shared::<u64>(THREADS / 32), k.shared::<u32>(4));
    let (bests, collected) = (k.shared::<f32>(THREADS / 32), k.shared::<u32>(1));
    let set = k.shared::<u32>(DRAW_WORDS as u32);

    // These may lie in the host's memory: one access each, while the logits are read.
    let position = k.var(0u32);
    k.if_(k.eq(tid, 0u32), || {
        k.set(position, k.load(p.state));
        k.store(collected, 0u32);
    });
    let word = k.var(0u32);
    k.if_(k.lt(tid, DRAW_WORDS as u32), || k.set(word, k.load(k.at(p.draw, tid))));

    let own = k.var(f32::NEG_INFINITY);
    let tops = k.dynamic_shared::<f32>();
    each_span(&k, tid, p.count, &mut |span| {
        let loaded = span.numbers.map(|number| span.load(&k, p.logits, number));
        let largest = loaded.map(|values| values.into_iter().reduce(|a, b| k.max(a, b)).unwrap_or(own));
        // A logit counts once: the `top_k`-th of the threads' largest has that many at or above it.
        let tops_there = largest
            .into_iter()
            .zip(span.numbers)
            .map(|(top, number)| k.select(k.lt(number, span.count), top, f32::NEG_INFINITY));
        let top = tops_there.reduce(|a, b| k.max(a, b)).unwrap_or(own);
        k.set(own, k.max(own, top));
        k.store(k.at(tops, span.place), top);
    });
    last_logits(&k, tid, (p.logits, p.count), &mut |value, _| k.set(own, k.max(own, value)));
    let in_warp = k.warp_max(own);
    k.if_(k.eq(lane, 0u32), || k.store(k.at(bests, k.shr(tid, 5)), in_warp));
    k.if_(k.lt(tid, DRAW_WORDS as u32), || k.store(k.at(set, tid), word));
    k.sync_threads();
    let best = k.warp_max(k.load(k.at(bests, lane)));
    k.exit_if(k.eq(best, f32::NEG_INFINITY));

    let [top_k, least, slope, reach] = k.load_n::<4, _, _>(set, Cache::Default);
    let [top_p, random] = k.load_n::<2, _, _>(set.plus(4).cast::<u64>(), Cache::Default);
    let options = Options { top_k, least, slope: k.bits(slope), top_p, random };
    let bound = k.var(u64::MAX);
    let search = Search { k: &k, tid, lane, options, groups, sums, found, bound };
    search.clear();
    k.sync_threads();
    let s =
        Sample { k: &k, search, logits: p.logits, count: p.count, best, distances, numbers, collected, tops };
    s.choose(own, reach);
    k.if_(k.eq(tid, 0u32), || {
        let token = k.and(k.convert::<u64, u32>(k.sub(bound, 1u64)), (1u32 << TOKEN_BITS) - 1);
        k.store(k.at(p.state.plus(i64::from(TOKENS_AT)), position), token);
    });
    k
}

/// Vectors of one thread.
struct Span {
    /// Their numbers; some may be past the last one.
    numbers: [Reg<u32>; SPAN as usize],
    /// Number of vectors.
    count: Reg<u32>,
    /// The place of its largest logit.
    place: Reg<u32>,
}

impl Span {
    /// A vector, the last one for any past it.
    fn load(&self, k: &Kernel, logits: Pointer<Global, f32>, number: Reg<u32>) -> [Reg<f32>; 4] {
        let number = k.min(number, k.sub(self.count, 1u32));
        k.load_n::<4, _, _>(k.at(logits, k.scale(number, 4)), Cache::ReadOnly)
    }
}

/// Calls `body` with each span of the thread.
fn each_span(k: &Kernel, tid: Reg<u32>, count: Reg<u32>, body: &mut dyn FnMut(Span)) {
    let whole = k.shr(count, 2);
    k.for_(0u32, whole, THREADS * SPAN, |first: Reg<u32>| {
        let numbers = [0, 1, 2, 3].map(|i| k.add(first, k.add(tid, i * THREADS)));
        let place = k.add(k.shr(first, SPAN.trailing_zeros()), tid);
        body(Span { numbers, count: whole, place });
    });
}

/// Calls `body` with a logit past the last vector and its number, in the threads that have one.
fn last_logits(
    k: &Kernel,
    tid: Reg<u32>,
    (logits, count): (Pointer<Global, f32>, Reg<u32>),
    body: &mut dyn FnMut(Reg<f32>, Reg<u32>),
) {
    let number = k.add(k.and(count, u32::MAX - 3), tid);
    k.if_(k.lt(number, count), || body(k.load(k.at(logits, number)), number));
}

impl Sample<'_> {
    /// Sets the search's bound to one more than a rank with the number of the chosen token. `own` is the largest
    /// of the thread's logits.
    fn choose(&self, own: Reg<f32>, reach: Reg<u32>) {
        let (k, s) = (self.k, &self.search);
        let limit = k.var(reach);
        // Not more than there are threads, which have their largest logits.
        k.if_(k.lt(k.sub(s.options.top_k, 1u32), THREADS), || {
            k.set(limit, s.near(distance(k, self.best, own)));
        });
        let collected = k.var(u32::MAX);
        k.if_(k.either(k.ne(limit, u32::MAX), k.le(self.count, LIST)), || {
            self.collect(limit);
            k.sync_threads();
            k.set(collected, k.load(self.collected));
        });
        k.if_else(
            k.le(collected, LIST),
            || {
                // Threads without a token have the last one, and do nothing with it.
                let at = k.min(s.tid, k.sub(collected, 1u32));
                s.rank(collected, k.load(k.at(self.distances, at)), k.load(k.at(self.numbers, at)));
            },
            || {
                s.run(self.count, &|i| (distance(k, self.best, k.load(k.at(self.logits, i))), i));
            },
        );
    }

    /// Collects the tokens with keys up to `limit`.
    fn collect(&self, limit: Reg<u32>) {
        let k = self.k;
        // Keys go up with distances.
        let near = |top: Reg<f32>| k.le(key(k, distance(k, self.best, top)), limit);
        each_span(k, self.search.tid, self.count, &mut |span| {
            k.if_(near(k.load(k.at(self.tops, span.place))), || {
                let loaded = span.numbers.map(|number| span.load(k, self.logits, number));
                for (values, number) in loaded.into_iter().zip(span.numbers) {
                    let top = values.into_iter().reduce(|a, b| k.max(a, b)).unwrap_or(self.best);
                    k.if_(k.both(k.lt(number, span.count), near(top)), || {
                        for (i, value) in (0u32..).zip(values) {
                            self.collect_one(limit, value, k.mad(number, 4u32, i));
                        }
                    });
                }
            });
        });
        last_logits(k, self.search.tid, (self.logits, self.count), &mut |value, number| {
            self.collect_one(limit, value, number);
        });
    }

    fn collect_one(&self, limit: Reg<u32>, value: Reg<f32>, number: Reg<u32>) {
        let k = self.k;
        let d = distance(k, self.best, value);
        k.if_(k.both(there(k, d), k.le(key(k, d), limit)), || {
            let at = k.atomic(self.collected, Atomic::Add, 1u32);
            k.if_(k.lt(at, LIST), || {
                k.store(k.at(self.distances, at), d);
                k.store(k.at(self.numbers, at), number);
            });
        });
    }
}
