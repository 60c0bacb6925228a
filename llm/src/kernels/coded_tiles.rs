//! Tiles of the types with a codebook: indices and signs in the order in which kernels look values up.
//!
//! The low eight bits of a unit's indices are the bytes of one word or two. A word has the signs: that of value i
//! of octet j is bit `4i + j`, and where entries have four values, that of value i of quad j is bit `8i + j`. Where
//! seven of eight signs are stored, the places of the eighth have the scale of the unit (IQ2_XXS, IQ3_XXS) or the
//! highest bits of the indices (IQ2_XS). `coded` unpacks them. Blocks: see `codebook`.

use zerocopy::little_endian::{U16, U32, U64};

use crate::kernels::tiles::{Block, Pieces, Pieces8, Rows, plain};

plain! {
    /// `units`: four bytes of indices; four times seven signs and a scale.
    struct Iq2Xxs { scale: U16, units: [[U32; 2]; 8] }
    struct Iq2XxsTile { units: Pieces8, block_scales: Rows<U16> }

    /// `octets`: nine bits of an index, seven signs.
    struct Iq2Xs { scale: U16, octets: [[U16; 4]; 8], scales: [u8; 8] }
    struct Iq2XsTile { units: Pieces8, scales: Pieces<u8>, block_scales: Rows<U16> }

    struct Iq2S { scale: U16, indices: [U32; 8], signs: [U32; 8], high: [u8; 8], scales: [u8; 8] }
    /// `rest`: the high bits of the indices, the scales.
    struct Iq2STile { units: Pieces8, rest: Pieces<[u8; 2]>, block_scales: Rows<U16> }

    /// `rest`: four times seven signs and a scale.
    struct Iq3Xxs { scale: U16, indices: [U64; 8], rest: [U32; 8] }
    struct Iq3XxsTile { indices: Pieces8, signs: Pieces<U32>, block_scales: Rows<U16> }

    struct Iq3S { scale: U16, indices: [U64; 8], high: [u8; 8], signs: [U32; 8], scales: U32 }
    struct Iq3STile {
        indices: Pieces8, signs: Pieces<U32>, high: Pieces<u8>, scales: Rows<U32>, block_scales: Rows<U16>,
    }

    /// `high`: nibbles of three bits of an index and whether the values are moved down. `scales`: four times three bits,
    /// and four of the block's scale.
    struct Iq1M { indices: [U32; 8], high: [U16; 8], scales: [U16; 4] }
    /// `scales`: two words of four units with six bits each, and a byte of the block's scale.
    struct Iq1MTile { indices: Pieces<U32>, high: Pieces<U16>, scales: Rows<[U32; 2]> }
}

/// Signs of eight values, in the lowest bit of a nibble each.
const fn in_nibbles(signs: u32) -> u32 {
    let pairs = (signs | signs << 12) & 0x000f_000f;
    let twos = (pairs | pairs << 6) & 0x0303_0303;
    (twos | twos << 3) & 0x1111_1111
}

/// Signs of four values, in the lowest bit of a byte each.
const fn in_bytes(signs: u32) -> u32 {
    ((signs & 15) * 0x0020_4081) & 0x0101_0101
}

/// The signs of four octets, a byte each.
const fn octets(signs: [u32; 4]) -> u32 {
    in_nibbles(signs[0]) | in_nibbles(signs[1]) << 1 | in_nibbles(signs[2]) << 2 | in_nibbles(signs[3]) << 3
}

/// The signs of four octets as those of eight quads.
const fn quads(signs: [u32; 4]) -> u32 {
    let mut word = 0;
    let mut octet = 0;
    while octet < 4 {
        word |= in_bytes(signs[octet]) << (2 * octet) | in_bytes(signs[octet] >> 4) << (2 * octet + 1);
        octet += 1;
    }
    word
}

/// Four times seven signs, which the low bits of `rest` have.
fn sevens(rest: u32) -> [u32; 4] {
    [0, 7, 14, 21].map(|at| rest >> at & 127)
}

fn eights(signs: U32) -> [u32; 4] {
    signs.get().to_le_bytes().map(u32::from)
}

fn pair(low: u32, high: u32) -> U64 {
    U64::new(u64::from(low) | u64::from(high) << 32)
}

