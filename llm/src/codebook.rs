//! The types whose values come from codebooks, IQ1, IQ2 and IQ3: their blocks as integers with scales.
//!
//! Blocks: `ggml-common.h` of the ggml repository. The codebooks are in `data/codebooks.bin`, which
//! `tools/codebooks.py` writes.

use half::f16;

use crate::tensor_type::GgmlType;

/// A block: value i is `scale · unit · scales[i / 16] · quants[i]`, exactly.
pub(crate) struct Codes {
    /// The scale of the block.
    pub scale: f16,
    /// A power of two.
    pub unit: f32,
    /// Odd integers up to 31.
    pub scales: [i8; 16],
    /// At most 62; of IQ3_S at most 15, of IQ1 at most 9.
    pub quants: [i8; 256],
}

/// A codebook: the number of its first entry in the file, and the values that the codes of an entry stand for.
struct Book {
    first: usize,
    values: &'static [i8],
}

const FILE: &[u8] = include_bytes!("../data/codebooks.bin");

const IQ2_VALUES: &[i8] = &[8, 25, 43];
const IQ2_XXS: Book = Book { first: 0, values: IQ2_VALUES };
const IQ2_XS: Book = Book { first: 256, values: IQ2_VALUES };
const IQ2_S: Book = Book { first: 768, values: IQ2_VALUES };
const IQ3_XXS: Book = Book { first: 1792, values: &[4, 12, 20, 28, 36, 44, 52, 62] };
const IQ3_S: Book = Book { first: 2048, values: &[1, 3, 5, 7, 9, 11, 13, 15] };
/// In eighths.
const IQ1: Book = Book { first: 2560, values: &[-8, 0, 8] };
/// Added to the values of IQ1, or subtracted.
const IQ1_DELTA: i8 = 1;

impl Book {
    /// Writes the values of entry `index`, four or eight.
    fn write(&self, index: usize, out: &mut [i8]) {
        let at = 2 * (self.first + index);
        let codes = u16::from_le_bytes([FILE[at], FILE[at + 1]]);
        let width = 16 / out.len();
        for (i, value) in out.iter_mut().enumerate() {
            *value = self.values[usize::from(codes >> (width * i)) & ((1 << width) - 1)];
        }
    }
}

/// A codebook as kernels look values up.
pub(crate) struct Table {
    /// An entry each: of eight values the codes in nibbles, of four values the values in bytes, the first in the
    /// lowest bits.
    pub words: Vec<u32>,
    /// Of entries with codes, the values that these stand for, in bytes: positive and negative ones, or of IQ1 those
    /// moved up and down.
    pub levels: Option<[u32; 2]>,
}

impl Table {
    fn of(book: &Book, entries: usize, moved: Option<i8>) -> Self {
        let of_eight = book.values.len() == 3;
        let mut values = [0; 8];
        let words = (0..entries).map(|index| {
            let values = if of_eight { &mut values[..] } else { &mut values[..4] };
            book.write(index, values);
            let code = |value: &i8| book.values.iter().take_while(|known| *known != value).count() as u32;
            let width = 32 / values.len();
            let bits = |value: &i8| if of_eight { code(value) } else { u32::from(value.cast_unsigned()) };
            values.iter().enumerate().fold(0, |word, (i, value)| word | bits(value) << (width * i))
        });
        let words = words.collect();
        let bytes = |of: &dyn Fn(i8) -> i8| {
            let place = |(i, value): (usize, &i8)| u32::from(of(*value).cast_unsigned()) << (8 * i);
            book.values.iter().enumerate().map(place).sum()
        };
        let both = |moved: Option<i8>| match moved {
            Some(delta) => [bytes(&|value| value + delta), bytes(&|value| value - delta)],
            None => [bytes(&|value| value), bytes(&|value| -value)],
        };
        Self { words, levels: of_eight.then(|| both(moved)) }
    }
}

/// The codebook of a type; `None` for a type without one.
pub(crate) fn table(ty: GgmlType) -> Option<Table> {
    Some(match ty {
        GgmlType::Iq2Xxs => Table::of(&IQ2_XXS, 256, None),
        GgmlType::Iq2Xs => Table::of(&IQ2_XS, 512, None),
        GgmlType::Iq2S => Table::of(&IQ2_S, 1024, None),
        GgmlType::Iq3Xxs => Table::of(&IQ3_XXS, 256, None),
        GgmlType::Iq3S => Table::of(&IQ3_S, 512, None),
        GgmlType::Iq1S | GgmlType::Iq1M => Table::of(&IQ1, 2048, Some(IQ1_DELTA)),
        _ => return None,
    })
}

