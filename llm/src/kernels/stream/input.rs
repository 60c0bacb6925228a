//! The input of a matrix phase. A consumer receives and quantizes only the columns that it multiplies, every
//! eighth; no other warp reads them.
//!
//! A value is `scale · (256 · high + low)` with two signed bytes; 256 values, a column of tiles, share a scale.

use ptxgen::{Cache, Global, Pointer, Reduce, Reg, Shared, Shuffle, Target};

use crate::kernels::cache::{four_bytes, largest};
use crate::kernels::format::Format;
use crate::kernels::stream::block::{Packet, Stream};
use crate::kernels::stream::layout::{CONSUMERS, input};
use crate::kernels::stream::record::{BYTES, NORM, NUMBERS, SUMS, at};
use crate::kernels::stream::variant::Style;

/// The largest magnitude becomes this: 256 · 127, so that the high byte never overflows.
const TOP: f32 = 32512.0;
/// A column whose largest magnitude is below this counts as zero.
const TINY: f32 = 1e-30;
/// 1.5 · 2^23: the low bits of a sum with it are the integer part in two's complement.
const MAGIC: f32 = 12_582_912.0;
/// Packets of a column per lane: values `4 · lane` on, and 128 later.
pub(super) const PACKETS: usize = 2;
/// The lane's values of a column.
pub(super) type Column = [[Reg<f32>; 4]; PACKETS];

