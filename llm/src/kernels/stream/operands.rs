//! The weights of a tile as the left factor of the tensor cores, and what their products are scaled with.
//!
//! With g = lane / 4 and t = lane % 4 a lane has units t and t + 4 of rows g and g + 8. The right factor is zero
//! but where its rows, the values of unit t, meet columns 2t and 2t + 1, their high and low bytes: the lane
//! receives the products of its own units alone, with both bytes, and scales them.

use half::f16;
use ptxgen::{Cache, F16x2, Kernel, Pointer, Reg, Shared};

use crate::kernels::format::{Format, Packed};
use crate::kernels::stream::block::Stream;

/// Words of a unit.
const WORDS: usize = 8;

/// What a lane has of a tile.
pub(super) struct Operand {
    /// Words of unit `t + 4s` of row `g + 8h`, by h, then s.
    pub quads: [[Vec<Reg<u32>>; 2]; 2],
    pub scales: [Scales; 2],
}

/// The scales of a row's two units.
pub(super) enum Scales {
    /// Integers per 16 values, and one for all.
    Sixteenths { integers: [Reg<i32>; 4], all: Reg<f32> },
    /// Integers and minima per unit, and one for each.
    Minima { integers: [Reg<i32>; 2], minima: [Reg<i32>; 2], all: Reg<f32>, least: Reg<f32> },
    /// A number per unit.
    Units([Reg<f32>; 2]),
}

/// A column of the input as the right factor.
pub(super) struct Column {
    /// Words of units t and t + 4, or zeros.
    pub words: [[Reg<u32>; WORDS]; 2],
    /// The input's scale, a number in single precision.
    pub scale: Reg<u32>,
    /// Sums of units t and t + 4, signed.
    pub sums: [Reg<u32>; 2],
}

impl Column {
    /// Registers for a column.
    pub fn new(k: &Kernel) -> Self {
        let zero = || k.var(0u32);
        Self {
            words: [(); 2].map(|()| [(); WORDS].map(|()| zero())),
            scale: zero(),
            sums: [(); 2].map(|()| zero()),
        }
    }
}

impl Operand {
    /// Sets all registers to zero.
    pub fn clear(&self, k: &Kernel) {
        self.quads.iter().flatten().flatten().for_each(|r| k.set(*r, 0u32));
        for scales in &self.scales {
            let (integers, numbers): (Vec<Reg<i32>>, Vec<Reg<f32>>) = match scales {
                Scales::Sixteenths { integers, all } => (integers.to_vec(), vec![*all]),
                Scales::Minima { integers, minima, all, least } => {
                    ([*integers, *minima].concat(), vec![*all, *least])
                }
                Scales::Units(numbers) => (vec![], numbers.to_vec()),
            };
            integers.into_iter().for_each(|r| k.set(r, 0i32));
            numbers.into_iter().for_each(|r| k.set(r, 0f32));
        }
    }
}

