//! How each tensor type lies in device memory and how a kernel unpacks it.
//!
//! Weights stay quantized. At load each tensor is split into planes (all high bits of all rows, then all scales, ...), so that
//! every lane reads aligned, neighbouring words; no byte is added. A *unit* is what one lane unpacks at a time.
//!
//! Integers become floats without conversion instructions: the bits of `q` are placed below the exponent of 1.0, which makes
//! `1 + q/2^n`; the constant part is taken out once per unit through the sum of the activations.

use half::f16;
use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Reg};

use crate::gguf::GgmlType;

/// A tensor type that the kernels can multiply with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// 8 bits, a scale per 32.
    Q8_0,
    /// 4 bits, a scale per 32.
    Q4_0,
    /// 4 bits, scale and minimum per 32.
    Q4K,
    /// 5 bits, scale and minimum per 32.
    Q5K,
    /// 6 bits, a scale per 16.
    Q6K,
}

/// One plane of a packed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// Parameter name in the kernels.
    pub name: &'static str,
    /// Bytes that one block of [`Format::block`] values takes here.
    pub block_bytes: u32,
}

const fn plane(name: &'static str, block_bytes: u32) -> Plane {
    Plane { name, block_bytes }
}

/// What one lane has loaded of one unit.
#[derive(Debug)]
pub struct Packed {
    words: Vec<Reg<u32>>,
    scales: Vec<Reg<f32>>,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 8] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// The format of a tensor type; `None` if there are no kernels for it.
    pub const fn of(ty: GgmlType) -> Option<Self> {
        match ty {
            GgmlType::F32 => Some(Format::F32),
            GgmlType::F16 => Some(Format::F16),
            GgmlType::Bf16 => Some(Format::Bf16),
            GgmlType::Q8_0 => Some(Format::Q8_0),
            GgmlType::Q4_0 => Some(Format::Q4_0),
            GgmlType::Q4K => Some(Format::Q4K),
            GgmlType::Q5K => Some(Format::Q5K),
            GgmlType::Q6K => Some(Format::Q6K),
            _ => None,
        }
    }

    /// The tensor type.
    pub const fn ty(self) -> GgmlType {
        match self {
            Format::F32 => GgmlType::F32,
            Format::F16 => GgmlType::F16,
            Format::Bf16 => GgmlType::Bf16,
            Format::Q8_0 => GgmlType::Q8_0,
            Format::Q4_0 => GgmlType::Q4_0,
            Format::Q4K => GgmlType::Q4K,
            Format::Q5K => GgmlType::Q5K,
            Format::Q6K => GgmlType::Q6K,
        }
    }

    /// Last part of kernel names.
    pub const fn suffix(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::Q8_0 => "q8_0",
            Format::Q4_0 => "q4_0",
            Format::Q4K => "q4_k",
            Format::Q5K => "q5_k",
            Format::Q6K => "q6_k",
        }
    }

    /// Row lengths must be multiples of this. Types without blocks take 16, the granularity of activation vectors.
    pub const fn block(self) -> u32 {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 16,
            Format::Q8_0 | Format::Q4_0 => 32,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// The planes, in the order of the kernels' parameters.
    pub const fn planes(self) -> &'static [Plane] {
        const F32: &[Plane] = &[plane("values", 64)];
        const HALF: &[Plane] = &[plane("values", 32)];
        const Q8_0: &[Plane] = &[plane("quants", 32), plane("scales", 2)];
        const Q4_0: &[Plane] = &[plane("quants", 16), plane("scales", 2)];
        const Q4K: &[Plane] = &[plane("blocks", 144)];
        const Q5K: &[Plane] = &[plane("blocks", 176)];
        const Q6K: &[Plane] =
            &[plane("pairs", 128), plane("thirds", 64), plane("scales", 16), plane("supers", 2)];
        match self {
            Format::F32 => F32,
            Format::F16 | Format::Bf16 => HALF,
            Format::Q8_0 => Q8_0,
            Format::Q4_0 => Q4_0,
            Format::Q4K => Q4K,
            Format::Q5K => Q5K,
            Format::Q6K => Q6K,
        }
    }

    /// Values in a unit.
    pub(super) const fn unit(self) -> u32 {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 8,
            Format::Q8_0 | Format::Q6K => 16,
            Format::Q4_0 | Format::Q4K | Format::Q5K => 32,
        }
    }

    /// The kernel's pointer parameters, one per plane.
    pub(super) fn params(self, k: &Kernel) -> Vec<Pointer<Global, u8>> {
        self.planes().iter().map(|p| k.param_ptr::<u8>(p.name, 16)).collect()
    }

    /// Where row `row` starts in each plane.
    pub(super) fn row(
        self,
        k: &Kernel,
        planes: &[Pointer<Global, u8>],
        row: Reg<u32>,
        cols: Multiple,
    ) -> Vec<Pointer<Global, u8>> {
        let blocks = k.halve(cols, self.block().trailing_zeros());
        let of =
            |(plane, at): (&Plane, &Pointer<Global, u8>)| k.row(*at, row, k.scale(blocks, plane.block_bytes));
        self.planes().iter().zip(planes).map(of).collect()
    }

    /// Loads unit `unit` of a row.
    pub(super) fn fetch(self, k: &Kernel, row: &[Pointer<Global, u8>], unit: Reg<u32>) -> Packed {
        let half = |at: Pointer<Global, u8>| k.convert(k.load_n::<1, _, f16>(at.cast(), Cache::ReadOnly)[0]);
        let words = |at: Pointer<Global, u8>, n| k.load_with::<_, u32>(at.cast(), n, Cache::Stream);
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => {
                Packed { words: words(k.at_stride(row[0], unit, 16), 4), scales: vec![] }
            }
            Format::Q8_0 => Packed {
                words: words(k.at_stride(row[0], unit, 16), 4),
                scales: vec![half(k.at_stride(row[1], k.shr(unit, 1), 2))],
            },
            Format::Q4_0 => Packed {
                words: words(k.at_stride(row[0], unit, 16), 4),
                scales: vec![half(k.at_stride(row[1], unit, 2))],
            },
            Format::Q6K => {
                let mut all = words(k.at_stride(row[0], unit, 8), 2);
                all.extend(words(k.at_stride(row[1], unit, 4), 1));
                let scale = k.load_with::<_, i8>(k.at(row[2].cast(), unit), 1, Cache::ReadOnly)[0];
                let block = half(k.at_stride(row[3], k.shr(unit, 4), 2));
                Packed { words: all, scales: vec![k.mul(block, k.convert::<i32, f32>(scale))] }
            }
            Format::Q4K | Format::Q5K => self.fetch_k(k, row[0], unit),
        }
    }

    /// Q4_K and Q5_K: the lane's 16 bytes hold the low values of one sub-block of 32 and the high ones of the next.
    fn fetch_k(self, k: &Kernel, row: Pointer<Global, u8>, unit: Reg<u32>) -> Packed {
        let five = matches!(self, Format::Q5K);
        let block = k.at_stride(row, k.shr(unit, 3), if five { 176 } else { 144 });
        let within = k.and(unit, 7);
        let quants = k.at_stride(block.plus(if five { 48 } else { 16 }), within, 16);
        let mut words = k.load_with::<_, u32>(quants.cast(), 4, Cache::Stream);
        let pair = k.shr(within, 1);
        if five {
            // Bit 2·pair of each byte belongs to the low values, the next to the high ones.
            let high = k.at_stride(block.plus(16), k.and(within, 1), 16);
            let high = k.load_with::<_, u32>(high.cast(), 4, Cache::ReadOnly);
            words.extend(high.into_iter().map(|w| k.shr(w, k.shl(pair, 1))));
        }
        let head = k.load_with::<_, u32>(block.cast(), 4, Cache::ReadOnly);
        let [d, s0, s1, s2] = [head[0], head[1], head[2], head[3]];
        // Six-bit scales and minima of four sub-blocks, a byte each.
        let six = 0x3f3f_3f3fu32;
        let upper = k.ge(pair, 2);
        let top = |w| k.and(k.shr(w, 2), 0x3030_3030u32);
        let scales = k.select(upper, k.mask_or(s2, 0x0f0f_0f0f, top(s0)), k.and(s0, six));
        let minima = k.select(upper, k.mask_or(k.shr(s2, 4), 0x0f0f_0f0f, top(s1)), k.and(s1, six));
        let shift = k.shl(k.and(pair, 1), 4);
        let (scales, minima) = (k.shr(scales, shift), k.shr(minima, shift));
        let halves = k.unpack(k.bits(d));
        let (d, least) = (k.convert::<f16, f32>(halves.0), k.convert::<f16, f32>(halves.1));
        let times = |factor, packed, byte: u32| {
            let n: Reg<u32> = k.bfe(packed, 8 * byte, 8);
            k.mul(factor, k.convert::<u32, f32>(n))
        };
        let scales =
            vec![times(d, scales, 0), times(d, scales, 1), times(least, minima, 0), times(least, minima, 1)];
        Packed { words, scales }
    }

    /// The first value of each run of neighbouring values that unit `unit` holds.
    pub(super) fn runs(self, k: &Kernel, unit: Reg<u32>) -> Vec<Multiple> {
        match self {
            Format::Q4K | Format::Q5K => {
                // Unit 2·pair + side: values 64·pair + 16·side and 32 further.
                let low = k.sum(k.scale(k.shr(unit, 1), 64), k.scale(k.and(unit, 1), 16));
                vec![low, k.plus(low, 32)]
            }
            Format::Q4_0 => {
                let low = k.scale(unit, 32);
                vec![low, k.plus(low, 16)]
            }
            _ => vec![k.scale(unit, self.unit())],
        }
    }

    /// Whether [`Format::dot`] needs the sum of each run of activations.
    pub(super) const fn wants_sums(self) -> bool {
        matches!(self, Format::Q4_0 | Format::Q4K | Format::Q5K | Format::Q6K)
    }

    /// Adds the product of a unit's weights with its activations to `sum`. `x` holds the activations of each run.
    pub(super) fn dot(
        self,
        k: &Kernel,
        packed: &Packed,
        x: &[Vec<Reg<f32>>],
        sums: &[Reg<f32>],
        sum: Reg<f32>,
    ) {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => {
                for (w, x) in self.weights(k, packed).concat().into_iter().zip(&x[0]) {
                    k.mad_to(sum, w, *x, sum);
                }
            }
            Format::Q8_0 => {
                let part = k.var(0f32);
                for (q, x) in self.integers(k, packed)[0].iter().zip(&x[0]) {
                    k.mad_to(part, *q, *x, part);
                }
                k.mad_to(sum, part, packed.scales[0], sum);
            }
            Format::Q6K => {
                // 1 + q/64, of which 1.5 is to be taken off.
                let part = k.mul(sums[0], -1.5f32);
                for (f, x) in raised_q6(k, &packed.words).into_iter().zip(&x[0]) {
                    k.mad_to(part, f, *x, part);
                }
                k.mad_to(sum, part, k.mul(packed.scales[0], 64f32), sum);
            }
            Format::Q4_0 => {
                // 1 + q/16, of which 1 + 8/16 is to be taken off.
                for (run, (values, x)) in self.raised_k(k, &packed.words).into_iter().zip(x).enumerate() {
                    let part = k.mul(sums[run], -1.5f32);
                    for (f, x) in values.into_iter().zip(x) {
                        k.mad_to(part, f, *x, part);
                    }
                    k.mad_to(sum, part, k.mul(packed.scales[0], self.raise()), sum);
                }
            }
            Format::Q4K | Format::Q5K => {
                let raised = self.raised_k(k, &packed.words);
                for (run, (values, x)) in raised.into_iter().zip(x).enumerate() {
                    let part = k.neg::<f32>(sums[run]);
                    for (f, x) in values.into_iter().zip(x) {
                        k.mad_to(part, f, *x, part);
                    }
                    k.mad_to(sum, part, k.mul(packed.scales[run], self.raise()), sum);
                    k.mad_to(sum, k.neg::<f32>(packed.scales[2 + run]), sums[run], sum);
                }
            }
        }
    }

    /// The unit's quantized integers as floats, by run, for the types with one scale per unit.
    fn integers(self, k: &Kernel, packed: &Packed) -> Vec<Vec<Reg<f32>>> {
        let plain = |f: Reg<f32>, offset: f32, scale: f32| k.mul(k.sub(f, offset), scale);
        match self {
            Format::Q8_0 => {
                // The byte (its sign bit flipped) is the low mantissa of 2^23.
                let byte = |i: usize| {
                    let f = k.prmt(packed.words[i / 4], 0x4b00_0000u32, 0x7440 + (i as u32 % 4));
                    k.sub(k.bits::<u32, f32>(f), 8_388_736f32)
                };
                vec![(0..16).map(byte).collect()]
            }
            Format::Q6K => {
                vec![raised_q6(k, &packed.words).into_iter().map(|f| plain(f, 1.5, 64.0)).collect()]
            }
            Format::Q4_0 | Format::Q4K | Format::Q5K => {
                let one = if self == Format::Q4_0 { 1.5 } else { 1.0 };
                let runs = self.raised_k(k, &packed.words).into_iter();
                runs.map(|run| run.into_iter().map(|f| plain(f, one, self.raise())).collect()).collect()
            }
            Format::F32 | Format::F16 | Format::Bf16 => vec![],
        }
    }

    /// The unit's weights by run, exactly as the type defines them.
    pub(super) fn weights(self, k: &Kernel, packed: &Packed) -> Vec<Vec<Reg<f32>>> {
        match self {
            Format::F32 => vec![packed.words.iter().map(|w| k.bits(*w)).collect()],
            Format::F16 => {
                let pair = |w: &Reg<u32>| {
                    let (lo, hi) = k.unpack(k.bits(*w));
                    [k.convert::<f16, f32>(lo), k.convert::<f16, f32>(hi)]
                };
                vec![packed.words.iter().flat_map(pair).collect()]
            }
            Format::Bf16 => {
                let pair = |w: &Reg<u32>| [k.bits(k.shl(*w, 16)), k.bits(k.and(*w, 0xffff_0000u32))];
                vec![packed.words.iter().flat_map(pair).collect()]
            }
            Format::Q8_0 | Format::Q4_0 | Format::Q6K => {
                let scaled = |q: &Reg<f32>| k.mul(*q, packed.scales[0]);
                self.integers(k, packed).iter().map(|run| run.iter().map(scaled).collect()).collect()
            }
            Format::Q4K | Format::Q5K => {
                let runs = self.integers(k, packed);
                let scaled = |(i, run): (usize, &Vec<Reg<f32>>)| {
                    run.iter().map(|q| k.sub(k.mul(*q, packed.scales[i]), packed.scales[2 + i])).collect()
                };
                runs.iter().enumerate().map(scaled).collect()
            }
        }
    }

    /// `2^n` of the values `1 + q/2^n` that [`Format::raised_k`] gives: the bits of `q` are the topmost of the mantissa.
    const fn raise(self) -> f32 {
        if matches!(self, Format::Q5K) { 32.0 } else { 16.0 }
    }

    /// `1 + q/2^n` of each value, by run.
    fn raised_k(self, k: &Kernel, words: &[Reg<u32>]) -> Vec<Vec<Reg<f32>>> {
        let low = if self == Format::Q5K { 18 } else { 19 };
        let value = |run: u32, i: u32| {
            let word = words[i as usize / 4];
            let at = 8 * (i % 4) + 4 * run;
            let mut f = k.mask_or(shifted(k, word, at, low), 0xf << low, ONE);
            if self == Format::Q5K {
                let high = words[4 + i as usize / 4];
                f = k.mask_or(shifted(k, high, 8 * (i % 4) + run, 22), 1 << 22, f);
            }
            k.bits(f)
        };
        (0..2).map(|run| (0..16).map(|i| value(run, i)).collect()).collect()
    }
}

