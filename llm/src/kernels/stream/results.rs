//! The results warp: adds the consumers' sums of eight tiles at a time, four lanes per tile and four rows per
//! lane, and passes what they become to the other blocks.

use ptxgen::{Cache, Global, Pointer, Pred, Reg};

use crate::kernels::activation::{gelu, silu_times};
use crate::kernels::rotation::{angle, rotate_pair};
use crate::kernels::state::{Best, TOKENS_AT, take_better, warp_best};
use crate::kernels::stream::block::{Stream, own};
use crate::kernels::stream::layout::{CHUNK, CONSUMERS, TILE_SUMS};
use crate::kernels::stream::record::{ADD, BIASED, GATE, GELU, HEADS, NORM, at, segment};
use crate::kernels::stream::sync::{CANDIDATES, FIRST_PHASE_AT, PHASES_PER_STEP};
use crate::kernels::stream::variant::Style;

/// Rows of a lane.
const ROWS: u32 = 4;
/// Candidates for the next token that a lane receives at a time.
const TOGETHER: usize = 5;

/// Four rows of a tile.
struct Rows {
    /// Whether there are any.
    there: Pred,
    /// Number of the segment, and of the first row in it and in the phase.
    segment: Reg<u32>,
    row: Reg<u32>,
    phase_row: Reg<u32>,
    /// Rows of the segment.
    rows: Reg<u32>,
    /// Number of the first among the block's rows of the segment.
    local: Reg<u32>,
    /// Number of the tile in its chunk; of the first one if there is none.
    in_chunk: Reg<u32>,
    /// The factor of sums.
    factor: Reg<f32>,
}

/// Destination of results: packets, and the phase number that they get.
struct To {
    packets: Pointer<Global, u32>,
    phase: Reg<u32>,
}