/// Makes the values negative whose bits are set in `signs`.
fn negate(values: &mut [i8], signs: u8) {
    for (i, value) in values.iter_mut().enumerate() {
        *value = if signs >> i & 1 == 1 { -*value } else { *value };
    }
}

/// Eight signs of which seven are stored: the number of negative ones is even.
fn signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() & 1) as u8) << 7
}

fn word(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn double_word(block: &[u8], at: usize) -> u32 {
    u32::from(word(block, at)) | u32::from(word(block, at + 2)) << 16
}

/// `2 s + 1`.
fn odd(scale: impl Into<u32>) -> i8 {
    (2 * scale.into() + 1) as i8
}

/// Nibble `index` of `bytes`, the low ones first.
fn nibble(bytes: &[u8], index: usize) -> u8 {
    bytes[index / 2] >> (index % 2 * 4) & 15
}

/// Replaces the scale of a block of IQ1_M: four bits each in four words.
pub(crate) fn set_iq1_m_scale(block: &mut [u8], scale: f16) {
    for (i, byte) in block[49..].iter_mut().step_by(2).enumerate() {
        *byte = *byte & 15 | ((scale.to_bits() >> (4 * i) & 15) as u8) << 4;
    }
}

/// A block of IQ1_S as one of IQ1_M, which says of each 16 values what that one says of 32.
pub(crate) fn iq1_m_of_iq1_s(block: &[u8]) -> [u8; 56] {
    let mut wider = [0; 56];
    wider[..32].copy_from_slice(&block[2..34]);
    for group in 0..8 {
        let word = word(block, 34 + 2 * group);
        let high = (0..4).fold(0, |all, i| all | (word >> (3 * i) & 7 | word >> 15 << 3) << (4 * i));
        wider[32 + 2 * group..][..2].copy_from_slice(&high.to_le_bytes());
        let scales = ((word >> 12 & 7) * 0b1001) << (6 * (group % 2));
        let at = 48 + group / 2 * 2;
        let own = u16::from_le_bytes([wider[at], wider[at + 1]]) | scales;
        wider[at..at + 2].copy_from_slice(&own.to_le_bytes());
    }
    set_iq1_m_scale(&mut wider, f16::from_bits(word(block, 0)));
    wider
}

/// The integers of a block of type `ty`; `None` for a type without a codebook.
pub(crate) fn codes(ty: GgmlType, block: &[u8]) -> Option<Codes> {
    let empty =
        Codes { scale: f16::from_bits(word(block, 0)), unit: 0.125, scales: [0; 16], quants: [0; 256] };
    let mut c = empty;
    match ty {
        GgmlType::Iq2Xxs => iq2_xxs(&block[2..], &mut c),
        GgmlType::Iq2Xs => iq2_xs(&block[2..], &mut c),
        GgmlType::Iq2S => iq2_s(&block[2..], &mut c),
        GgmlType::Iq3Xxs => iq3_xxs(&block[2..], &mut c),
        GgmlType::Iq3S => iq3_s(&block[2..], &mut c),
        GgmlType::Iq1S => iq1_s(&block[2..], &mut c),
        GgmlType::Iq1M => iq1_m(block, &mut c),
        _ => return None,
    }
    Some(c)
}

/// Of each 32 values four indices, then four times seven signs and a scale.
fn iq2_xxs(block: &[u8], c: &mut Codes) {
    for (group, values) in c.quants.chunks_exact_mut(32).enumerate() {
        let (indices, rest) = (&block[8 * group..][..4], double_word(block, 8 * group + 4));
        c.scales[2 * group..][..2].fill(odd(rest >> 28));
        for (i, values) in values.chunks_exact_mut(8).enumerate() {
            IQ2_XXS.write(indices[i].into(), values);
            negate(values, signs(rest >> (7 * i)));
        }
    }
}

/// `qs: [u16; 32], scales: [u8; 8]`: nine bits of an index and seven signs of eight values; a scale per 16.
fn iq2_xs(block: &[u8], c: &mut Codes) {
    c.scales = std::array::from_fn(|i| odd(nibble(&block[64..], i)));
    for (i, values) in c.quants.chunks_exact_mut(8).enumerate() {
        let q = word(block, 2 * i);
        IQ2_XS.write(usize::from(q & 511), values);
        negate(values, signs(u32::from(q >> 9)));
    }
}

/// `qs: [u8; 32], signs: [u8; 32], qh: [u8; 8], scales: [u8; 8]`: eight bits of an index and the signs of eight
/// values, two more bits; a scale per 16.
fn iq2_s(block: &[u8], c: &mut Codes) {
    c.scales = std::array::from_fn(|i| odd(nibble(&block[72..], i)));
    for (i, values) in c.quants.chunks_exact_mut(8).enumerate() {
        let high = usize::from(block[64 + i / 4] >> (i % 4 * 2) & 3);
        IQ2_S.write(usize::from(block[i]) | high << 8, values);
        negate(values, block[32 + i]);
    }
}

/// `qs: [u8; 64], rest: [u32; 8]`: an index of four values; four times seven signs and a scale of 32.
fn iq3_xxs(block: &[u8], c: &mut Codes) {
    c.unit = 0.25;
    for (group, values) in c.quants.chunks_exact_mut(32).enumerate() {
        let rest = double_word(block, 64 + 4 * group);
        c.scales[2 * group..][..2].fill(odd(rest >> 28));
        for (i, values) in values.chunks_exact_mut(4).enumerate() {
            IQ3_XXS.write(block[8 * group + i].into(), values);
        }
        values.chunks_exact_mut(8).enumerate().for_each(|(i, eight)| negate(eight, signs(rest >> (7 * i))));
    }
}

/// `qs: [u8; 64], qh: [u8; 8], signs: [u8; 32], scales: [u8; 4]`: eight bits of an index of four values and
/// another bit, the signs of eight, a scale of 32.
fn iq3_s(block: &[u8], c: &mut Codes) {
    c.unit = 1.0;
    c.scales = std::array::from_fn(|i| odd(nibble(&block[104..], i / 2)));
    for (i, values) in c.quants.chunks_exact_mut(4).enumerate() {
        let high = usize::from(block[64 + i / 8] >> (i % 8) & 1);
        IQ3_S.write(usize::from(block[i]) | high << 8, values);
    }
    c.quants.chunks_exact_mut(8).enumerate().for_each(|(i, eight)| negate(eight, block[72 + i]));
}

/// Entry `index` of the codebook of IQ1, moved down if so said.
fn write_iq1(index: usize, down: bool, values: &mut [i8]) {
    IQ1.write(index, values);
    let delta = if down { -IQ1_DELTA } else { IQ1_DELTA };
    values.iter_mut().for_each(|value| *value += delta);
}

/// `qs: [u8; 32], qh: [u16; 8]`: eight bits of an index of eight values; of 32 values three bits of each index, a
/// scale, and whether they are moved down.
fn iq1_s(block: &[u8], c: &mut Codes) {
    for (group, values) in c.quants.chunks_exact_mut(32).enumerate() {
        let high = word(block, 32 + 2 * group);
        c.scales[2 * group..][..2].fill(odd(high >> 12 & 7));
        for (i, values) in values.chunks_exact_mut(8).enumerate() {
            let index = usize::from(block[4 * group + i]) | usize::from(high >> (3 * i) & 7) << 8;
            write_iq1(index, high >> 15 == 1, values);
        }
    }
}

/// `qs: [u8; 32], qh: [u8; 16], scales: [u16; 4]`: eight bits of an index of eight values; three more bits, and
/// whether they are moved down; four scales of 16 values, three bits each, and four bits of the block's scale.
fn iq1_m(block: &[u8], c: &mut Codes) {
    let words: [u16; 4] = std::array::from_fn(|i| word(block, 48 + 2 * i));
    c.scale = f16::from_bits((0..4).fold(0, |all, i| all | words[i] >> 12 << (4 * i)));
    c.scales = std::array::from_fn(|i| odd(words[i / 4] >> (i % 4 * 3) & 7));
    for (i, values) in c.quants.chunks_exact_mut(8).enumerate() {
        let high = nibble(&block[32..], i);
        write_iq1(usize::from(block[i]) | usize::from(high & 7) << 8, high & 8 != 0, values);
    }
}
