//! The weights of a tile as the left factor of the tensor cores, and what their products are scaled with.
//!
//! With g = lane / 4 and t = lane % 4 a lane has units t and t + 4 of rows g and g + 8. The right factor is zero
//! but where its rows, the values of unit t, meet columns 2t and 2t + 1, their high and low bytes: the lane
//! receives the products of its own units alone, with both bytes, and scales them.

use half::f16;
use ptxgen::{F16x2, Reg};

use crate::kernels::format::{Format, Packed};
use crate::kernels::stream::block::Stream;

/// Words of a unit.
pub(super) const WORDS: usize = 8;

/// Registers of a lane's part of a tile as it is stored: at most 32 words of quants, and scales.
pub(super) const RAW: usize = 34;

/// The words of unit `t + 4s` of row `g + 8h` of a tile, by h, then s.
pub(super) type Quads = [[Vec<Reg<u32>>; 2]; 2];

/// The scales of a row's two units.
pub(super) enum Scales {
    /// Integers per 16 values, and one for all.
    Sixteenths { integers: [Reg<i32>; 4], all: Reg<f32> },
    /// Integers and minima per unit, and one for each.
    Minima { integers: [Reg<i32>; 2], minima: [Reg<i32>; 2], all: Reg<f32>, least: Reg<f32> },
    /// Integers and minima per 16 values, and one for each.
    SixteenthMinima { integers: [Reg<i32>; 4], minima: [Reg<i32>; 4], all: Reg<f32>, least: Reg<f32> },
    /// A number per unit.
    Units([Reg<f32>; 2]),
}

/// A column of the input as the right factor.
#[derive(Clone)]
pub(super) struct Column {
    /// Words of units t and t + 4, or zeros.
    pub words: [[Reg<u32>; WORDS]; 2],
    /// The input's scale.
    pub scale: Reg<f32>,
    /// Sums of units t and t + 4.
    pub sums: [Reg<i32>; 2],
}

impl Stream<'_> {
    /// Unpacks the words that [`Format::load_lane`] loaded.
    pub(super) fn quads(&self, format: Format, raw: &[Reg<u32>; RAW]) -> Quads {
        let book = self.books.iter().find(|(of, _)| *of == format).map(|(_, book)| *book);
        [0, 1].map(|h| [0, 1].map(|s| format.lane_quads(self.k, raw, (h, s), book)))
    }

    /// The scales that [`Format::load_lane`] loaded, in as few registers as they fit, per row.
    pub(super) fn packed_scales(&self, format: Format, raw: &[Reg<u32>; RAW]) -> [Vec<Reg<u32>>; 2] {
        let k = self.k;
        [0, 1].map(|h| match format {
            Format::Q8_0 => vec![k.var(raw[32 + h])],
            Format::Q4_0 => vec![k.var(raw[16 + h])],
            Format::Q6K => vec![k.var(raw[24 + h]), k.var(raw[26 + h])],
            Format::Q4K | Format::Q5K => {
                // Byte t of each of the last three words of the head.
                let [all, a, b, c] = [0, 1, 2, 3].map(|i| raw[16 + 4 * h + i]);
                let t = k.and(self.lane, 3);
                let two = k.prmt(a, b, k.mad(t, 0x11u32, 0x40u32));
                vec![k.var(all), k.prmt(two, c, k.mad(t, 0x100u32, 0x410u32))]
            }
            Format::Q2K => vec![k.var(raw[8 + h]), k.var(raw[10 + h])],
            Format::F32 | Format::F16 | Format::Bf16 => vec![],
            _ => {
                // Two nibbles of each unit in a byte.
                let units = [0, 1].map(|s| {
                    let unit = k.add(k.and(self.lane, 3), 4 * s as u32);
                    Packed { words: format.lane_words(k, raw, h, s), unit, book: None }
                });
                let [low, high] = units.each_ref().map(|unit| format.coded_nibbles(k, unit));
                vec![k.or(low, k.shl(high, 8)), k.var(format.coded_super(k, &units[0]))]
            }
        })
    }

    /// The scales of a row.
    pub(super) fn scales(&self, format: Format, packed: &[Reg<u32>]) -> Scales {
        let k = self.k;
        let pair = |word: Reg<u32>| -> [Reg<f32>; 2] {
            let (low, high) = k.unpack(k.bits::<u32, F16x2>(word));
            [low, high].map(|half| k.convert::<f16, f32>(half))
        };
        match format {
            Format::Q6K => Scales::Sixteenths {
                integers: [0, 1, 2, 3].map(|byte| k.signed_byte(packed[0], byte)),
                all: pair(packed[1])[0],
            },
            Format::Q4K | Format::Q5K => {
                let [all, least] = pair(packed[0]);
                let byte = |n: u32| k.bfe(packed[1], 8 * n, 8u32);
                let (a, b, c) = (byte(0), byte(1), byte(2));
                let six = |w: Reg<u32>| k.and(w, 63u32);
                let top = |w: Reg<u32>| k.and(k.shr(w, 2), 0x30u32);
                let signed = |w: [Reg<u32>; 2]| w.map(|w| k.bits::<u32, i32>(w));
                let integers = signed([six(a), k.mask_or(c, 15u32, top(a))]);
                let minima = signed([six(b), k.or(k.shr(c, 4), top(b))]);
                Scales::Minima { integers, minima, all, least }
            }
            Format::Q2K => {
                let nibble = |at: u32| k.bits::<u32, i32>(k.bfe(packed[0], at, 4u32));
                let [all, least] = pair(packed[1]);
                let integers = [0u32, 8, 16, 24].map(nibble);
                Scales::SixteenthMinima { integers, minima: [4u32, 12, 20, 28].map(nibble), all, least }
            }
            _ if format.has_codebook() => {
                let odd = |at: u32| k.mad(k.bfe(packed[0], at, 4u32), 2u32, 1u32);
                let integers = [0, 4, 8, 12].map(|at| k.bits::<u32, i32>(odd(at)));
                Scales::Sixteenths { integers, all: pair(packed[1])[0] }
            }
            _ => Scales::Units(pair(packed[0])),
        }
    }
}
