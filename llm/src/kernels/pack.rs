//! From the blocks of a file to the tiles that kernels read: done once, when a model is loaded, at the speed
//! of memory.
//!
//! The loops have fixed lengths and no branches per value, so that compilers turn them into vector
//! instructions.

use crate::kernels::format::{Format, Section, TILE_COLS, TILE_ROWS, UNIT};

/// Appends whole rows of `cols` values of a file to `packed`, in the layout of [`Format`]. Rows after the first
/// call continue a matrix only if all before were multiples of [`Format::rows_together`].
///
/// # Panics
/// If `cols` is no multiple of the type's block size, or `rows` are no whole rows.
pub fn pack(format: Format, cols: u32, rows: &[u8], packed: &mut Vec<u8>) {
    match format {
        Format::F32 | Format::F16 | Format::Bf16 => packed.extend_from_slice(rows),
        Format::Q8_0 => tiles::<34>(format, cols, rows, packed, |block, place| {
            place.scatter::<16>(0, &block[2..18]);
            place.scatter::<16>(1, &block[18..]);
            place.scatter::<2>(2, &block[..2]);
        }),
        Format::Q4_0 => tiles::<18>(format, cols, rows, packed, |block, place| {
            // In two's complement.
            let quants: [u8; 16] = std::array::from_fn(|i| block[2 + i] ^ 0x88);
            place.scatter::<16>(0, &quants);
            place.scatter::<2>(1, &block[..2]);
        }),
        Format::Q4K => tiles::<144>(format, cols, rows, packed, |block, place| {
            let mut quants = [0; 128];
            nibbles(&block[16..], &mut quants);
            place.scatter::<16>(0, &quants);
            place.scatter::<16>(1, &block[..16]);
        }),
        Format::Q5K => tiles::<176>(format, cols, rows, packed, |block, place| {
            let (mut quants, mut fifths) = ([0; 128], [0; 32]);
            nibbles(&block[48..], &mut quants);
            fifth_bits(&block[16..48], &mut fifths);
            place.scatter::<16>(0, &quants);
            place.scatter::<16>(1, &block[..16]);
            place.scatter::<4>(2, &fifths);
        }),
        Format::Q6K => tiles::<210>(format, cols, rows, packed, |block, place| {
            q6_unit::<0>(block, place);
            q6_unit::<1>(block, place);
            q6_unit::<2>(block, place);
            q6_unit::<3>(block, place);
            q6_unit::<4>(block, place);
            q6_unit::<5>(block, place);
            q6_unit::<6>(block, place);
            q6_unit::<7>(block, place);
            place.scatter::<2>(2, &block[192..208]);
            place.scatter::<2>(3, &block[208..]);
        }),
    }
}

/// Where the pieces of a block go: units from `unit` on of a row of a tile.
struct Place<'a> {
    sections: &'static [Section],
    tile: &'a mut [u8],
    row: u32,
    unit: u32,
}

impl Place<'_> {
    /// Writes bytes from `at` on of the piece of the block's unit `unit` in a section.
    fn put<const N: usize>(&mut self, section: usize, unit: u32, at: usize, bytes: [u8; N]) {
        let place = self.sections[section].place(self.row, self.unit + unit) as usize + at;
        self.tile[place..][..N].copy_from_slice(&bytes);
    }

    /// Writes the pieces of the block's units in a section, `N` bytes each.
    fn scatter<const N: usize>(&mut self, section: usize, pieces: &[u8]) {
        for (unit, piece) in (0..).zip(pieces.as_chunks::<N>().0) {
            self.put(section, unit, 0, *piece);
        }
    }
}