impl Stream<'_> {
    /// A matrix phase of the results warp.
    pub(super) fn use_results(&self, best: Best) {
        let k = self.k;
        let (shares, all) = self.shares();
        let [a, b, _] = shares;
        let second = k.add(a.count, b.count);
        let normed = k.var(1f32);
        k.for_(0u32, all, CHUNK, |first: Reg<u32>| {
            let tile = k.add(first, k.shr(self.lane, 2));
            let (after_one, after_two) = (k.ge(tile, a.count), k.ge(tile, second));
            let pick = |x: [Reg<u32>; 3]| k.select(after_two, x[2], k.select(after_one, x[1], x[0]));
            let number = k.add(k.select(after_one, 1u32, 0u32), k.select(after_two, 1u32, 0u32));
            let before = k.select(after_two, second, k.select(after_one, a.count, 0u32));
            let record = self.segment(number);
            let in_block = k.sub(tile, before);
            let quad = k.mul(k.and(self.lane, 3), ROWS);
            let row = k.mad(k.add(pick(shares.map(|s| s.first)), in_block), 16u32, quad);
            let rows = k.load(record.plus(segment::ROWS));
            let rows = Rows {
                there: k.both(k.lt(tile, all), k.lt(row, rows)),
                segment: number,
                row,
                phase_row: k.add(row, k.load(record.plus(segment::FIRST_ROW))),
                rows,
                local: k.mad(in_block, 16u32, quad),
                in_chunk: k.select(k.lt(tile, all), k.shr(self.lane, 2), 0u32),
                factor: k.bits(k.load(record.plus(segment::FACTOR))),
            };
            self.use_chunk(first, &rows, normed, best);
        });
    }

    fn use_chunk(&self, first: Reg<u32>, rows: &Rows, normed: Reg<f32>, best: Best) {
        let k = self.k;
        let epilogue = self.word(at::EPILOGUE);
        let is = |code: u32| k.eq(epilogue, code);
        // Inputs of the results besides the sums are fetched before these are complete.
        let residual = [(); 4].map(|()| k.var(0f32));
        k.if_(is(ADD), || {
            let index = k.select(rows.there, k.shr(rows.row, 2), 0u32);
            let from = self.packet(self.address(at::RESIDUAL), index);
            let [values] = self.receive([from], self.phase(at::RESIDUAL_INPUT));
            residual.iter().zip(values).for_each(|(to, value)| k.set(*to, value));
        });
        let biased = self.is_set(BIASED);
        let plain = self.variant.style == Style::Plain;
        self.load_biases(biased, rows, residual);
        let turns = [(); 2].map(|()| (k.var(0f32), k.var(1f32)));
        k.if_(k.both(is(HEADS), k.both(rows.there, k.lt(rows.phase_row, self.word(at::K_ROWS)))), || {
            let pair = k.shr(k.rem(rows.phase_row, self.word(at::HEAD_DIM)), 1);
            let from = k.at(self.address::<u64>(at::TURNS), k.scale(k.shr(pair, 1), 2));
            let steps = k.load_n::<2, _, _>(from, Cache::ReadOnly);
            for ((sin, cos), step) in turns.into_iter().zip(steps) {
                let (s, c) = angle(k, step, self.position());
                k.set(sin, s);
                k.set(cos, c);
            }
        });

        let (buffer, lap) = self.buffer();
        let tile = k.mad(buffer, CHUNK, rows.in_chunk);
        let from = k.at_stride(k.at_stride(self.sums.values, tile, 4 * TILE_SUMS), k.and(self.lane, 3), 16);
        let to = To { packets: self.address(at::OUT), phase: self.phase(at::OUTPUT) };
        let (inverse_len, eps) = (self.number(at::INVERSE_LEN), self.number(at::EPS));
        let norm = self.is_set(NORM);
        self.wait_phase(self.barrier(self.sums.full, buffer), lap);
        let parts: Vec<[Reg<f32>; 4]> =
            (0..CONSUMERS).map(|w| k.load_n(from.plus(i64::from(16 * w)), Cache::Default)).collect();
        // Loaded with the sums: a wait less where they count.
        let squares = k.at(self.sums.squares, k.scale(buffer, CONSUMERS));
        let squares = k.load_n::<{ CONSUMERS as usize }, _, _>(squares, Cache::Default);
        let sums: [Reg<f32>; 4] =
            std::array::from_fn(|i| tree(k, &parts.iter().map(|p| p[i]).collect::<Vec<_>>()));
        // In plain layers the input is normalized.
        if !plain {
            let inverse = k.rsqrt(k.mad(tree(k, &squares), inverse_len, eps));
            k.set(normed, k.select(k.both(k.eq(first, 0), norm), inverse, normed));
        }
        let factor = k.mul(normed, rows.factor);
        let values = sums.map(|sum| k.mul(sum, factor));
        let end = k.label();
        k.if_(is(ADD), || {
            let sums = [0, 1, 2, 3].map(|i| k.add(residual[i], values[i]));
            k.if_(rows.there, || self.send_rows(&to, rows.row, sums));
            k.branch(end);
        });
        if plain {
            k.if_(is(GELU), || {
                let values = [0, 1, 2, 3].map(|i| gelu(k, k.add(values[i], residual[i])));
                k.if_(rows.there, || self.send_rows(&to, rows.row, values));
                k.branch(end);
            });
        } else {
            k.if_(is(GATE), || {
                self.gate(&to, rows, values);
                k.branch(end);
            });
        }
        k.if_(is(HEADS), || {
            let values = values.map(|v| k.var(v));
            k.if_(biased, || values.iter().zip(residual).for_each(|(v, b)| k.add_to(*v, b)));
            let [a, b, c, d] = values;
            let [(x, y), (z, w)] = [rotate_pair(k, turns[0], a, b), rotate_pair(k, turns[1], c, d)];
            k.if_(rows.there, || self.send_rows(&to, rows.phase_row, [x, y, z, w]));
            k.branch(end);
        });
        self.store_logits(rows, values, best);
        k.bind(end);
        self.arrive_warp(self.barrier(self.sums.empty, buffer));
        k.add_to(self.sums.chunk, 1);
    }

    /// Loads the biases of the rows, if the phase has some, to `residual`; in plain layers they are added to it.
    fn load_biases(&self, biased: Pred, rows: &Rows, residual: [Reg<f32>; 4]) {
        let k = self.k;
        let plain = self.variant.style == Style::Plain;
        k.if_(k.both(biased, rows.there), || {
            let biases = self.address::<f32>(if plain { at::BIAS } else { at::RESIDUAL });
            let from = k.at(biases, k.scale(k.shr(rows.phase_row, 2), 4));
            let biases = k.load_n::<4, _, _>(from, Cache::ReadOnly);
            for (to, value) in residual.iter().zip(biases) {
                if plain {
                    k.add_to(*to, value);
                } else {
                    k.set(*to, value);
                }
            }
        });
    }

    /// Passes on four values from `row` on of the phase's results.
    fn send_rows(&self, to: &To, row: Reg<u32>, values: [Reg<f32>; 4]) {
        self.send(self.packet(to.packets, self.k.shr(row, 2)), values, to.phase);
    }

    /// Keeps the gate's values; multiplies those of the second segment with them.
    fn gate(&self, to: &To, rows: &Rows, values: [Reg<f32>; 4]) {
        let k = self.k;
        let place = k.at(self.held, k.scale(k.shr(rows.local, 2), 4));
        let of = |number: u32| k.both(rows.there, k.eq(rows.segment, number));
        k.if_(of(0), || k.store_n(place, &values));
        k.sync_warp();
        k.if_(of(1), || {
            let gates = k.load_n::<4, _, _>(place, Cache::Default);
            self.send_rows(to, rows.row, std::array::from_fn(|i| silu_times(k, gates[i], values[i])));
        });
        k.sync_warp();
    }

    fn store_logits(&self, rows: &Rows, values: [Reg<f32>; 4], best: Best) {
        let k = self.k;
        let out = k.at(self.address::<f32>(at::OUT), k.scale(k.shr(rows.row, 2), 4));
        let whole = k.le(k.add(rows.row, ROWS), rows.rows);
        k.if_(k.both(rows.there, whole), || k.store_n(out, &values));
        for (i, value) in (0..).zip(values) {
            let row = k.add(rows.row, i);
            let there = k.both(rows.there, k.lt(row, rows.rows));
            k.if_(k.both(there, k.unless(whole)), || k.store(out.plus(i.into()), value));
            k.if_(there, || take_better(k, best, (value, row)));
        }
    }

    /// The end of a step: every block says that it has completed it, and the first block, once all have, chooses the
    /// token and moves to the next position.
    pub(super) fn finish(&self, best: Best) {
        let k = self.k;
        let phase = k.add(k.load(self.own.plus(own::FIRST_PHASE)), PHASES_PER_STEP - 1);
        warp_best(k, best);
        let candidates: Pointer<Global, u32> = self.sync.plus(CANDIDATES.into());
        k.if_(k.eq(self.lane, 0), || {
            let zero = k.var(0u32);
            let words = [k.bits(best.0), best.1, zero, phase];
            k.store_relaxed_b128(self.packet(candidates, self.block()), words);
        });
        k.if_(k.eq(self.block(), 0), || {
            let count = self.blocks();
            let last = k.sub(count, 1);
            k.for_(0u32, count, 32 * TOGETHER as u32, |first: Reg<u32>| {
                let index = |i| k.min(k.add(k.add(first, 32 * i as u32), self.lane), last);
                let from: [_; TOGETHER] = std::array::from_fn(|i| self.packet(candidates, index(i)));
                let words = from.map(|_| [(); 4].map(|()| k.reg()));
                self.request(from, words);
                self.settle(from, words, phase);
                words.iter().for_each(|words| take_better(k, best, (k.bits(words[0]), words[1])));
            });
            warp_best(k, best);
            k.if_(k.eq(self.lane, 0), || {
                let next = k.add(self.position(), 1);
                // Logits without any number give token 0.
                let token = k.select(k.eq(best.1, u32::MAX), 0u32, best.1);
                k.store(k.at(self.state.plus(i64::from(TOKENS_AT)), next), token);
                k.store(self.state, next);
                let first = k.load(self.own.plus(own::FIRST_PHASE));
                k.store(self.sync.plus(FIRST_PHASE_AT.into()), k.add(first, PHASES_PER_STEP));
            });
        });
    }
}

/// The sum of numbers, in few steps.
fn tree(k: &ptxgen::Kernel, numbers: &[Reg<f32>]) -> Reg<f32> {
    match numbers {
        [one] => *one,
        _ => {
            let (a, b) = numbers.split_at(numbers.len() / 2);
            k.add(tree(k, a), tree(k, b))
        }
    }
}
