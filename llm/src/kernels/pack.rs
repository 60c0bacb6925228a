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
        Format::Q8_0 => tiles::<34, 3>(format, cols, rows, packed, |block, [first, second, scale]| {
            scale[..2].copy_from_slice(&block[..2]);
            first[..16].copy_from_slice(&block[2..18]);
            second[..16].copy_from_slice(&block[18..]);
        }),
        Format::Q4_0 => tiles::<18, 2>(format, cols, rows, packed, |block, [quants, scale]| {
            scale[..2].copy_from_slice(&block[..2]);
            for (packed, q) in quants.iter_mut().zip(&block[2..]) {
                // In two's complement.
                *packed = q ^ 0x88;
            }
        }),
        Format::Q4K => tiles::<144, 2>(format, cols, rows, packed, |block, [quants, head]| {
            head[..16].copy_from_slice(&block[..16]);
            nibbles(&block[16..], quants);
        }),
        Format::Q5K => tiles::<176, 3>(format, cols, rows, packed, |block, [quants, head, fifths]| {
            head[..16].copy_from_slice(&block[..16]);
            nibbles(&block[48..], quants);
            fifth_bits(&block[16..48], fifths);
        }),
        Format::Q6K => tiles::<210, 4>(format, cols, rows, packed, |block, [quads, more, scales, scale]| {
            let values = q6_values(block);
            let packed = quads.as_chunks_mut::<16>().0.iter_mut().zip(more.as_chunks_mut::<8>().0);
            for (unit, (quads, more)) in values.as_chunks().0.iter().zip(packed) {
                let words = q6_words(unit);
                quads.copy_from_slice(&words[..16]);
                more.copy_from_slice(&words[16..]);
            }
            scales[..16].copy_from_slice(&block[192..208]);
            scale[..2].copy_from_slice(&block[208..]);
        }),
    }
}

/// Most bytes that a block has in a section.
const PART: usize = 128;

/// Packs rows of blocks of `BYTES` bytes; `each` gives the pieces of a block, one section after the other.
fn tiles<const BYTES: usize, const SECTIONS: usize>(
    format: Format,
    cols: u32,
    rows: &[u8],
    packed: &mut Vec<u8>,
    each: impl Fn(&[u8; BYTES], &mut [[u8; PART]; SECTIONS]),
) {
    let sections: &[Section; SECTIONS] = format.sections().try_into().expect("parts for each section");
    let (blocks, tile) = ((cols / format.block()) as usize, format.tile_bytes() as usize);
    let units = (format.block() / UNIT) as usize;
    let (rows, rest) = rows.as_chunks::<BYTES>();
    assert!(rest.is_empty() && rows.len().is_multiple_of(blocks), "rows of {blocks} blocks");
    let tiles = cols.div_ceil(TILE_COLS) as usize;
    let start = packed.len();
    packed.resize(start + (rows.len() / blocks).div_ceil(TILE_ROWS as usize) * tiles * tile, 0);
    let packed = &mut packed[start..];
    let mut parts = [[0; PART]; SECTIONS];
    for (row, all) in rows.chunks_exact(blocks).enumerate() {
        let tiles = packed[row / TILE_ROWS as usize * tiles * tile..].chunks_exact_mut(tile);
        let row = row as u32 % TILE_ROWS;
        for (tile, all) in tiles.zip(all.chunks(TILE_COLS as usize / UNIT as usize / units)) {
            for (unit, block) in (0..).step_by(units).zip(all) {
                each(block, &mut parts);
                for (section, part) in sections.iter().zip(&parts) {
                    let pieces = if section.has_units() { units } else { 1 };
                    match section.bytes {
                        16 => scatter::<16>(*section, row, unit, &part[..16 * pieces], tile),
                        8 => scatter::<8>(*section, row, unit, &part[..8 * pieces], tile),
                        4 => scatter::<4>(*section, row, unit, &part[..4 * pieces], tile),
                        _ => scatter::<2>(*section, row, unit, &part[..2 * pieces], tile),
                    }
                }
            }
        }
    }
}

/// Copies the pieces of units from `unit` on of a row to their places in its tile.
fn scatter<const N: usize>(section: Section, row: u32, unit: u32, pieces: &[u8], tile: &mut [u8]) {
    for (unit, piece) in (unit..).zip(pieces.as_chunks::<N>().0) {
        tile[section.place(row, unit) as usize..][..N].copy_from_slice(piece);
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

/// The 256 six-bit values of a Q6_K block, in order.
fn q6_values(block: &[u8; 210]) -> [u8; 256] {
    let mut values = [0; 256];
    let (low, high) = (block[..128].as_chunks::<64>().0, block[128..192].as_chunks::<32>().0);
    for (values, (low, high)) in values.as_chunks_mut::<128>().0.iter_mut().zip(low.iter().zip(high)) {
        for k in 0..32 {
            let (first, second, high) = (low[k], low[32 + k], high[k]);
            values[k] = first & 15 | (high & 3) << 4;
            values[32 + k] = second & 15 | (high >> 2 & 3) << 4;
            values[64 + k] = first >> 4 | (high >> 4 & 3) << 4;
            values[96 + k] = second >> 4 | (high >> 6) << 4;
        }
    }
    values
}

/// 32 six-bit values in 24 bytes, in the order of [`Format::quads`]: in two's complement, the first 24 in the
/// upper six bits of a byte each, the last eight in the lower two bits of three bytes each.
fn q6_words(values: &[u8; 32]) -> [u8; 24] {
    let fours: [u32; 8] = std::array::from_fn(|i| u32::from_le_bytes(values.as_chunks().0[i]) ^ 0x2020_2020);
    let mut bytes = [0; 24];
    for (i, word) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
        let spread = fours[6 + i / 3] >> (4 - 2 * (i % 3)) & 0x0303_0303;
        *word = (fours[i] << 2 | spread).to_le_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_sixes_hold_every_value_once() {
        for i in 0..32 {
            // All are 32, whose two's complement is 0, but one.
            let mut values = [32u8; 32];
            values[i] = 31;
            let bits: u32 = q6_words(&values).iter().map(|w| w.count_ones()).sum();
            assert_eq!(bits, 6, "value {i}");
        }
        assert_eq!(q6_words(&[31; 32]), [u8::MAX; 24]);
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
