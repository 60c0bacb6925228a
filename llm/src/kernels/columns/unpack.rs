//! The weights of a tile as left factors of the tensor cores: a lane has units t and t + 4 of rows g and g +
//! 8, with g = lane / 4 and t = lane % 4.
//!
//! Types with a scale per 256 values become integers, which f16 holds (those of Q6_K past 2048 lose one bit),
//! and the scale is applied to the sums. Those of Q2_K have their minimum subtracted, of which scale and minimum
//! are numbers to the larger of the block's two scales, rounded to f16. Those of types with a codebook are exact.
//! Types with a scale per 32 values, and
//! numbers, are rounded to f16.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Pointer, Reg, Shared};

use crate::kernels::format::{Format, Packed};

/// 1024 as f16: its last bits are a byte's.
const BYTE_BASE: u32 = 0x6464_6464;

/// A tile as it is stored, in registers, and the type's codebook.
pub(super) struct Raw(Vec<Reg<u32>>, Option<Pointer<Shared, u32>>);

/// Factors of a row's sums of a tile.
pub(super) struct Supers {
    /// Of the sums; none for 1.
    pub all: Option<Reg<f32>>,
    /// Of the sums of minima.
    pub least: Option<Reg<f32>>,
}

/// Two halves of the same number.
fn twice(k: &Kernel, value: f32) -> Reg<F16x2> {
    let bits = u32::from(f16::from_f32(value).to_bits());
    k.bits::<u32, F16x2>(k.var(bits << 16 | bits))
}

/// Bytes `a` and `b` of `word`, unsigned, plus 1024.
fn pair(k: &Kernel, word: Reg<u32>, a: u32, b: u32) -> Reg<F16x2> {
    k.bits::<u32, F16x2>(k.prmt(word, BYTE_BASE, 0x4040 | a | b << 8))
}

/// Half `number` of a word, twice.
fn half_twice(k: &Kernel, word: Reg<u32>, number: u32) -> Reg<F16x2> {
    k.bits::<u32, F16x2>(k.prmt(word, 0u32, [0x1010u32, 0x3232][number as usize]))
}

fn low_half(k: &Kernel, word: Reg<u32>) -> Reg<f32> {
    k.convert::<f16, f32>(k.unpack(k.bits::<u32, F16x2>(word)).0)
}

impl Raw {
    /// Registers for a tile of a quantized type.
    pub fn new(k: &Kernel, format: Format, book: Option<Pointer<Shared, u32>>) -> Self {
        let words: u32 =
            format.sections().iter().flat_map(|s| s.lane_pieces()).map(|(_, bytes)| bytes.div_ceil(4)).sum();
        Self((0..words).map(|_| k.var(0u32)).collect(), book)
    }

    /// A copy in registers of its own.
    pub fn copied(&self, k: &Kernel) -> Self {
        Self(self.0.iter().map(|word| k.var(*word)).collect(), self.1)
    }

    /// Loads the lane's part of the tile at `tile`.
    pub fn load(&self, k: &Kernel, format: Format, tile: Pointer<Global, u8>, lane: Reg<u32>) {
        format.load_lane(k, tile, lane, &self.0, Cache::Stream);
    }

    /// Bytes t of the three words of scales and minima of row `g + 8h`.
    fn six_bits(&self, k: &Kernel, h: usize, lane: Reg<u32>) -> SixBits {
        let [a, b, c] = [1, 2, 3].map(|i| self.0[16 + 4 * h + i]);
        let t = k.and(lane, 3);
        let two = k.prmt(a, b, k.mad(t, 0x11u32, 0x40u32));
        let three = k.prmt(two, c, k.mad(t, 0x100u32, 0x410u32));
        // Of units t: scale and minimum in bytes 0 and 1. Of units t + 4: their low bits in the nibbles of
        // byte 2, the high ones in the highest of bytes 0 and 1.
        let first = k.and(three, 0x3f3fu32);
        let low = k.mask_or(k.shr(three, 16), 0xfu32, k.and(k.shr(three, 12), 0xf00u32));
        let second = k.mask_or(k.shr(three, 2), 0x3030u32, low);
        SixBits { first, second }
    }

