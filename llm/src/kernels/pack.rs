//! From the blocks of a file to the tiles that kernels read: done once, when a model is loaded, at the speed
//! of memory. `coded_tiles` has the types with a codebook.
//!
//! Blocks and tiles are types without padding, whose places are constants. Values are moved eight at a time
//! in words of 64 bits: compilers make good code of that at every level of optimization, on every processor.

#![expect(
    clippy::needless_range_loop,
    reason = "unrolled at every level of optimization, as iterators are not"
)]

use zerocopy::little_endian::{U16, U32, U64};

use crate::kernels::coded_tiles::{Iq1M, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use crate::kernels::format::Format;
use crate::kernels::tiles::{Block, Pieces, Pieces8, Pieces16, Rows, plain, tiles};

/// Appends whole rows of `cols` values of a file to `packed`, in the layout of [`Format`]. Rows after the
/// first call continue a matrix only if all before were multiples of [`Format::rows_together`].
///
/// # Panics
/// If `cols` is no multiple of the type's block size, or `rows` are no whole rows.
pub fn pack(format: Format, cols: u32, rows: &[u8], packed: &mut Vec<u8>) {
    match format {
        Format::F32 | Format::F16 | Format::Bf16 => packed.extend_from_slice(rows),
        Format::Q8_0 => tiles::<Q8_0>(cols, rows, packed),
        Format::Q4_0 => tiles::<Q4_0>(cols, rows, packed),
        Format::Q4K => tiles::<Q4K>(cols, rows, packed),
        Format::Q5K => tiles::<Q5K>(cols, rows, packed),
        Format::Q6K => tiles::<Q6K>(cols, rows, packed),
        Format::Q2K => tiles::<Q2K>(cols, rows, packed),
        Format::Iq2Xxs => tiles::<Iq2Xxs>(cols, rows, packed),
        Format::Iq2Xs => tiles::<Iq2Xs>(cols, rows, packed),
        Format::Iq2S => tiles::<Iq2S>(cols, rows, packed),
        Format::Iq3Xxs => tiles::<Iq3Xxs>(cols, rows, packed),
        Format::Iq3S => tiles::<Iq3S>(cols, rows, packed),
        Format::Iq1M => tiles::<Iq1M>(cols, rows, packed),
    }
}

/// 128 values of four bits: of each of the four units of 64 the first 32 values are low nibbles.
type Nibbles = [[[U64; 2]; 2]; 4];

plain! {
    struct Q8_0 { scale: U16, quants: [[U64; 2]; 2] }
    struct Q8_0Tile { quants: [Pieces16; 2], scales: Pieces<U16> }

    struct Q4_0 { scale: U16, quants: [U64; 2] }
    struct Q4_0Tile { quants: Pieces16, scales: Pieces<U16> }

    /// `head`: scales of the block and its units.
    struct Q4K { head: [U64; 2], quants: Nibbles }
    struct Q4KTile { quants: Pieces16, heads: Rows<[U64; 2]> }

    /// Bit u of byte v of `fifths` belongs to value v of unit u.
    struct Q5K { head: [U64; 2], fifths: [U64; 4], quants: Nibbles }
    /// Bit i of byte b of a piece of `fifths` belongs to value 4i + b of its unit.
    struct Q5KTile { quants: Pieces16, heads: Rows<[U64; 2]>, fifths: Pieces<U32> }

    /// Two halves of four units: `low` has the low nibbles of units 0 and 2 and of 1 and 3, `high` two bits
    /// of each unit.
    struct Q6K { low: [[[U64; 4]; 2]; 2], high: [[U64; 4]; 2], scales: [[U16; 4]; 2], scale: U16 }
    struct Q6KTile { quants: Pieces16, rest: Pieces8, scales: Pieces<U16>, block_scales: Rows<U16> }

    /// Two halves of four units, of each of which `quants` has two bits in each byte.
    struct Q2K { scales: [[U16; 4]; 2], quants: [[U64; 4]; 2], head: U32 }
    struct Q2KTile { quants: Pieces8, scales: Pieces<U16>, heads: Rows<U32> }
}

impl Block for Q8_0 {
    type Tile = Q8_0Tile;
    const PER_TILE: usize = 8;

    fn pack(blocks: &[Self], tile: &mut Q8_0Tile, row: usize) {
        let (h, g) = (row / 8, row % 8);
        for (unit, block) in blocks.iter().enumerate() {
            let (s, t) = (unit / 4, unit % 4);
            tile.quants[0][h][s][g][t] = block.quants[0];
            tile.quants[1][h][s][g][t] = block.quants[1];
            tile.scales[g][t][h][s] = block.scale;
        }
    }
}

impl Block for Q4_0 {
    type Tile = Q4_0Tile;
    const PER_TILE: usize = 8;

    fn pack(blocks: &[Self], tile: &mut Q4_0Tile, row: usize) {
        /// Makes of 0 to 15 what is 8 less, in two's complement.
        const SIGNS: u64 = 0x8888_8888_8888_8888;
        let (h, g) = (row / 8, row % 8);
        for (unit, block) in blocks.iter().enumerate() {
            let (s, t, [a, b]) = (unit / 4, unit % 4, block.quants);
            tile.quants[h][s][g][t] = [U64::new(a.get() ^ SIGNS), U64::new(b.get() ^ SIGNS)];
            tile.scales[g][t][h][s] = block.scale;
        }
    }
}

impl Block for Q4K {
    type Tile = Q4KTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Q4KTile, row: usize) {
        let [block] = blocks else { return };
        nibbles(&block.quants, &mut tile.quants[row / 8], row % 8);
        tile.heads[row] = block.head;
    }
}