/// The bits of 1.0.
const ONE: u32 = 0x3f80_0000;

/// `word` with bit `from` moved to bit `to`.
fn shifted(k: &Kernel, word: Reg<u32>, from: u32, to: u32) -> Reg<u32> {
    match from.cmp(&to) {
        std::cmp::Ordering::Less => k.shl(word, to - from),
        std::cmp::Ordering::Equal => word,
        std::cmp::Ordering::Greater => k.shr(word, from - to),
    }
}

/// Where the five whole 6-bit values of a word start; the last wraps around its end.
const SIXES: [u32; 5] = [17, 11, 5, 23, 29];
/// Where two bits of the unit's sixteenth value are in each of the three words, the upper ones first.
const SPARE: u32 = 3;

/// `1 + q/64` of the 16 values in three words.
fn raised_q6(k: &Kernel, words: &[Reg<u32>]) -> Vec<Reg<f32>> {
    let mut all = Vec::with_capacity(16);
    for word in words {
        for at in SIXES {
            let moved = if at == 29 { k.funnel_left(*word, *word, 20) } else { shifted(k, *word, at, 17) };
            all.push(k.bits(k.mask_or(moved, 0x007e_0000, ONE)));
        }
    }
    let mut last = k.mask_or(k.shl(words[0], 21 - SPARE), 0x0060_0000, ONE);
    last = k.mask_or(k.shl(words[1], 19 - SPARE), 0x0018_0000, last);
    last = k.mask_or(k.shl(words[2], 17 - SPARE), 0x0006_0000, last);
    all.push(k.bits(last));
    all
}

