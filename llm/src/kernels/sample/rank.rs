//! The choice among few tokens: each thread has one, and adds up the weights of those before it.

use ptxgen::{Cache, Pointer, Reg, Shared};

use crate::kernels::sample::select::Search;
use crate::kernels::sample::weigh::{key, weight};
use crate::sampler::arithmetic::Draw;

/// Words of a token in shared memory: its number and its key, which make its rank, its weight at temperature
/// 1, and the weight that it is drawn with.
const WORDS: u32 = 4;
const PLAIN_AT: i64 = 2;
const DRAWN_AT: i64 = 3;

impl Search<'_> {
    /// Chooses among `count` tokens, at most one for each thread; `distance` and `number` are those of the
    /// thread's. The bound becomes one more than a rank with the number of the chosen token. Replaces the sums
    /// by group.
    pub fn rank(&self, count: Reg<u32>, distance: Reg<f32>, number: Reg<u32>) {
        let (k, o) = (self.k, self.options);
        let here = k.lt(self.tid, count);
        let own: Pointer<Shared, u32> = k.at(self.groups, k.scale(self.tid, WORDS));
        let plain = weight(k, distance, k.var(Draw::PLAIN));
        let drawn = weight(k, distance, o.slope);
        let zero = k.var(0u32);
        k.if_(here, || k.store_n(own, &[number, key(k, distance), plain, zero]));
        k.sync_threads();

        let rank = k.load(own.cast::<u64>());
        let (place, mass) = (k.var(0u32), k.var(0u64));
        k.if_(here, || {
            k.for_(0u32, count, 1u32, |i: Reg<u32>| {
                let other = k.at(self.groups, k.scale(i, WORDS));
                let before = k.lt(k.load(other.cast::<u64>()), rank);
                k.add_to(place, k.select(before, 1u32, 0u32));
                let weight = k.load(other.plus(PLAIN_AT));
                k.add_to(mass, k.convert::<u32, u64>(k.select(before, weight, 0u32)));
            });
        });
        // The last of the `top_k`, or of all, knows the sum of their weights.
        let most = k.select(k.eq(o.top_k, 0u32), count, k.min(o.top_k, count));
        k.if_(k.both(here, k.eq(place, k.sub(most, 1u32))), || {
            k.store(self.sums, k.add(mass, k.convert::<u32, u64>(plain)));
        });
        k.sync_threads();
        let budget = k.max(k.mul_hi(k.load(self.sums), o.top_p), 1u64);
        let within = k.either(k.eq(o.top_p, Draw::ALL), k.lt(mass, budget));
        let kept = k.both(k.lt(place, most), k.both(within, k.ge(plain, o.least)));
        let drawn = k.select(kept, drawn, 0u32);
        k.if_(here, || k.store(own.plus(DRAWN_AT), drawn));
        k.sync_threads();

        let (before, all) = (k.var(0u64), k.var(0u64));
        k.if_(here, || {
            k.for_(0u32, count, 1u32, |i: Reg<u32>| {
                let other = k.at(self.groups, k.scale(i, WORDS));
                let weight = k.load(other.plus(DRAWN_AT));
                let earlier = k.lt(k.load(other.cast::<u64>()), rank);
                k.add_to(all, k.convert::<u32, u64>(weight));
                k.add_to(before, k.convert::<u32, u64>(k.select(earlier, weight, 0u32)));
            });
            let unit = k.mul_hi(all, o.random);
            let end = k.add(before, k.convert::<u32, u64>(drawn));
            k.if_(k.both(k.le(before, unit), k.lt(unit, end)), || k.store(self.found, number));
        });
        k.sync_threads();
        k.set(self.bound, k.add(k.convert::<u32, u64>(k.load_with(self.found, 1, Cache::Default)[0]), 1u64));
    }
}