impl Block for Q5K {
    type Tile = Q5KTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Q5KTile, row: usize) {
        let [block] = blocks else { return };
        let (h, g) = (row / 8, row % 8);
        nibbles(&block.quants, &mut tile.quants[h], g);
        tile.heads[row] = block.head;
        let fifths = fifth_bits(block.fifths);
        for t in 0..4 {
            tile.fifths[g][t][h] = fifths[t];
        }
    }
}

impl Block for Q6K {
    type Tile = Q6KTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Q6KTile, row: usize) {
        let [block] = blocks else { return };
        let (h, g) = (row / 8, row % 8);
        let [first, second] = &mut tile.quants[h];
        sixes::<0>(&block.low[0], block.high[0], &mut first[g], &mut tile.rest[h][g]);
        sixes::<1>(&block.low[1], block.high[1], &mut second[g], &mut tile.rest[h][g]);
        let [first, second] = block.scales;
        for t in 0..4 {
            tile.scales[g][t][h] = [first[t], second[t]];
        }
        tile.block_scales[row] = block.scale;
    }
}

impl Block for Q2K {
    type Tile = Q2KTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Q2KTile, row: usize) {
        let [block] = blocks else { return };
        let (h, g) = (row / 8, row % 8);
        for t in 0..4 {
            tile.quants[h][g][t] = [twos(block.quants[0], t), twos(block.quants[1], t)];
            tile.scales[g][t][h] = [block.scales[0][t], block.scales[1][t]];
        }
        tile.heads[row] = block.head;
    }
}

/// Packs unit `unit` of half a block of Q2_K, in the order of [`Format::quads`]: each byte of the two words has
/// a value of four groups of four neighbours.
#[inline(always)]
fn twos(quants: [U64; 4], unit: usize) -> U64 {
    const FIRST: u64 = 0x0303_0303;
    const SECOND: u64 = FIRST << 32;
    let [a, b, c, d] = quants.map(|eight| eight.get() >> (2 * unit));
    let low = |x: u64, y: u64| x & FIRST | y << 32 & SECOND;
    let high = |x: u64, y: u64| x >> 32 & FIRST | y & SECOND;
    U64::new(low(a, c) | high(a, c) << 2 | low(b, d) << 4 | high(b, d) << 6)
}

/// Packs nibbles of row `g` of a half of a tile: packed, the first 16 of each 32 values are low nibbles.
#[inline(always)]
fn nibbles(quants: &Nibbles, [first, second]: &mut [[[[U64; 2]; 4]; 8]; 2], g: usize) {
    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    for pair in 0..4 {
        let to = if pair < 2 { &mut first[g] } else { &mut second[g] };
        for i in 0..2 {
            let (a, b) = (quants[pair][0][i].get(), quants[pair][1][i].get());
            to[2 * (pair % 2)][i] = U64::new(a & LOW | (b & LOW) << 4);
            to[2 * (pair % 2) + 1][i] = U64::new(a >> 4 & LOW | b & !LOW);
        }
    }
}