/// Splits whole blocks, as a file has them, into planes: appends each block's part to the plane's bytes.
///
/// `blocks` must be a multiple of the type's block size.
pub fn pack(format: Format, blocks: &[u8], planes: &mut [Vec<u8>]) {
    match format {
        Format::F32 | Format::F16 | Format::Bf16 | Format::Q4K | Format::Q5K => {
            planes[0].extend_from_slice(blocks)
        }
        Format::Q8_0 => {
            for block in blocks.as_chunks::<34>().0 {
                planes[1].extend_from_slice(&block[..2]);
                planes[0].extend(block[2..].iter().map(|q| q ^ 0x80));
            }
        }
        Format::Q4_0 => {
            for block in blocks.as_chunks::<18>().0 {
                planes[1].extend_from_slice(&block[..2]);
                planes[0].extend_from_slice(&block[2..]);
            }
        }
        Format::Q6K => {
            for block in blocks.as_chunks::<210>().0 {
                let (pairs, thirds) = (&mut Vec::with_capacity(128), &mut Vec::with_capacity(64));
                for unit in q6_values(block).as_chunks::<16>().0 {
                    let words = q6_words(unit);
                    pairs.extend(words[..2].iter().flat_map(|w| w.to_le_bytes()));
                    thirds.extend(words[2].to_le_bytes());
                }
                planes[0].append(pairs);
                planes[1].append(thirds);
                planes[2].extend_from_slice(&block[192..208]);
                planes[3].extend_from_slice(&block[208..]);
            }
        }
    }
}

