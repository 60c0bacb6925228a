//! Attention of one query position over a cache in q8_0: as
//! [`attention`](crate::kernels::operations::attention), always split-K.
//!
//! Scores are integer dot products with the query as 16-bit integers, so that their error is far below that
//! of the cache. For the weighted sum of values every lane takes four neighbouring dimensions; with short
//! heads the other lanes take a second position.

use half::f16;
use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Ptr, Reg, Shared, Shuffle, Special, kernel_params};

use crate::cache::BLOCK;
use crate::kernels::cache::{largest, numbers, product, scales, split, to_integers};
use crate::kernels::heads::LOWEST;
use crate::kernels::limits::{Limits, infix};
use crate::kernels::operations::attention::{Meeting, THREADS, WARPS, first_tile, is_seen, weigh};

kernel_params! {
    /// `attention_q8_0_DIM` for heads of up to `dims` dimensions, a multiple of 32. Grid: `[heads, shares]`;
    /// `out` is the scratch buffer of `attention_combine`.
    ///
    /// `attention_limited_q8_0_DIM` takes two parameters more, `window` and `cap` of
    /// [`limits`](crate::kernels::limits).
    pub struct QuantizedAttention(limited: bool) {
        q: Ptr<f32, 16>, keys: Ptr<u8, 16>, values: Ptr<u8, 16>, state: Ptr<u32, 16>,
        out: Ptr<f32, 16>,
        context: u32, head_dim: Multiple = BLOCK, group: u32, scale: f32,
        scales_at: Multiple = BLOCK,
        window: Option<u32> = limited.then_some(()),
        cap: Option<f32> = limited.then_some(()),
    }
}

pub(crate) fn kernel(dims: u32, limited: bool) -> Kernel {
    let k = Kernel::new(&format!("attention_{}q8_0_{dims}", infix(limited)));
    k.max_threads(THREADS);
    let p = QuantizedAttention::declare(&k, limited);
    let limits = Limits::new(&k, (p.window, p.cap));

    let query = Query::new(&k, dims);
    let meeting = Meeting::new(&k, dims);
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let warp = k.shr(tid, 5);
    let (head, share) = (k.special(Special::CtaidX), k.special(Special::CtaidY));
    let positions = k.add(k.load(p.state), 1);
    let newest = k.sub(positions, 1);

    let quads = query.store(&k, p.q, (tid, head), p.head_dim, p.scale);
    k.sync_threads();

    let blocks = k.halve(p.head_dim, BLOCK.trailing_zeros());
    let first_row = k.mul(k.div(head, p.group), p.context);
    let rows = [p.keys, p.values].map(|cache| k.row(cache, first_row, p.head_dim));
    let row_scales = [p.keys, p.values].map(|cache| k.row(scales(&k, cache, p.scales_at), first_row, blocks));
    // Lanes that share a position, and the words that each of them takes; past the end of the head they
    // repeat its last one and are not stored.
    let lanes = (dims / 4).min(32);
    let slots = 32 / lanes;
    let slot = k.shr(lane, lanes.trailing_zeros());
    let own: Vec<Reg<u32>> = (0..dims / 4).step_by(32).map(|i| k.add(k.and(lane, lanes - 1), i)).collect();
    let safe: Vec<_> = own.iter().map(|word| k.min(*word, k.sub(quads, 1))).collect();
    let (max, sum) = (k.var(LOWEST), k.var(0f32));
    let sums: Vec<[Reg<f32>; 4]> = own.iter().map(|_| [(); 4].map(|()| k.var(0f32))).collect();

    let first = limits.map(|limits| limits.first(&k, positions));
    let first_tile = first_tile(&k, first, (share, warp));
    k.for_(first_tile, positions, k.mul(k.special(Special::NctaidY), 32 * WARPS), |tile: Reg<u32>| {
        // One position per lane.
        let mine = k.add(tile, lane);
        let inside = is_seen(&k, mine, (first, positions));
        let position = k.min(mine, newest);
        let key = k.row(rows[0], position, p.head_dim);
        let key_scales = k.row(row_scales[0], position, blocks);
        let score = Limits::apply(limits, &k, query.score(&k, key, key_scales, blocks.reg()));
        let weight = weigh(&k, score, inside, (max, sum), sums.iter().flatten());
        // Four positions at a time; weights past the end are 0.
        let count = k.min(k.sub(positions, tile), 32u32);
        k.for_(0u32, count, 4u32, |i: Reg<u32>| {
            let loaded: Vec<_> = (0..4u32)
                .step_by(slots as usize)
                .map(|n| {
                    let at = k.add(k.add(i, n), slot);
                    let position = k.min(k.add(tile, at), newest);
                    let row = k.row(rows[1], position, p.head_dim).cast::<u32>();
                    let scales = k.row(row_scales[1], position, blocks);
                    let words: Vec<_> = safe
                        .iter()
                        .map(|word| (k.load(k.at(row, *word)), k.load(k.at(scales, k.shr(*word, 3)))))
                        .collect();
                    (k.broadcast(weight, at), words)
                })
                .collect();
            for (weight, words) in loaded {
                for ((word, scale), sums) in words.into_iter().zip(&sums) {
                    let weight = k.mul(weight, k.convert::<f16, f32>(scale));
                    for (sum, number) in sums.iter().zip(numbers(&k, word)) {
                        k.mad_to(*sum, weight, number, *sum);
                    }
                }
            }
        });
    });
    if slots > 1 {
        for s in sums.iter().flatten() {
            k.set(*s, k.add(*s, k.shuffle(*s, Shuffle::Xor(lanes))));
        }
    }
    let mine = meeting.place(&k, warp);
    for (word, sums) in own.iter().zip(&sums) {
        k.store_n(k.at(mine, k.scale(*word, 4)), sums);
    }
    meeting.merge(&k, (max, sum), (head, share), p.head_dim, p.out, true);
    k
}