/// Packs rows of blocks of `BYTES` bytes; `each` writes the pieces of a block.
fn tiles<const BYTES: usize>(
    format: Format,
    cols: u32,
    rows: &[u8],
    packed: &mut Vec<u8>,
    each: impl Fn(&[u8; BYTES], &mut Place<'_>),
) {
    let sections = format.sections();
    let (blocks, tile) = ((cols / format.block()) as usize, format.tile_bytes() as usize);
    let units = (format.block() / UNIT) as usize;
    let (rows, rest) = rows.as_chunks::<BYTES>();
    assert!(rest.is_empty() && rows.len().is_multiple_of(blocks), "rows of {blocks} blocks");
    let tiles = cols.div_ceil(TILE_COLS) as usize;
    let start = packed.len();
    packed.resize(start + (rows.len() / blocks).div_ceil(TILE_ROWS as usize) * tiles * tile, 0);
    let packed = &mut packed[start..];
    for (row, all) in rows.chunks_exact(blocks).enumerate() {
        let tiles = packed[row / TILE_ROWS as usize * tiles * tile..].chunks_exact_mut(tile);
        let row = row as u32 % TILE_ROWS;
        for (tile, all) in tiles.zip(all.chunks(TILE_COLS as usize / UNIT as usize / units)) {
            for (unit, block) in (0..).step_by(units).zip(all) {
                each(block, &mut Place { sections, tile, row, unit });
            }
        }
    }
}

/// Nibbles of Q4_K and Q5_K, 32 at a time: of each 64 the first 32 are low nibbles in the file; packed, the
/// first 16 of each 32 are.
fn nibbles(quants: &[u8], packed: &mut [u8]) {
    for (q, packed) in quants.as_chunks::<32>().0.iter().zip(packed.as_chunks_mut::<32>().0) {
        for i in 0..16 {
            packed[i] = q[i] & 15 | q[16 + i] << 4;
            packed[16 + i] = q[i] >> 4 | q[16 + i] & 0xf0;
        }
    }
}

/// Fifth bits of Q5_K. In the file, bit u of byte v belongs to value v of unit u; packed, bit i of byte b of
/// unit u belongs to value 4i + b.
fn fifth_bits(bits: &[u8], packed: &mut [u8]) {
    for b in 0..4 {
        let rows = std::array::from_fn(|i| bits[4 * i + b]);
        for (unit, byte) in transposed(rows).into_iter().enumerate() {
            packed[4 * unit + b] = byte;
        }
    }
}

/// Bit j of byte i becomes bit i of byte j: blocks of one, two and four bits are swapped across the diagonal.
fn transposed(rows: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(rows);
    for (mask, distance) in [(0x00aa_00aa_00aa_00aa, 7), (0x0000_cccc_0000_cccc, 14), (0xf0f0_f0f0, 28)] {
        let t = (x ^ x >> distance) & mask;
        x ^= t ^ t << distance;
    }
    x.to_le_bytes()
}

/// Packs unit `UNIT` of a Q6_K block, of which each shift is a constant.
fn q6_unit<const UNIT: usize>(block: &[u8; 210], place: &mut Place<'_>) {
    let (half, quarter) = (UNIT / 4, UNIT % 4);
    let low = block[64 * half + 32 * (quarter % 2)..][..32].as_chunks::<4>().0;
    let high = block[128 + 32 * half..][..32].as_chunks::<4>().0;
    // Four values in each.
    let values = std::array::from_fn(|i| {
        let low = u32::from_le_bytes(low[i]) >> (4 * (quarter / 2)) & 0x0f0f_0f0f;
        let high = u32::from_le_bytes(high[i]) >> (2 * quarter) & 0x0303_0303;
        low | high << 4
    });
    let [a, b, c, d, e, f] = q6_words(values);
    // In registers until they are in their place: what is stored in words and loaded whole waits for the stores.
    let pair = |a, b| (u64::from(a) | u64::from(b) << 32).to_le_bytes();
    place.put::<8>(0, UNIT as u32, 0, pair(a, b));
    place.put::<8>(0, UNIT as u32, 8, pair(c, d));
    place.put::<8>(1, UNIT as u32, 0, pair(e, f));
}

/// 32 six-bit values, four in a word, in 24 bytes in the order of [`Format::quads`]: in two's complement, the
/// first 24 in the upper six bits of a byte each, the last eight in the lower two bits of three bytes each.
fn q6_words(values: [u32; 8]) -> [u32; 6] {
    let fours = values.map(|four| four ^ 0x2020_2020);
    std::array::from_fn(|i| fours[i] << 2 | fours[6 + i / 3] >> (4 - 2 * (i % 3)) & 0x0303_0303)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_sixes_hold_every_value_once() {
        for i in 0..32 {
            // All are 32, whose two's complement is 0, but one.
            let mut values = [0x2020_2020; 8];
            values[i / 4] ^= 0x3f << (8 * (i % 4));
            let bits: u32 = q6_words(values).iter().map(|w| w.count_ones()).sum();
            assert_eq!(bits, 6, "value {i}");
        }
        assert_eq!(q6_words([0x1f1f_1f1f; 8]), [u32::MAX; 6]);
    }

    #[test]
    fn every_bit_has_its_place() {
        for bit in 0..256 {
            let mut bytes = [0; 32];
            bytes[bit / 8] = 1 << (bit % 8);
            let (value, unit) = (bit / 8, bit % 8);
            let mut packed = [0; 32];
            fifth_bits(&bytes, &mut packed);
            let mut wanted = [0; 32];
            wanted[4 * unit + value % 4] = 1 << (value / 4);
            assert_eq!(packed, wanted, "fifth bit of value {value} of unit {unit}");

            nibbles(&bytes, &mut packed);
            let (byte, unit) = (bit / 8, bit % 8 / 4);
            let mut wanted = [0; 32];
            wanted[16 * unit + byte % 16] = 1 << (bit % 4 + 4 * (byte / 16));
            assert_eq!(packed, wanted, "bit {} of nibble {byte} of unit {unit}", bit % 4);
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