impl Stream<'_> {
    /// Receives the consumer's columns and stores them into shared memory as the products take them, quantized or
    /// as numbers, with the sum of their squares.
    pub(super) fn prepare_input(&self, early: [Packet; PACKETS]) {
        let k = self.k;
        self.wait_buffer(self.sums.chunk);
        let squares = k.var(0f32);
        let receive = || {
            k.if_(k.lt(self.warp, self.word(at::COLUMNS)), || {
                k.if_else(
                    k.eq(self.word(at::GROUPS), 1),
                    || self.prepare_columns::<PACKETS, 1>(squares, Some(early)),
                    || {
                        let two = || self.prepare_columns::<{ 2 * PACKETS }, 2>(squares, None);
                        // In sm_90 code for all types four columns take too many registers.
                        if self.target < Target::Sm90
                            || self.variant.formats.len() < Format::WITHOUT_CODEBOOK.len()
                        {
                            k.if_else(self.is_set(NORM), two, || self.prepare_plain());
                        } else {
                            two();
                        }
                    },
                );
            });
        };
        match self.variant.style {
            Style::Gated => receive(),
            Style::Plain => k.if_else(self.is_set(NORM), || self.prepare_layer_norm(early), receive),
        }
        let to = k.at(self.sums.squares, k.mad(k.and(self.sums.chunk, 1), CONSUMERS, self.warp));
        k.if_(k.eq(self.lane, 0), || k.store(to, squares));
        self.stamp(2);
        k.sync_warp();
    }

    /// Numbers of the lane's packets of columns `first`, `first + 8` and so on.
    pub(super) fn indices<const N: usize>(&self, first: Reg<u32>) -> [Reg<u32>; N] {
        let k = self.k;
        let start = k.mad(first, 64u32, self.lane);
        std::array::from_fn(|i| {
            let (column, packet) = (i / PACKETS, i % PACKETS);
            k.add(start, 64 * CONSUMERS * column as u32 + 32 * packet as u32)
        })
    }

    /// The same packets; the last one where the input has no more.
    pub(super) fn places<const N: usize>(&self, first: Reg<u32>) -> [Pointer<Global, u32>; N] {
        let k = self.k;
        let x = self.address::<u32>(at::X);
        let last = k.sub(self.word(at::PACKETS), 1);
        self.indices(first).map(|index| self.packet(x, k.min(index, last)))
    }

    /// Receives the consumer's columns and stores them as above, `COLUMNS` at a time; `N` packets per lane. Then
    /// `squares` is the sum of their squares.
    fn prepare_columns<const N: usize, const COLUMNS: u32>(
        &self,
        squares: Reg<f32>,
        early: Option<[Packet; PACKETS]>,
    ) {
        let k = self.k;
        let (columns, count) = (self.word(at::COLUMNS), self.word(at::PACKETS));
        let weights = self.address::<f32>(at::WEIGHT);
        let phase = self.phase(at::INPUT);
        let indices = |first: Reg<u32>| self.indices::<N>(first);
        let places = |first: Reg<u32>| self.places::<N>(first);
        let words: [Packet; N] = match early {
            Some(early) => std::array::from_fn(|i| early[i]),
            None => [(); N].map(|()| [(); 4].map(|()| k.var(0u32))),
        };
        let normed = self.is_set(NORM);
        k.for_(self.warp, columns, CONSUMERS * COLUMNS, |first: Reg<u32>| {
            let inside = indices(first).map(|index| k.lt(index, count));
            // Loaded before the input has arrived.
            let factors = inside.map(|_| [(); 4].map(|()| k.var::<u32>(1f32.to_bits())));
            for ((factors, index), inside) in factors.iter().zip(indices(first)).zip(inside) {
                let from = k.at(weights, k.scale(index, 4));
                k.load_words_where(Some(k.both(normed, inside)), from, factors, Cache::ReadOnly);
            }
            if early.is_none() {
                k.if_(k.eq(first, self.warp), || self.request(places(first), words));
            }
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
            if COLUMNS > 1 {
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
            self.if_bytes(|| {
                each(&|column, values| {
                    let integers = self.quantize(column, values, self.top(values));
                    self.if_sums(|| self.sum_units(column, &integers));
                });
            });
            self.if_numbers(|| each(&|column, values| self.store_numbers(column, values)));
        });
        k.set(squares, k.warp_sum(squares));
    }

    /// Receives and quantizes the consumer's columns of an input without a norm, four at a time.
    fn prepare_plain(&self) {
        const COLUMNS: u32 = 4;
        const N: usize = COLUMNS as usize * PACKETS;
        let k = self.k;
        let columns = self.word(at::COLUMNS);
        let spare = k.shl(self.word(at::GROUPS), CONSUMERS.trailing_zeros());
        let phase = self.phase(at::INPUT);
        let words = [(); N].map(|()| [(); 4].map(|()| k.var(0u32)));
        k.for_(self.warp, columns, CONSUMERS * COLUMNS, |first: Reg<u32>| {
            // Values past the end repeat others: their weights are zeros.
            self.request(self.places::<N>(first), words);
            self.settle(self.places::<N>(first), words, phase);
            self.stamp(1);
            let received = words.map(|words| self.unpack(words));
            let all = received.as_chunks::<PACKETS>().0;
            let column = |i: u32| k.add(first, CONSUMERS * i);
            self.if_bytes(|| {
                let tops: Vec<Reg<f32>> = all.iter().map(|values| self.top(values)).collect();
                let integers: Vec<_> = (0..)
                    .zip(all.iter().zip(tops))
                    .map(|(i, (values, top))| {
                        // Columns past the end go where nobody reads.
                        let to = k.select(k.lt(column(i), columns), column(i), spare);
                        (to, self.quantize(to, values, top))
                    })
                    .collect();
                self.if_sums(|| integers.iter().for_each(|(to, integers)| self.sum_units(*to, integers)));
            });
            self.if_numbers(|| {
                for (i, values) in (0..).zip(all) {
                    k.if_(k.lt(column(i), columns), || self.store_numbers(column(i), values));
                }
            });
        });
    }

    /// Code for phases with segments of quantized types.
    pub(super) fn if_bytes(&self, then: impl FnOnce()) {
        match (self.variant.quantized().next(), self.variant.numbers().next()) {
            (None, _) => (),
            (_, None) => then(),
            _ => self.k.if_(self.is_set(BYTES), then),
        }
    }

    /// Code for phases with segments of types that are not quantized.
    pub(super) fn if_numbers(&self, then: impl FnOnce()) {
        match (self.variant.quantized().next(), self.variant.numbers().next()) {
            (_, None) => (),
            (None, _) => then(),
            _ => self.k.if_(self.is_set(NUMBERS), then),
        }
    }

    /// Code for phases with segments with minima.
    pub(super) fn if_sums(&self, then: impl FnOnce()) {
        if self.variant.has_minima() {
            self.k.if_(self.is_set(SUMS), then);
        }
    }

    /// The largest magnitude of a column.
    pub(super) fn top(&self, values: &Column) -> Reg<f32> {
        let k = self.k;
        let top = k.reduce(k.bits::<f32, u32>(largest(k, values.as_flattened(), &[])), Reduce::Max);
        k.max(k.bits::<u32, f32>(top), TINY)
    }

    /// Stores a column as bytes; its largest magnitude is `top`. Returns the integers, in the low bits.
    pub(super) fn quantize(
        &self,
        column: Reg<u32>,
        values: &Column,
        top: Reg<f32>,
    ) -> [[Reg<u32>; 4]; PACKETS] {
        let k = self.k;
        let inverse = k.mul(k.rcp(top), TOP);
        let place: Pointer<Shared, u8> = k.at_stride(self.inputs, column, input::BYTES);
        let words = k.at_stride(place, self.lane, 4).cast::<u32>();
        let all = values.map(|values| values.map(|v| k.bits::<f32, u32>(k.mad(v, inverse, MAGIC))));
        for (half, integers) in (0..).step_by(128).zip(&all) {
            let raised = integers.map(|q| k.add(q, 128));
            k.store(words.plus_bytes(i64::from(input::HIGH) + half), four_bytes(k, raised, 1));
            k.store(words.plus_bytes(i64::from(input::LOW) + half), four_bytes(k, *integers, 0));
        }
        k.if_(k.eq(self.lane, 0), || {
            k.store(place.plus_bytes(input::SCALE.into()).cast::<f32>(), k.mul(top, 1.0 / TOP));
        });
        all
    }

    /// Stores the sums of a column's units.
    pub(super) fn sum_units(&self, column: Reg<u32>, all: &[[Reg<u32>; 4]; PACKETS]) {
        let k = self.k;
        let place: Pointer<Shared, u8> = k.at_stride(self.inputs, column, input::BYTES);
        for (half, integers) in (0..).step_by(16).zip(all) {
            let own = integers.iter().copied().reduce(|a, b| k.add(a, b)).unwrap_or(self.lane);
            let own = k.sub(own, MAGIC.to_bits().wrapping_mul(4));
            let sum = [4, 2, 1].into_iter().fold(own, |v, n| k.add(v, k.shuffle(v, Shuffle::Xor(n))));
            let to = k.at_stride(place, k.shr(self.lane, 3), 4).plus_bytes(i64::from(input::SUMS) + half);
            k.if_(k.eq(k.and(self.lane, 7), 0), || k.store(to.cast::<u32>(), sum));
        }
    }
}