/// The query in shared memory, as 16-bit integers with a scale per block.
struct Query {
    high: Pointer<Shared, u32>,
    low: Pointer<Shared, u32>,
    scales: Pointer<Shared, f32>,
}

impl Query {
    fn new(k: &Kernel, dims: u32) -> Self {
        let (high, low) = (k.shared::<u32>(dims / 4), k.shared::<u32>(dims / 4));
        Self { high, low, scales: k.shared::<f32>(dims / BLOCK) }
    }

    /// Converts the query of `head`, four values per thread, and returns the number of fours. Scores are in
    /// units of log2: exp2 is the softmax's exponential.
    fn store(
        &self,
        k: &Kernel,
        q: Pointer<Global, f32>,
        (tid, head): (Reg<u32>, Reg<u32>),
        head_dim: Multiple,
        scale: Reg<f32>,
    ) -> Reg<u32> {
        let quads = k.halve(head_dim, 2).reg();
        let quad = k.min(tid, k.sub(quads, 1));
        let four = k.load_n::<4, _, _>(k.at(k.row(q, head, head_dim), k.scale(quad, 4)), Cache::Default);
        let top = largest(k, &four, &[4, 2, 1]);
        let (inverse, _) = to_integers(k, top);
        let [high, low] = split(k, four, inverse);
        k.if_(k.lt(tid, quads), || {
            k.store(k.at(self.high, tid), high);
            k.store(k.at(self.low, tid), low);
            k.if_(k.eq(k.and(tid, 7), 0), || {
                let scale = k.mul(scale, std::f32::consts::LOG2_E / 32767.0);
                k.store(k.at(self.scales, k.shr(tid, 3)), k.mul(top, scale));
            });
        });
        quads
    }

    /// The score of the cached row `key` of `blocks` blocks.
    fn score(
        &self,
        k: &Kernel,
        key: Pointer<Global, u8>,
        key_scales: Pointer<Global, f16>,
        blocks: Reg<u32>,
    ) -> Reg<f32> {
        let score = k.var(0f32);
        k.for_(0u32, blocks, 1u32, |block: Reg<u32>| {
            let quants = k.load_with(k.at(key, k.scale(block, BLOCK)).cast::<u32>(), 8, Cache::Default);
            let words =
                |from: Pointer<Shared, u32>| k.load_with(k.at(from, k.scale(block, 8)), 8, Cache::Default);
            let product = product(k, &quants, &words(self.high), &words(self.low));
            let key_scale = k.convert::<f16, f32>(k.load(k.at(key_scales, block)));
            k.mad_to(score, product, k.mul(key_scale, k.load(k.at(self.scales, block))), score);
        });
        score
    }
}
