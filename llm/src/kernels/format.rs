//! The layout of each tensor type in device memory, and the code that unpacks it in a kernel.
//!
//! Weights stay quantized. At load each tensor is split into planes (all high bits of all rows, then all
//! scales, ...), so that every lane reads aligned words next to its neighbour's; no byte is added. A *unit*
//! is what one lane unpacks at a time: 32 neighbouring values of the quantized types, 16 bytes of the others.
//! A quantized unit unpacks into eight words of four integers each (`Format::quads`), the operands of the
//! integer dot product.

use half::f16;
use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Pred, Reg};

use crate::gguf::types::GgmlType;

/// A tensor type that kernels can multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Bytes of one block of [`Format::block`] values in this plane.
    pub block_bytes: u32,
}

const fn plane(name: &'static str, block_bytes: u32) -> Plane {
    Plane { name, block_bytes }
}

/// The registers of one unit in a lane: its words, then its scales in the form in which they are stored.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The registers.
    pub(crate) words: Vec<Reg<u32>>,
    /// Number of the unit in its row, or of another unit at the same place of its block.
    pub(crate) unit: Reg<u32>,
}

impl Format {
    /// All formats.
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
    pub fn of(ty: GgmlType) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.ty() == ty)
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

    /// Row lengths must be multiples of this: the block, or 16, the granularity of activation vectors.
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
        const Q8_0: &[Plane] = &[plane("first", 16), plane("second", 16), plane("scales", 2)];
        const Q4_0: &[Plane] = &[plane("quants", 16), plane("scales", 2)];
        const Q4K: &[Plane] = &[plane("heads", 16), plane("quants", 128)];
        const Q5K: &[Plane] = &[plane("heads", 16), plane("quants", 128), plane("fifths", 32)];
        const Q6K: &[Plane] =
            &[plane("quads", 128), plane("more", 64), plane("scales", 16), plane("supers", 2)];
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
    pub(crate) const fn unit(self) -> u32 {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 8,
            _ => 32,
        }
    }

    /// Whether the values are integers with scales.
    pub const fn is_quantized(self) -> bool {
        !matches!(self, Format::F32 | Format::F16 | Format::Bf16)
    }

    /// Whether blocks have a minimum beside their scale.
    pub(crate) const fn has_minimum(self) -> bool {
        matches!(self, Format::Q4K | Format::Q5K)
    }

    /// Factor by which the integers of [`Format::quads`] are too large.
    pub(crate) const fn raised(self) -> f32 {
        match self {
            Format::Q4_0 => 16.0,
            Format::Q6K => 4.0,
            _ => 1.0,
        }
    }

    /// Registers of a unit.
    pub(crate) const fn registers(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 4,
            Format::Q4_0 => 5,
            Format::Q8_0 | Format::Q5K => 9,
            Format::Q4K | Format::Q6K => 8,
        }
    }

    /// Adds the kernel's pointer parameters, one per plane.
    pub(crate) fn params(self, k: &Kernel) -> Vec<Pointer<Global, u8>> {
        self.planes().iter().map(|p| k.param_ptr::<u8>(p.name, 16)).collect()
    }

    /// Where row `row` starts in each plane.
    pub(crate) fn row(
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

    /// Loads the unit `after` units after `unit` of a row into existing registers, where `guard` holds.
    pub(crate) fn load(
        self,
        k: &Kernel,
        row: &[Pointer<Global, u8>],
        unit: Reg<u32>,
        after: u32,
        guard: Option<Pred>,
        into: &Packed,
    ) {
        let r = &into.words;
        // `after` is a multiple of 32, so of whole blocks too.
        let at = |plane: usize, bytes: u32| {
            k.at_stride(row[plane], unit, bytes).plus_bytes(i64::from(after) * i64::from(bytes))
        };
        let of_block = |plane: usize, bytes: u32| {
            let block = k.at_stride(row[plane], k.shr(unit, 3), bytes);
            block.plus_bytes(i64::from(after / 8) * i64::from(bytes))
        };
        let words = |from, range: std::ops::Range<usize>, cache| {
            k.load_words_where(guard, from, &r[range], cache);
        };
        let half = |from, into: usize| k.load_half_where(guard, from, r[into], Cache::ReadOnly);
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => words(at(0, 16), 0..4, Cache::Stream),
            Format::Q8_0 => {
                words(at(0, 16), 0..4, Cache::Stream);
                words(at(1, 16), 4..8, Cache::Stream);
                half(at(2, 2), 8);
            }
            Format::Q4_0 => {
                words(at(0, 16), 0..4, Cache::Stream);
                half(at(1, 2), 4);
            }
            Format::Q4K | Format::Q5K => {
                words(at(1, 16), 0..4, Cache::Stream);
                words(of_block(0, 16), 4..8, Cache::ReadOnly);
                if self == Format::Q5K {
                    words(at(2, 4), 8..9, Cache::Stream);
                }
            }
            Format::Q6K => {
                words(at(0, 16), 0..4, Cache::Stream);
                words(at(1, 8), 4..6, Cache::Stream);
                half(at(2, 2), 6);
                half(of_block(3, 2), 7);
            }
        }
    }

    /// Loads unit `unit` of a row into new registers.
    pub(crate) fn fetch(self, k: &Kernel, row: &[Pointer<Global, u8>], unit: Reg<u32>) -> Packed {
        let packed = Packed { words: (0..self.registers()).map(|_| k.reg()).collect(), unit };
        self.load(k, row, unit, 0, None, &packed);
        packed
    }

    /// The first value of each run of up to 16 neighbouring values in unit `unit`.
    pub(crate) fn runs(self, k: &Kernel, unit: Reg<u32>) -> Vec<Multiple> {
        let start = k.scale(unit, self.unit());
        if self.is_quantized() { vec![start, k.plus(start, 16)] } else { vec![start] }
    }

    /// The 32 integers of a quantized unit in order, four per word, times [`Format::raised`]. Signed bytes,
    /// except for types with a minimum.
    pub(crate) fn quads(self, k: &Kernel, packed: &Packed) -> Vec<Reg<u32>> {
        let r = &packed.words;
        match self {
            Format::Q8_0 => r[..8].to_vec(),
            Format::Q4_0 => {
                let high = |w: Reg<u32>| k.and(w, 0xf0f0_f0f0u32);
                r[..4].iter().map(|w| high(k.shl(*w, 4))).chain(r[..4].iter().map(|w| high(*w))).collect()
            }
            Format::Q4K | Format::Q5K => {
                let low = |w: Reg<u32>| k.and(w, 0x0f0f_0f0fu32);
                let four = r[..4].iter().map(|w| low(*w)).chain(r[..4].iter().map(|w| low(k.shr(*w, 4))));
                if self == Format::Q4K {
                    return four.collect();
                }
                let fifth = |i: u32, w| k.mask_or(shifted(k, r[8], i, 4), 0x1010_1010u32, w);
                (0..).zip(four).map(|(i, w)| fifth(i, w)).collect()
            }
            Format::Q6K => {
                let whole = r[..6].iter().map(|w| k.and(*w, 0xfcfc_fcfcu32));
                // The bits of the last two words are the lowest two of each byte of the others, three words
                // each.
                let rest = |a: Reg<u32>, b: Reg<u32>, c: Reg<u32>| {
                    let high = k.and(k.shl(a, 6), 0xc0c0_c0c0u32);
                    let middle = k.mask_or(k.shl(b, 4), 0x3030_3030u32, high);
                    k.mask_or(k.shl(c, 2), 0x0c0c_0c0cu32, middle)
                };
                let mut all: Vec<_> = whole.collect();
                all.extend([rest(r[0], r[1], r[2]), rest(r[3], r[4], r[5])]);
                all
            }
            Format::F32 | Format::F16 | Format::Bf16 => vec![],
        }
    }

    /// The scale of the block of a quantized unit; for types with a minimum also the scale of the minima.
    pub(crate) fn supers(self, k: &Kernel, packed: &Packed) -> Vec<Reg<f32>> {
        let half = |word: Reg<u32>| k.convert::<f16, f32>(k.unpack(k.bits(word)).0);
        match self {
            Format::Q4K | Format::Q5K => {
                let (d, least) = k.unpack(k.bits(packed.words[4]));
                vec![k.convert::<f16, f32>(d), k.convert::<f16, f32>(least)]
            }
            _ => packed.words.last().map(|word| half(*word)).into_iter().collect(),
        }
    }

    /// The integer scales of a unit: none; two signed scales, of its halves (Q6_K); or scale and minimum
    /// (Q4_K, Q5_K).
    pub(crate) fn scales(self, k: &Kernel, packed: &Packed) -> Vec<Reg<u32>> {
        let r = &packed.words;
        match self {
            Format::Q4K | Format::Q5K => {
                let shift = k.shl(k.and(packed.unit, 3), 3);
                let upper = k.ne(k.and(packed.unit, 4), 0);
                let byte = |word| k.and(k.shr(word, shift), 0xffu32);
                let (a, b, c) = (byte(r[5]), byte(r[6]), byte(r[7]));
                let top = |w| k.and(k.shr(w, 2), 0x30u32);
                let six = |w| k.and(w, 63u32);
                let scale = k.select(upper, k.mask_or(c, 15u32, top(a)), six(a));
                let least = k.select(upper, k.or(k.shr(c, 4), top(b)), six(b));
                vec![scale, least]
            }
            Format::Q6K => {
                // A byte, extended by its sign.
                let signed = |bytes: u32| k.prmt(r[6], 0u32, bytes);
                vec![signed(0x8880), signed(0x9991)]
            }
            _ => vec![],
        }
    }

    /// The weights of the unit by run, exactly as the type defines them.
    pub(crate) fn weights(self, k: &Kernel, packed: &Packed) -> Vec<Vec<Reg<f32>>> {
        let words = &packed.words;
        match self {
            Format::F32 => vec![words.iter().map(|w| k.bits(*w)).collect()],
            Format::F16 => {
                let pair = |w: &Reg<u32>| {
                    let (lo, hi) = k.unpack(k.bits(*w));
                    [k.convert::<f16, f32>(lo), k.convert::<f16, f32>(hi)]
                };
                vec![words.iter().flat_map(pair).collect()]
            }
            Format::Bf16 => {
                let pair = |w: &Reg<u32>| [k.bits(k.shl(*w, 16)), k.bits(k.and(*w, 0xffff_0000u32))];
                vec![words.iter().flat_map(pair).collect()]
            }
            _ => {
                let supers = self.supers(k, packed);
                let scales = self.scales(k, packed);
                let number = |w: Reg<u32>| k.convert::<i32, f32>(k.bits(w));
                let times =
                    |i: usize, w: Option<&Reg<u32>>| w.map_or(supers[i], |w| k.mul(supers[i], number(*w)));
                let quads = self.quads(k, packed);
                let values = |half: usize| -> Vec<Reg<f32>> {
                    let scale = times(0, scales.get(if self == Format::Q6K { half } else { 0 }));
                    let scale = k.mul(scale, 1.0 / self.raised());
                    let least = self.has_minimum().then(|| times(1, scales.get(1)));
                    let value = |i: usize| {
                        let (quad, from) = (quads[4 * half + i / 4], 8 * (i as u32 % 4));
                        let q = if self.has_minimum() {
                            k.convert::<u32, f32>(k.bfe(quad, from, 8u32))
                        } else {
                            k.convert::<i32, f32>(k.bfe(k.bits::<u32, i32>(quad), from, 8u32))
                        };
                        let product = k.mul(q, scale);
                        least.map_or(product, |least| k.sub(product, least))
                    };
                    (0..16).map(value).collect()
                };
                vec![values(0), values(1)]
            }
        }
    }
}

/// `word` with bit `from` moved to bit `to`.
fn shifted(k: &Kernel, word: Reg<u32>, from: u32, to: u32) -> Reg<u32> {
    match from.cmp(&to) {
        std::cmp::Ordering::Less => k.shl(word, to - from),
        std::cmp::Ordering::Equal => word,
        std::cmp::Ordering::Greater => k.shr(word, from - to),
    }
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
}
