//! Units in registers as integers, scales and weights: what the kernels multiply.

use half::f16;
use ptxgen::{Kernel, Pointer, Reg, Shared};

use crate::kernels::coded::shifted;
use crate::kernels::format::{Format, Packed};

impl Format {
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
            Format::Q2K => {
                let two = |i: u32| k.and(shifted(k, r[i as usize / 4], 2 * (i % 4), 0), 0x0303_0303u32);
                (0..8).map(two).collect()
            }
            Format::F32 | Format::F16 | Format::Bf16 => vec![],
            _ => (0..4).flat_map(|octet| self.coded(k, packed, octet)).collect(),
        }
    }

    /// The scale of the block of a quantized unit; for types with a minimum also the scale of the minima.
    pub(crate) fn supers(self, k: &Kernel, packed: &Packed) -> Vec<Reg<f32>> {
        let half = |word: Reg<u32>| k.convert::<f16, f32>(k.unpack(k.bits(word)).0);
        match self {
            Format::Q4K | Format::Q5K | Format::Q2K => {
                let head = packed.words[if self == Format::Q2K { 3 } else { 4 }];
                let (d, least) = k.unpack(k.bits(head));
                vec![k.convert::<f16, f32>(d), k.convert::<f16, f32>(least)]
            }
            _ if self.has_codebook() => vec![half(self.coded_super(k, packed))],
            _ => packed.words.last().map(|word| half(*word)).into_iter().collect(),
        }
    }

    /// The integer scales of a unit: none; two signed scales, of its halves (Q6_K, types with a codebook); scale
    /// and minimum (Q4_K, Q5_K); or those of the first half, then of the second (Q2_K).
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
            Format::Q2K => [0u32, 4, 8, 12].map(|at| k.bfe(r[2], at, 4u32)).to_vec(),
            _ if self.has_codebook() => self.coded_scales(k, packed).to_vec(),
            _ => vec![],
        }
    }

    /// The four integers of a word of [`Format::quads`]. A byte in the last place of 2²³ is added to it:
    /// conversions take four times as long as additions.
    fn numbers(self, k: &Kernel, quad: Reg<u32>) -> [Reg<f32>; 4] {
        const BASE: f32 = (1u32 << 23) as f32;
        let (bytes, base) =
            if self.has_minimum() { (quad, BASE) } else { (k.xor(quad, 0x8080_8080u32), BASE + 128.0) };
        [0, 1, 2, 3].map(|i| k.sub(k.bits::<u32, f32>(k.prmt(bytes, BASE.to_bits(), 0x7540u32 + i)), base))
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
                let numbers: Vec<_> =
                    self.quads(k, packed).into_iter().flat_map(|quad| self.numbers(k, quad)).collect();
                let values = |half: usize| -> Vec<Reg<f32>> {
                    let [of_scale, of_least] = match self {
                        Format::Q6K => [half, 1],
                        _ if self.has_codebook() => [half, 1],
                        Format::Q2K => [2 * half, 2 * half + 1],
                        _ => [0, 1],
                    };
                    let scale = k.mul(times(0, scales.get(of_scale)), 1.0 / self.raised());
                    let least = self.has_minimum().then(|| times(1, scales.get(of_least)));
                    let value = |i: usize| {
                        let q = numbers[16 * half + i];
                        let product = k.mul(q, scale);
                        least.map_or(product, |least| k.sub(product, least))
                    };
                    (0..16).map(value).collect()
                };
                vec![values(0), values(1)]
            }
        }
    }

    /// The integers of unit `t + 4s` of row `g + 8h`, four per word, of what [`Format::load_lane`] loaded.
    pub(crate) fn lane_quads(
        self,
        k: &Kernel,
        raw: &[Reg<u32>],
        (h, s): (usize, usize),
        book: Option<Pointer<Shared, u32>>,
    ) -> Vec<Reg<u32>> {
        let four = |first: usize| &raw[first + 4 * (2 * h + s)..][..4];
        let words = match self {
            // `Format::quads` takes a scale too.
            Format::Q8_0 => [four(0), four(16), &raw[32..33]].concat(),
            Format::Q6K => [four(0), &raw[16 + 4 * h + 2 * s..][..2]].concat(),
            // The registers that it has between belong to the head.
            Format::Q5K => [four(0), &raw[16..20], &raw[24 + 2 * h + s..][..1]].concat(),
            Format::Q2K => raw[2 * (2 * h + s)..][..2].to_vec(),
            _ if self.has_codebook() => self.lane_words(k, raw, h, s),
            _ => four(0).to_vec(),
        };
        self.quads(k, &Packed { words, unit: raw[0], book })
    }
}
