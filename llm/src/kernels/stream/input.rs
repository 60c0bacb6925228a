//! The input of a matrix phase. A consumer receives and quantizes only the columns that it multiplies, every
//! eighth; no other warp reads them.
//!
//! A value is `scale · (256 · high + low)` with two signed bytes; 256 values, a column of tiles, share a scale.

use ptxgen::{Cache, Pointer, Reduce, Reg, Shared, Shuffle};

use crate::kernels::cache::{four_bytes, largest};
use crate::kernels::stream::block::Stream;
use crate::kernels::stream::layout::{CONSUMERS, input};
use crate::kernels::stream::record::{BYTES, NORM, NUMBERS, SUMS, at};

/// The largest magnitude becomes this: 256 · 127, so that the high byte never overflows.
const TOP: f32 = 32512.0;
/// A column whose largest magnitude is below this counts as zero.
const TINY: f32 = 1e-30;
/// 1.5 · 2^23: the low bits of a sum with it are the integer part in two's complement.
const MAGIC: f32 = 12_582_912.0;
/// Packets of a column per lane: values `4 · lane` on, and 128 later.
const PACKETS: usize = 2;
/// The lane's values of a column.
type Column = [[Reg<f32>; 4]; PACKETS];

impl Stream<'_> {
    /// Receives the consumer's columns and quantizes them into shared memory, with the sum of their squares.
    pub(super) fn prepare_input(&self) {
        let k = self.k;
        self.wait_buffer(self.sums.chunk);
        let squares = k.var(0f32);
        k.if_(k.lt(self.warp, self.word(at::COLUMNS)), || {
            k.if_else(
                k.eq(self.word(at::GROUPS), 1),
                || self.prepare_columns::<PACKETS, 1>(squares),
                || self.prepare_columns::<{ 2 * PACKETS }, 2>(squares),
            );
        });
        let to = k.at(self.sums.squares, k.mad(k.and(self.sums.chunk, 1), CONSUMERS, self.warp));
        k.if_(k.eq(self.lane, 0), || k.store(to, squares));
        self.stamp(2);
        k.sync_warp();
    }

    /// Receives and quantizes the consumer's columns, `COLUMNS` at a time; `N` packets per lane. Then
    /// `squares` is the sum of their squares.
    fn prepare_columns<const N: usize, const COLUMNS: u32>(&self, squares: Reg<f32>) {
        let k = self.k;
        let (columns, count) = (self.word(at::COLUMNS), self.word(at::PACKETS));
        let (x, weights) = (self.address::<u32>(at::X), self.address::<f32>(at::WEIGHT));
        let phase = self.phase(at::INPUT);
        let last = k.sub(count, 1);
        let indices = |first: Reg<u32>| -> [Reg<u32>; N] {
            let start = k.mad(first, 64u32, self.lane);
            std::array::from_fn(|i| {
                let (column, packet) = (i / PACKETS, i % PACKETS);
                k.add(start, 64 * CONSUMERS * column as u32 + 32 * packet as u32)
            })
        };
        let places = |first| indices(first).map(|index| self.packet(x, k.min(index, last)));
        let words = [(); N].map(|()| [(); 4].map(|()| k.var(0u32)));
        let [normed, bytes, numbers] = [NORM, BYTES, NUMBERS].map(|flag| self.is_set(flag));
        k.for_(self.warp, columns, CONSUMERS * COLUMNS, |first: Reg<u32>| {
            let inside = indices(first).map(|index| k.lt(index, count));
            // Loaded before the input has arrived.
            let factors = inside.map(|_| [(); 4].map(|()| k.var::<u32>(1f32.to_bits())));
            for ((factors, index), inside) in factors.iter().zip(indices(first)).zip(inside) {
                let from = k.at(weights, k.scale(index, 4));
                k.load_words_where(Some(k.both(normed, inside)), from, factors, Cache::ReadOnly);
            }
            k.if_(k.eq(first, self.warp), || self.request(places(first), words));
            self.settle(places(first), words, phase);
            self.stamp(1);
            let received = words.map(|words| self.unpack(words));
            let values: [[Reg<f32>; 4]; N] = std::array::from_fn(|i| {
                std::array::from_fn(|v| {
                    let value = k.select(inside[i], received[i][v], 0f32);
                    k.mad_to(squares, value, value, squares);
                    k.mul(value, k.bits::<u32, f32>(factors[i][v]))
                })
            });
            let next = k.add(first, CONSUMERS * COLUMNS);
            if COLUMNS == 1 {
                k.set(squares, k.warp_sum(squares));
            } else {
                // The next columns are on their way meanwhile.
                k.if_(k.lt(next, columns), || self.request(places(next), words));
            }
            let each = |store: &dyn Fn(Reg<u32>, &Column)| {
                for (i, values) in (0..).zip(values.as_chunks::<PACKETS>().0) {
                    let column = k.add(first, CONSUMERS * i);
                    if i == 0 {
                        store(column, values);
                    } else {
                        k.if_(k.lt(column, columns), || store(column, values));
                    }
                }
            };
            k.if_(bytes, || each(&|column, values| self.quantize(column, values)));
            k.if_(numbers, || each(&|column, values| self.store_numbers(column, values)));
        });
        if COLUMNS > 1 {
            k.set(squares, k.warp_sum(squares));
        }
    }

    /// Quantizes a column.
    fn quantize(&self, column: Reg<u32>, values: &Column) {
        let k = self.k;
        let all = values.as_flattened();
        let top = k.reduce(k.bits::<f32, u32>(largest(k, all, &[])), Reduce::Max);
        let top = k.max(k.bits::<u32, f32>(top), TINY);
        let inverse = k.mul(k.rcp(top), TOP);
        let place: Pointer<Shared, u8> = k.at_stride(self.inputs, column, input::BYTES);
        let words = k.at_stride(place, self.lane, 4).cast::<u32>();
        let totals = values.map(|values| {
            let integers = values.map(|v| k.bits::<f32, u32>(k.mad(v, inverse, MAGIC)));
            (integers.map(|q| k.add(q, 128)), integers)
        });
        for (half, (raised, integers)) in (0..).step_by(128).zip(&totals) {
            k.store(words.plus_bytes(i64::from(input::HIGH) + half), four_bytes(k, *raised, 1));
            k.store(words.plus_bytes(i64::from(input::LOW) + half), four_bytes(k, *integers, 0));
        }
        k.if_(self.is_set(SUMS), || {
            for (half, (_, integers)) in (0..).step_by(16).zip(&totals) {
                let own = integers.iter().copied().reduce(|a, b| k.add(a, b)).unwrap_or(self.lane);
                let own = k.sub(own, MAGIC.to_bits().wrapping_mul(4));
                let sum = [4, 2, 1].into_iter().fold(own, |v, n| k.add(v, k.shuffle(v, Shuffle::Xor(n))));
                let to = k.at_stride(place, k.shr(self.lane, 3), 4).plus_bytes(i64::from(input::SUMS) + half);
                k.if_(k.eq(k.and(self.lane, 7), 0), || k.store(to.cast::<u32>(), sum));
            }
        });
        k.if_(k.eq(self.lane, 0), || {
            k.store(place.plus_bytes(input::SCALE.into()).cast::<f32>(), k.mul(top, 1.0 / TOP));
        });
    }
}