/// The 256 six-bit values of a Q6_K block, in order.
fn q6_values(block: &[u8; 210]) -> [u8; 256] {
    std::array::from_fn(|l| {
        let (half, r, k) = (l / 128, l % 128, l % 32);
        let low = block[64 * half + if (r / 32) % 2 == 1 { 32 } else { 0 } + k];
        let low = if r < 64 { low & 15 } else { low >> 4 };
        let high = block[128 + 32 * half + k] >> (2 * (r / 32)) & 3;
        low | high << 4
    })
}

/// Sixteen six-bit values in three words, as [`raised_q6`] takes them apart.
fn q6_words(values: &[u8; 16]) -> [u32; 3] {
    let spare = u32::from(values[15]);
    std::array::from_fn(|w| {
        let whole = SIXES.iter().zip(&values[5 * w..]).map(|(&at, &v)| u32::from(v).rotate_left(at));
        whole.fold((spare >> (4 - 2 * w) & 3) << SPARE, |word, bits| word | bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_added_by_packing() {
        for format in Format::ALL {
            let planes: u32 = format.planes().iter().map(|p| p.block_bytes).sum();
            let file = format.ty().bytes_for(format.block().into());
            assert_eq!(Some(u64::from(planes)), file, "{format:?}");
        }
    }

    #[test]
    fn packed_sixes_hold_every_value_once() {
        for i in 0..16 {
            let mut values = [0u8; 16];
            values[i] = 63;
            let bits: u32 = q6_words(&values).iter().map(|w| w.count_ones()).sum();
            assert_eq!(bits, 6, "value {i}");
        }
        let all = q6_words(&[63; 16]);
        assert_eq!(all, [u32::MAX; 3]);
    }
}
