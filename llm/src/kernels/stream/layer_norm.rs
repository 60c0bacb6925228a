//! The input of a matrix phase behind a layer norm, in kernels for plain layers.
//!
//! Every block receives the whole input anyway, so its consumers compute mean and variance among themselves:
//! two sums meet in shared memory, and nothing more is exchanged between blocks. The mean is subtracted
//! before the variance is computed and before values are quantized, so one that is large against the
//! deviation costs no digits. A consumer keeps its values in registers meanwhile, so it has a single column.

use ptxgen::{Cache, Reg};

use crate::kernels::stream::block::{Packet, Stream};
use crate::kernels::stream::input::{Column, PACKETS};
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::record::at;

/// The barrier at which consumers meet. Attention has another: a warp may arrive there and go on.
const MEET: u32 = 2;

impl Stream<'_> {
    /// Receives the consumer's column and stores it, normalized, as the products take it. In all consumers of
    /// a block, also in those without a column.
    pub(super) fn prepare_layer_norm(&self, early: [Packet; PACKETS]) {
        let k = self.k;
        let there = k.lt(self.warp, self.word(at::COLUMNS));
        let count = self.word(at::PACKETS);
        let indices = self.indices::<PACKETS>(self.warp);
        let inside = indices.map(|index| k.both(there, k.lt(index, count)));
        k.if_(there, || self.settle(self.places(self.warp), early, self.phase(at::INPUT)));
        self.stamp(1);
        let received = early.map(|words| self.unpack(words));
        // They arrive while the sums are exchanged: registers are too few to hold them before.
        let [weights, biases] = [at::WEIGHT, at::NORM_BIAS].map(|address| {
            let from = self.address::<f32>(address);
            let loaded = inside.map(|_| [(); 4].map(|()| k.var(0u32)));
            for ((words, index), inside) in loaded.iter().zip(indices).zip(inside) {
                k.load_words_where(Some(inside), k.at(from, k.scale(index, 4)), words, Cache::ReadOnly);
            }
            loaded.map(|words| words.map(|word| k.bits::<u32, f32>(word)))
        });
        let masked = |values: &Column| -> Column {
            std::array::from_fn(|i| values[i].map(|value| k.select(inside[i], value, 0f32)))
        };
        let received = masked(&received);
        let inverse = self.number(at::INVERSE_LEN);
        let sum = k.var(0f32);
        received.as_flattened().iter().for_each(|value| k.add_to(sum, *value));
        let mean = k.mul(self.sum_of_consumers(sum, 0), inverse);
        let centered = masked(&received.map(|values| values.map(|value| k.sub(value, mean))));
        let squares = k.var(0f32);
        centered.as_flattened().iter().for_each(|value| k.mad_to(squares, *value, *value, squares));
        let variance = k.mul(self.sum_of_consumers(squares, CONSUMERS), inverse);
        let scale = k.rsqrt(k.add(variance, self.number(at::EPS)));
        let values: Column = std::array::from_fn(|i| {
            std::array::from_fn(|v| k.mad(k.mul(centered[i][v], scale), weights[i][v], biases[i][v]))
        });
        k.if_(there, || {
            self.if_bytes(|| {
                let integers = self.quantize(self.warp, &values, self.top(&values));
                self.if_sums(|| self.sum_units(self.warp, &integers));
            });
            self.if_numbers(|| self.store_numbers(self.warp, &values));
        });
    }

    /// The sum of the consumers' `value`s, each of which is summed over its warp, in all of them; their words
    /// of shared memory begin with word `at`.
    ///
    /// Words are written again one norm later: a warp that has come to its next barrier has read those
    /// before.
    fn sum_of_consumers(&self, value: Reg<f32>, at: u32) -> Reg<f32> {
        let k = self.k;
        let own = k.warp_sum(value);
        let Some(moments) = self.moments else { return own };
        let words = moments.plus(i64::from(at));
        k.if_(k.eq(self.lane, 0), || k.store(k.at(words, self.warp), own));
        k.sync_named(MEET, 32 * CONSUMERS);
        let all = k.load_n::<{ CONSUMERS as usize }, _, _>(words, Cache::Default);
        all.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or(own)
    }
}