/// The place of unit `unit` of row `row` in the dimensions of a tile: h, g, t, s.
const fn place(row: usize, unit: usize) -> [usize; 4] {
    [row / 8, row % 8, unit % 4, unit / 4]
}

impl Block for Iq2Xxs {
    type Tile = Iq2XxsTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Iq2XxsTile, row: usize) {
        let [block] = blocks else { return };
        tile.block_scales[row] = block.scale;
        for (unit, [indices, rest]) in block.units.iter().enumerate() {
            let ([h, g, t, s], rest) = (place(row, unit), rest.get());
            tile.units[h][g][t][s] = pair(indices.get(), octets(sevens(rest)) | rest & 0xf000_0000);
        }
    }
}

impl Block for Iq2Xs {
    type Tile = Iq2XsTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Iq2XsTile, row: usize) {
        let [block] = blocks else { return };
        tile.block_scales[row] = block.scale;
        for (unit, of_unit) in block.octets.iter().enumerate() {
            let ([h, g, t, s], of_unit) = (place(row, unit), of_unit.map(|octet| u32::from(octet.get())));
            let (mut low, mut high) = (0, 0);
            for (j, octet) in of_unit.into_iter().enumerate() {
                low |= (octet & 255) << (8 * j);
                high |= (octet >> 8 & 1) << (28 + j);
            }
            tile.units[h][g][t][s] = pair(low, octets(of_unit.map(|octet| octet >> 9)) | high);
            tile.scales[g][t][h][s] = block.scales[unit];
        }
    }
}

impl Block for Iq2S {
    type Tile = Iq2STile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Iq2STile, row: usize) {
        let [block] = blocks else { return };
        tile.block_scales[row] = block.scale;
        for unit in 0..8 {
            let [h, g, t, s] = place(row, unit);
            tile.units[h][g][t][s] = pair(block.indices[unit].get(), octets(eights(block.signs[unit])));
            tile.rest[g][t][h][s] = [block.high[unit], block.scales[unit]];
        }
    }
}

impl Block for Iq3Xxs {
    type Tile = Iq3XxsTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Iq3XxsTile, row: usize) {
        /// The eighth signs of octets, for the bits of a scale.
        const EIGHTHS: [u32; 16] = {
            let mut all = [0; 16];
            let mut scale = 0;
            while scale < 16 {
                let n = scale as u32;
                all[scale] = quads([(n & 1) << 7, (n >> 1 & 1) << 7, (n >> 2 & 1) << 7, (n >> 3) << 7]);
                scale += 1;
            }
            all
        };
        let [block] = blocks else { return };
        tile.block_scales[row] = block.scale;
        for unit in 0..8 {
            let ([h, g, t, s], rest) = (place(row, unit), block.rest[unit].get());
            tile.indices[h][g][t][s] = block.indices[unit];
            tile.signs[g][t][h][s] = U32::new(quads(sevens(rest)) | EIGHTHS[(rest >> 28) as usize]);
        }
    }
}

impl Block for Iq3S {
    type Tile = Iq3STile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Iq3STile, row: usize) {
        let [block] = blocks else { return };
        tile.block_scales[row] = block.scale;
        tile.scales[row] = block.scales;
        for unit in 0..8 {
            let [h, g, t, s] = place(row, unit);
            tile.indices[h][g][t][s] = block.indices[unit];
            tile.signs[g][t][h][s] = U32::new(quads(eights(block.signs[unit])));
            tile.high[g][t][h][s] = block.high[unit];
        }
    }
}

impl Block for Iq1M {
    type Tile = Iq1MTile;
    const PER_TILE: usize = 1;

    fn pack(blocks: &[Self], tile: &mut Iq1MTile, row: usize) {
        let [block] = blocks else { return };
        for unit in 0..8 {
            let [h, g, t, s] = place(row, unit);
            tile.indices[g][t][h][s] = block.indices[unit];
            tile.high[g][t][h][s] = block.high[unit];
        }
        let [a, b, c, d] = block.scales.map(|word| u32::from(word.get()));
        let word = |low: u32, high: u32| {
            let byte = low >> 12 | (high >> 12) << 4;
            U32::new(low & 0xfff | (high & 0xfff) << 12 | byte << 24)
        };
        tile.scales[row] = [word(a, b), word(c, d)];
    }
}