/// Packs the fifth bits of a block: pieces `[t][s]` of unit 4s + t. Four bytes hold a bit of four values for
/// each unit; in each byte of eight such words of 32 bits, words and bits are transposed, by exchanges of
/// four, two and one bit of the words that are four, two and one apart.
#[inline(always)]
fn fifth_bits(bits: [U64; 4]) -> [[U32; 2]; 4] {
    #[inline(always)]
    fn exchanged(a: u64, b: u64, distance: u32, mask: u64) -> (u64, u64) {
        let t = (a >> distance ^ b) & mask;
        (a ^ t << distance, b ^ t)
    }
    const FOUR: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const TWO: u64 = 0x3333_3333_3333_3333;
    const ONE: u64 = 0x5555_5555_5555_5555;
    const FIRST: u64 = 0xffff_ffff;
    let [w01, w23, w45, w67] = bits.map(U64::get);
    let (w01, w45) = exchanged(w01, w45, 4, FOUR);
    let (w23, w67) = exchanged(w23, w67, 4, FOUR);
    let (w04, w15) = (w01 & FIRST | w45 << 32, w01 >> 32 | w45 & !FIRST);
    let (w26, w37) = (w23 & FIRST | w67 << 32, w23 >> 32 | w67 & !FIRST);
    let (w04, w26) = exchanged(w04, w26, 2, TWO);
    let (w15, w37) = exchanged(w15, w37, 2, TWO);
    let (w04, w15) = exchanged(w04, w15, 1, ONE);
    let (w26, w37) = exchanged(w26, w37, 1, ONE);
    let pair = |w: u64| [U32::new(w as u32), U32::new((w >> 32) as u32)];
    [pair(w04), pair(w15), pair(w26), pair(w37)]
}