    /// The left factors of a quarter of units `t + 4s` of both rows: for each four values those of row g, then
    /// of row g + 8. What quarters have in common is computed for each, so that few registers hold it: the
    /// compiler decides.
    pub fn factors(
        &self,
        k: &Kernel,
        format: Format,
        (s, piece): (usize, usize),
        lane: Reg<u32>,
    ) -> [[Reg<F16x2>; 4]; 2] {
        let [g, other] = [0, 1].map(|h| self.row(k, format, (h, s, piece), lane));
        [0, 1].map(|i| [g[i][0], other[i][0], g[i][1], other[i][1]])
    }

    /// Four and four values of a quarter of unit `t + 4s` of row `g + 8h`.
    fn row(
        &self,
        k: &Kernel,
        format: Format,
        (h, s, piece): (usize, usize, usize),
        lane: Reg<u32>,
    ) -> [[Reg<F16x2>; 2]; 2] {
        let quads = match format.has_codebook() {
            true => format.coded(k, &self.unit(k, format, (h, s), lane), piece as u32),
            false => {
                let quads = format.lane_quads(k, &self.0, (h, s), None);
                [quads[2 * piece], quads[2 * piece + 1]]
            }
        };
        let signed = !format.has_minimum();
        let pairs = |word: Reg<u32>| {
            let bytes = if signed { k.xor(word, 0x8080_8080u32) } else { word };
            [pair(k, bytes, 0, 1), pair(k, bytes, 2, 3)]
        };
        let fused = |pairs: [Reg<F16x2>; 2], scale: Reg<F16x2>, bias: Reg<F16x2>| {
            pairs.map(|pair| k.mad::<F16x2>(pair, scale, bias))
        };
        let base = if signed { 1152.0 } else { 1024.0 };
        match format {
            Format::Q6K => {
                // Integers are four times too large: an eighth of the scale keeps its product with 1152 in
                // f16.
                let scales = k.xor(self.0[24 + h], 0x8080_8080u32);
                // A scale for every half of a unit.
                let byte = 2 * s as u32 + piece as u32 / 2;
                let eighth = k.mad(pair(k, scales, byte, byte), twice(k, 0.125), twice(k, -144.0));
                let bias = k.mul(eighth, twice(k, -base));
                quads.map(|word| fused(pairs(word), eighth, bias))
            }
            Format::Q4K | Format::Q5K => {
                let six = self.six_bits(k, h, lane);
                let scale = pair(k, if s == 0 { six.first } else { six.second }, 0, 0);
                let scale = k.add(scale, twice(k, -1024.0));
                let bias = k.mul(scale, twice(k, -base));
                quads.map(|word| fused(pairs(word), scale, bias))
            }
            Format::Q2K => {
                // A scale and a minimum for every half of a unit.
                let at = 8 * (2 * s as u32 + piece as u32 / 2);
                let [scale, least] = self.two_supers(k, h).1;
                let of_half = |super_scale: Reg<f32>, at: u32| {
                    let whole = k.convert::<u32, f32>(k.bfe(self.0[8 + h], at, 4u32));
                    let product = k.mul(whole, super_scale);
                    k.pack_f32(product, product)
                };
                let (scale, least) = (of_half(scale, at), of_half(k.neg(least), at + 4));
                let whole = |pair: Reg<F16x2>| k.add(pair, twice(k, -base));
                quads.map(|word| pairs(word).map(|pair| k.mad::<F16x2>(whole(pair), scale, least)))
            }
            _ if format.has_codebook() => {
                // Integers times their scales are whole numbers below 2048.
                let scale = format.coded_scales(k, &self.unit(k, format, (h, s), lane))[piece / 2];
                let scale = k.add(pair(k, scale, 0, 0), twice(k, -1024.0));
                let bias = k.mul(scale, twice(k, -base));
                quads.map(|word| fused(pairs(word), scale, bias))
            }
            _ => {
                let scale = half_twice(k, self.0[if format == Format::Q8_0 { 32 } else { 16 } + h], s as u32);
                let integers = |word: Reg<u32>| {
                    let raised = format.raised();
                    fused(pairs(word), twice(k, 1.0 / raised), twice(k, -base / raised))
                };
                quads.map(|word| integers(word).map(|pair| k.mul(pair, scale)))
            }
        }
    }