impl Stream<'_> {
    /// The lane's part of the tile at `tile`.
    pub(super) fn operand(&self, format: Format, tile: Pointer<Shared, u8>) -> Operand {
        let k = self.k;
        let sections = format.sections();
        let row = k.shr(self.lane, 2);
        // A piece of every unit: 16 bytes of one, or as many of all that the lane has.
        let piece = |number: usize, h: u32, s: u32| -> Vec<Reg<u32>> {
            let section = sections[number];
            let at = k.at_stride(tile, self.lane, section.t).plus_bytes(section.at.into());
            let at = at.plus_bytes(i64::from(h * section.h + s * section.s));
            k.load_with(at.cast::<u32>(), 4, Cache::Default)
        };
        let of_row = |number: usize, h: u32| {
            let section = sections[number];
            k.at_stride(tile, row, section.g).plus_bytes(i64::from(section.at + h * section.h))
        };
        let four = |number: usize| -> [[Vec<Reg<u32>>; 2]; 2] {
            [0, 1].map(|h| [0, 1].map(|s| piece(number, h, s)))
        };
        let halves = |number: usize| -> [Reg<u32>; 2] {
            let at = k.at_stride(tile, self.lane, 8).plus_bytes(sections[number].at.into());
            k.load_n(at.cast::<u32>(), Cache::Default)
        };
        let unpack = |words: Vec<Reg<u32>>| format.quads(k, &Packed { words, unit: self.lane });
        let number = |half: Reg<f16>| k.convert::<f16, f32>(half);
        let pair = |word: Reg<u32>| -> [Reg<f32>; 2] {
            let (low, high) = k.unpack(k.bits::<u32, F16x2>(word));
            [number(low), number(high)]
        };
        match format {
            Format::Q8_0 => {
                let (first, second, scales) = (four(0), four(1), halves(2));
                let both = |[a, b]: [Vec<Reg<u32>>; 2], [c, d]: [Vec<Reg<u32>>; 2]| {
                    [[a, c].concat(), [b, d].concat()]
                };
                let ([a, b], [c, d]) = (first, second);
                Operand { quads: [both(a, c), both(b, d)], scales: scales.map(|s| Scales::Units(pair(s))) }
            }
            Format::Q4_0 => {
                let (quants, scales) = (four(0), halves(1));
                Operand {
                    quads: quants.map(|row| row.map(unpack)),
                    scales: scales.map(|s| Scales::Units(pair(s))),
                }
            }
            Format::Q6K => {
                let (quads, more, scales) = (four(0), [0, 1].map(|h| piece(1, h, 0)), halves(2));
                let supers = [0, 1].map(|h| k.load_with(of_row(3, h).cast::<f16>(), 1, Cache::Default)[0]);
                let row = |(row, more): ([Vec<Reg<u32>>; 2], Vec<Reg<u32>>)| {
                    let mut more = more.chunks_exact(2);
                    row.map(|words| unpack([&words[..], more.next().unwrap_or_default()].concat()))
                };
                let [a, b] = quads;
                let [c, d] = more;
                let scale = |h: usize| Scales::Sixteenths {
                    integers: [0, 1, 2, 3].map(|byte| k.signed_byte(scales[h], byte)),
                    all: number(supers[h]),
                };
                Operand { quads: [row((a, c)), row((b, d))], scales: [scale(0), scale(1)] }
            }
            Format::Q4K | Format::Q5K => {
                let quants = four(0);
                let heads: [Vec<Reg<u32>>; 2] =
                    [0, 1].map(|h| k.load_with(of_row(1, h).cast::<u32>(), 4, Cache::Default));
                // Fifth bits of both units of both rows.
                let fifths = (format == Format::Q5K).then(|| piece(2, 0, 0));
                let quads = std::array::from_fn(|h| {
                    std::array::from_fn(|s| match &fifths {
                        // The registers that `Format::quads` has between belong to the head.
                        Some(fifths) => {
                            unpack([&quants[h][s], &heads[h], &fifths[2 * h + s..][..1]].concat())
                        }
                        None => unpack(quants[h][s].clone()),
                    })
                });
                Operand { quads, scales: heads.map(|head| self.minima(&head)) }
            }
            Format::F32 | Format::F16 | Format::Bf16 => unreachable!("{format:?} has no tiles"),
        }
    }

    /// Scales and minima of units t and t + 4 from a block's head.
    fn minima(&self, head: &[Reg<u32>]) -> Scales {
        let k = self.k;
        let shift = k.shl(k.and(self.lane, 3), 3);
        let [a, b, c] = [1, 2, 3].map(|i| k.and(k.shr(head[i], shift), 0xffu32));
        let six = |w: Reg<u32>| k.and(w, 63u32);
        let top = |w: Reg<u32>| k.and(k.shr(w, 2), 0x30u32);
        let signed = |w: [Reg<u32>; 2]| w.map(|w| k.bits::<u32, i32>(w));
        let integers = signed([six(a), k.mask_or(c, 15u32, top(a))]);
        let minima = signed([six(b), k.or(k.shr(c, 4), top(b))]);
        let (all, least) = k.unpack(k.bits::<u32, F16x2>(head[0]));
        let (all, least) = (k.convert::<f16, f32>(all), k.convert::<f16, f32>(least));
        Scales::Minima { integers, minima, all, least }
    }
}