/// Packs half `HALF` of a block of Q6_K: four units in the order of [`Format::quads`]. Of the 32 values of a
/// unit, in two's complement, the first 24 are in the upper six bits of a byte each, the last eight in the
/// lower two bits of three bytes each.
#[inline(always)]
fn sixes<const HALF: usize>(
    low: &[[U64; 4]; 2],
    high: [U64; 4],
    quants: &mut [[U64; 2]; 4],
    rest: &mut [[U64; 2]; 4],
) {
    /// Makes of 0 to 63 what is 32 less: the upper of each two bits.
    const SIGNS: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    /// Four bits and two, in their places.
    const LOW: u64 = 0x3c3c_3c3c_3c3c_3c3c;
    const HIGH: u64 = 0xc0c0_c0c0_c0c0_c0c0;
    /// The lower two bits of bytes, in each half of a word.
    const FIRST: u64 = 0x0303_0303;
    const SECOND: u64 = FIRST << 32;
    let mut signed = [0; 4];
    for i in 0..4 {
        signed[i] = high[i].get() ^ SIGNS;
    }
    for unit in 0..4 {
        let mut values = [0; 4];
        for i in 0..4 {
            let low = low[unit % 2][i].get();
            let low = if unit < 2 { low << 2 } else { low >> 2 };
            values[i] = low & LOW | signed[i] << (6 - 2 * unit) & HIGH;
        }
        let [a, b, c, d] = values;
        quants[unit][0] = U64::new(a | d >> 6 & FIRST | d << 28 & SECOND);
        quants[unit][1] = U64::new(b | d >> 2 & FIRST | d >> 6 & SECOND);
        rest[unit][HALF] = U64::new(c | d >> 36 & FIRST | d >> 2 & SECOND);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::format::UNIT;
    use crate::kernels::format::{TILE_COLS, TILE_ROWS};

    /// The packed pieces of a unit by section, those of sections of rows with unit 0, value by value.
    fn pieces(format: Format, block: &[u8], unit: usize) -> Vec<Vec<u8>> {
        // Four bits of each value: in runs of `together` values that share the bytes of as many others.
        let nibble = |quants: &[u8], v: usize, together: usize| {
            quants[v / (2 * together) * together + v % together] >> (v / together % 2 * 4) & 15
        };
        let values = || 32 * unit..32 * (unit + 1);
        let joined = |of: &dyn Fn(usize) -> u8| -> Vec<u8> {
            let first = values().start;
            (first..first + 16).map(|v| of(v) | of(v + 16) << 4).collect()
        };
        match format {
            Format::Q8_0 => vec![block[2..18].to_vec(), block[18..].to_vec(), block[..2].to_vec()],
            Format::Q4_0 => {
                let quants = (0..16).map(|i| block[2 + i] ^ 0x88).collect();
                vec![quants, block[..2].to_vec()]
            }
            Format::Q4K => vec![joined(&|v| nibble(&block[16..], v, 32)), block[..16].to_vec()],
            Format::Q5K => {
                let fifth = |v: usize| u32::from(block[16 + v % 32] >> unit & 1);
                let place = |v: usize| 8 * (v % 4) + v % 32 / 4;
                let fifths = values().fold(0, |word, v| word | fifth(v) << place(v));
                let quants = joined(&|v| nibble(&block[48..], v, 32));
                vec![quants, block[..16].to_vec(), fifths.to_le_bytes().to_vec()]
            }
            Format::Q6K => {
                let value = |v: usize| {
                    let (half, quarter, i) = (v / 128, v % 128 / 32, v % 32);
                    let low = block[64 * half + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
                    let high = block[128 + 32 * half + i] >> (2 * quarter) & 3;
                    (low | high << 4) ^ 32
                };
                let sixes: Vec<u8> = values().map(value).collect();
                let byte = |i: usize| {
                    let rest = sixes[24 + i / 12 * 4 + i % 4] >> (4 - i % 12 / 4 * 2) & 3;
                    sixes[i] << 2 | rest
                };
                let bytes: Vec<u8> = (0..24).map(byte).collect();
                let scales = block[192 + 2 * unit..][..2].to_vec();
                vec![bytes[..16].to_vec(), bytes[16..].to_vec(), scales, block[208..].to_vec()]
            }
            Format::Q2K => {
                let value = |v: usize| block[16 + v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
                let byte = |b: usize| {
                    (0..4).fold(0, |all, i| all | value(32 * unit + b / 4 * 16 + 4 * i + b % 4) << (2 * i))
                };
                vec![(0..8).map(byte).collect(), block[2 * unit..][..2].to_vec(), block[80..].to_vec()]
            }
            Format::F32 | Format::F16 | Format::Bf16 => vec![],
            _ => coded_pieces(format, block, unit),
        }
    }

    /// The same of a type with a codebook: bit by bit, from the places of the file.
    fn coded_pieces(format: Format, block: &[u8], unit: usize) -> Vec<Vec<u8>> {
        let bit = |at: usize, bit: usize| u32::from(block[at + bit / 8] >> (bit % 8) & 1);
        let bits =
            |at: usize, from: usize, len: usize| (0..len).fold(0, |all, i| all | bit(at, from + i) << i);
        // Signs by their octet and place, of which those of `rest` are seven bits each, then a scale.
        let word = |places: &dyn Fn(usize, usize) -> usize, sign: &dyn Fn(usize, usize) -> u32| {
            let all = (0..4).flat_map(|j| (0..8).map(move |i| (j, i)));
            all.fold(0u32, |word, (j, i)| word | sign(j, i) << places(j, i)).to_le_bytes().to_vec()
        };
        let of_octets = |j: usize, i: usize| 4 * i + j;
        let of_quads = |j: usize, i: usize| 8 * (i % 4) + 2 * j + i / 4;
        let scale = block[..2].to_vec();
        match format {
            Format::Iq2Xxs => {
                let at = 2 + 8 * unit;
                let sign =
                    |j: usize, i: usize| if i < 7 { bit(at + 4, 7 * j + i) } else { bit(at + 4, 28 + j) };
                vec![[block[at..at + 4].to_vec(), word(&of_octets, &sign)].concat(), scale]
            }
            Format::Iq2Xs => {
                let at = |j: usize| 2 + 8 * unit + 2 * j;
                let sign = |j: usize, i: usize| if i < 7 { bit(at(j), 9 + i) } else { bit(at(j), 8) };
                let low = (0..4).map(|j| block[at(j)]).collect();
                vec![[low, word(&of_octets, &sign)].concat(), vec![block[66 + unit]], scale]
            }
            Format::Iq2S => {
                let sign = |j: usize, i: usize| bit(34 + 4 * unit + j, i);
                let low = block[2 + 4 * unit..][..4].to_vec();
                let rest = vec![block[66 + unit], block[74 + unit]];
                vec![[low, word(&of_octets, &sign)].concat(), rest, scale]
            }
            Format::Iq3Xxs => {
                let at = 66 + 4 * unit;
                let sign = |j: usize, i: usize| if i < 7 { bit(at, 7 * j + i) } else { bit(at, 28 + j) };
                vec![block[2 + 8 * unit..][..8].to_vec(), word(&of_quads, &sign), scale]
            }
            Format::Iq3S => {
                let sign = |j: usize, i: usize| bit(74 + 4 * unit + j, i);
                let high = vec![block[66 + unit]];
                let low = block[2 + 8 * unit..][..8].to_vec();
                vec![low, word(&of_quads, &sign), high, block[106..110].to_vec(), scale]
            }
            _ => {
                let scales = |s: usize| {
                    let units = (4 * s..4 * s + 4).map(|u| bits(48 + u / 2 * 2, u % 2 * 6, 6) << (u % 4 * 6));
                    let byte = bits(48 + 4 * s, 12, 4) | bits(50 + 4 * s, 12, 4) << 4;
                    (units.sum::<u32>() | byte << 24).to_le_bytes()
                };
                let high = block[32 + 2 * unit..][..2].to_vec();
                vec![block[4 * unit..][..4].to_vec(), high, [scales(0), scales(1)].concat()]
            }
        }
    }

    /// [`pack`] piece by piece, by the sections of the format.
    fn slowly(format: Format, cols: u32, rows: &[u8]) -> Vec<u8> {
        let (block, units) = (format.ty().block_bytes() as usize, (format.block() / UNIT) as usize);
        let (tile, tiles) = (format.tile_bytes() as usize, cols.div_ceil(TILE_COLS) as usize);
        let blocks = (cols / format.block()) as usize;
        let count = rows.len() / block / blocks;
        let mut packed = vec![0; format.packed_bytes(count as u64, cols.into()) as usize];
        for (at, bytes) in rows.chunks(block).enumerate() {
            let (row, first) = (at / blocks, at % blocks * units);
            for unit in first..first + units {
                let start = (row / 16 * tiles + unit / 8) * tile;
                for (section, piece) in format.sections().iter().zip(pieces(format, bytes, unit - first)) {
                    let place = start + section.place(row as u32 % TILE_ROWS, unit as u32 % 8) as usize;
                    packed[place..][..piece.len()].copy_from_slice(&piece);
                }
            }
        }
        packed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn every_value_has_its_place(rows in 1..40usize, blocks in 1..40u32, seed: u64) {
            for format in Format::ALL.into_iter().filter(|f| f.is_quantized()) {
                let cols = (blocks * 32).next_multiple_of(format.block());
                let bytes = rows * format.ty().bytes_for(cols.into()).expect("whole blocks") as usize;
                let mut state = seed | 1;
                let rows: Vec<u8> = std::iter::repeat_with(|| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 32) as u8
                }).take(bytes).collect();
                let mut packed = vec![7];
                pack(format, cols, &rows, &mut packed);
                prop_assert!(packed[1..] == slowly(format, cols, &rows), "{format:?}");
            }
        }
    }

    #[test]
    fn rows_are_appended_in_their_order() {
        for format in Format::ALL {
            let cols = 2 * TILE_COLS + format.block();
            let bytes = format.ty().bytes_for(cols.into()).expect("whole blocks") as usize;
            let rows: Vec<u8> = (0..40 * bytes).map(|i| (i * 37 % 251) as u8).collect();
            let (mut whole, mut parts) = (Vec::new(), Vec::new());
            pack(format, cols, &rows, &mut whole);
            rows.chunks(16 * bytes).for_each(|rows| pack(format, cols, rows, &mut parts));
            assert_eq!(whole, parts, "{format:?}");
            assert_eq!(whole.len() as u64, format.packed_bytes(40, cols.into()));
        }
    }
}