    /// Unit `t + 4s` of row `g + 8h` of a type with a codebook.
    fn unit(&self, k: &Kernel, format: Format, (h, s): (usize, usize), lane: Reg<u32>) -> Packed {
        let unit = k.add(k.and(lane, 3), 4 * s as u32);
        Packed { words: format.lane_words(k, &self.0, h, s), unit, book: self.1 }
    }

    /// The minima of units t and t + 4 of both rows, as a left factor for the sums of the columns' units,
    /// which are in two parts.
    pub fn minima(&self, k: &Kernel, lane: Reg<u32>) -> [Reg<F16x2>; 4] {
        let [a, b] = [0, 1].map(|h| {
            let six = self.six_bits(k, h, lane);
            let both =
                k.bits::<u32, F16x2>(k.prmt(k.prmt(six.first, six.second, 0x0051u32), BYTE_BASE, 0x4140u32));
            k.add(both, twice(k, -1024.0))
        });
        [a, b, a, b]
    }

    /// The larger magnitude of the two scales of row `g + 8h` of Q2_K, and the two divided by it.
    fn two_supers(&self, k: &Kernel, h: usize) -> (Reg<f32>, [Reg<f32>; 2]) {
        /// Of a block of zeros.
        const TINY: f32 = 1e-20;
        let (all, least) = k.unpack(k.bits::<u32, F16x2>(self.0[10 + h]));
        let both = [all, least].map(|half| k.convert::<f16, f32>(half));
        let most = k.max(k.max(k.abs(both[0]), k.abs(both[1])), TINY);
        let inverse = k.rcp(most);
        (most, both.map(|scale| k.mul(scale, inverse)))
    }

    /// Factors of the sums of row `g + 8h`.
    pub fn supers(&self, k: &Kernel, format: Format, h: usize) -> Supers {
        match format {
            Format::Q6K => Supers { all: Some(k.mul(low_half(k, self.0[26 + h]), 2f32)), least: None },
            Format::Q4K | Format::Q5K => {
                let (all, least) = k.unpack(k.bits::<u32, F16x2>(self.0[16 + 4 * h]));
                let [all, least] = [all, least].map(|half| Some(k.convert::<f16, f32>(half)));
                Supers { all, least }
            }
            Format::Q2K => Supers { all: Some(self.two_supers(k, h).0), least: None },
            _ if format.has_codebook() => {
                let unit = Packed { words: format.lane_words(k, &self.0, h, 0), unit: self.0[0], book: None };
                let all = k.mul(low_half(k, format.coded_super(k, &unit)), 1.0 / format.raised());
                Supers { all: Some(all), least: None }
            }
            _ => Supers { all: None, least: None },
        }
    }
}

/// Scale (byte 0) and minimum (byte 1) of units t and t + 4.
struct SixBits {
    first: Reg<u32>,
    second: Reg<u32>,
}

/// Eight values in a row of a type that is not quantized, rounded to f16; zeros past the end of the row.
pub(super) fn eight(
    k: &Kernel,
    format: Format,
    row: Pointer<Global, u8>,
    first: Reg<u32>,
    inside: ptxgen::Pred,
) -> [Reg<F16x2>; 4] {
    let bytes = format.value_bytes();
    let at = k.at_stride(row, k.shr(first, 3), 8 * bytes);
    let words: Vec<Reg<u32>> = (0..2 * bytes).map(|_| k.var(0u32)).collect();
    for (i, words) in (0i64..).zip(words.chunks(4)) {
        k.load_words_where(Some(inside), at.plus_bytes(16 * i), words, Cache::Default);
    }
    std::array::from_fn(|i| match format {
        Format::F16 => k.bits::<u32, F16x2>(words[i]),
        Format::F32 => k.pack_f32(k.bits::<u32, f32>(words[2 * i]), k.bits::<u32, f32>(words[2 * i + 1])),
        _ => {
            let (lo, hi) = (k.shl(words[i], 16), k.and(words[i], 0xffff_0000u32));
            k.pack_f32(k.bits::<u32, f32>(lo), k.bits::<u32, f32>(hi))
        }
    })
}
