//! The layout of each tensor type in device memory, and the code that unpacks it in a kernel.
//!
//! Weights stay quantized. A *unit* is what one lane unpacks at a time: 32 neighbouring values of the quantized
//! types, 16 bytes of the others. A quantized unit unpacks into eight words of four integers each
//! (`Format::quads`), the operands of integer products.
//!
//! Matrices of quantized types lie in *tiles* of 16 rows and 256 columns, eight units of each row; tiles of the
//! same rows follow each other. At load each tile is split into sections (quants, scales, ...), and the pieces
//! of a section lie where the lanes of a warp read them: with g = lane / 4 and t = lane % 4 a lane takes the
//! units t and t + 4 of rows g and g + 8, as the tensor cores want their left factor. Every access of a warp to
//! a section is then contiguous. Whole tiles take no byte more than the file; rows and columns past the end of
//! a matrix are zeros.

use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Pred, Reg, Shared, Space};

use crate::tensor_type::GgmlType;

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
    /// 2 bits, scale and minimum per 16.
    Q2K,
    /// 2.06 bits by codebook, a scale per 32.
    Iq2Xxs,
    /// 2.31 bits by codebook, a scale per 16.
    Iq2Xs,
    /// 2.56 bits by codebook, a scale per 16.
    Iq2S,
    /// 3.06 bits by codebook, a scale per 32.
    Iq3Xxs,
    /// 3.44 bits by codebook, a scale per 32.
    Iq3S,
    /// 1.75 bits by codebook, a scale per 16.
    Iq1M,
}

/// The module with the kernels of types with a codebook, but the persistent steps.
pub const CODEBOOK: &str = "codebook";

/// Rows of a tile.
pub const TILE_ROWS: u32 = 16;
/// Columns of a tile.
pub const TILE_COLS: u32 = 256;
/// Values of a unit of a quantized type.
pub(crate) const UNIT: u32 = 32;

/// A section of a tile: a piece of `bytes` bytes for every unit of every row, or one for every row. The place of
/// the piece of row `8h + g` and unit `4s + t` is `at` and a multiple of each of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub at: u32,
    pub bytes: u32,
    pub h: u32,
    pub s: u32,
    pub g: u32,
    pub t: u32,
}

impl Section {
    const fn of_units(at: u32, bytes: u32) -> Self {
        match bytes {
            16 => Self { at, bytes, h: 1024, s: 512, g: 64, t: 16 },
            8 => Self { at, bytes, h: 512, s: 8, g: 64, t: 16 },
            _ => Self { at, bytes, h: 2 * bytes, s: bytes, g: 16 * bytes, t: 4 * bytes },
        }
    }

    const fn of_rows(at: u32, bytes: u32) -> Self {
        Self { at, bytes, h: 8 * bytes, s: 0, g: bytes, t: 0 }
    }

    /// Whether there is a piece for every unit, not one for every row.
    pub const fn has_units(self) -> bool {
        self.t > 0
    }

    /// A lane's part of the section, as the tensor cores want it: byte offsets from the place of its first
    /// piece, and lengths. Pieces that lie together are one.
    pub fn lane_pieces(self) -> Vec<(u32, u32)> {
        let place = |h: u32, s: u32| h * self.h + s * self.s;
        match (self.has_units(), self.bytes) {
            (true, 16) => vec![(place(0, 0), 16), (place(0, 1), 16), (place(1, 0), 16), (place(1, 1), 16)],
            // Pieces of both units of a row, or of all four.
            (true, 8) => vec![(place(0, 0), 16), (place(1, 0), 16)],
            (true, bytes) => vec![(0, 4 * bytes)],
            (false, bytes) => vec![(0, bytes), (place(1, 0), bytes)],
        }
    }

    /// Bytes of the section.
    const fn size(self) -> u32 {
        let pieces = if self.has_units() { TILE_ROWS * TILE_COLS / UNIT } else { TILE_ROWS };
        pieces * self.bytes
    }

    /// Byte offset of the piece of row `row` and unit `unit`, both within the tile.
    #[cfg(test)]
    pub const fn place(self, row: u32, unit: u32) -> u32 {
        self.at + row / 8 * self.h + row % 8 * self.g + unit / 4 * self.s + unit % 4 * self.t
    }
}

/// The registers of one unit in a lane: its words, then its scales in the form in which they are stored.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The registers.
    pub(crate) words: Vec<Reg<u32>>,
    /// Number of the unit in its row, or of another unit at the same place of its block.
    pub(crate) unit: Reg<u32>,
    /// The type's codebook, where it is in shared memory.
    pub(crate) book: Option<Pointer<Shared, u32>>,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 15] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Q2K,
        Format::Iq2Xxs,
        Format::Iq2Xs,
        Format::Iq2S,
        Format::Iq3Xxs,
        Format::Iq3S,
        Format::Iq1M,
    ];

    /// Those without a codebook.
    pub const WITHOUT_CODEBOOK: [Format; 9] = [
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Q2K,
    ];

    /// Those whose values come from a codebook.
    pub const WITH_CODEBOOK: [Format; 6] =
        [Format::Iq2Xxs, Format::Iq2Xs, Format::Iq2S, Format::Iq3Xxs, Format::Iq3S, Format::Iq1M];

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
            Format::Q2K => GgmlType::Q2K,
            Format::Iq2Xxs => GgmlType::Iq2Xxs,
            Format::Iq2Xs => GgmlType::Iq2Xs,
            Format::Iq2S => GgmlType::Iq2S,
            Format::Iq3Xxs => GgmlType::Iq3Xxs,
            Format::Iq3S => GgmlType::Iq3S,
            Format::Iq1M => GgmlType::Iq1M,
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
            Format::Q2K => "q2_k",
            Format::Iq2Xxs => "iq2_xxs",
            Format::Iq2Xs => "iq2_xs",
            Format::Iq2S => "iq2_s",
            Format::Iq3Xxs => "iq3_xxs",
            Format::Iq3S => "iq3_s",
            Format::Iq1M => "iq1_m",
        }
    }

    /// The module with the kernels of this type, of which `usual` has those of types without a codebook.
    pub const fn module(self, usual: &'static str) -> &'static str {
        if self.has_codebook() { CODEBOOK } else { usual }
    }

    /// Row lengths must be multiples of this: the block, or 16, the granularity of activation vectors.
    pub const fn block(self) -> u32 {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 16,
            Format::Q8_0 | Format::Q4_0 => 32,
            _ => 256,
        }
    }

    /// The sections of a tile; none for types that are not quantized.
    pub(crate) const fn sections(self) -> &'static [Section] {
        const Q8_0: &[Section] =
            &[Section::of_units(0, 16), Section::of_units(2048, 16), Section::of_units(4096, 2)];
        const Q4_0: &[Section] = &[Section::of_units(0, 16), Section::of_units(2048, 2)];
        const Q4K: &[Section] = &[Section::of_units(0, 16), Section::of_rows(2048, 16)];
        const Q5K: &[Section] =
            &[Section::of_units(0, 16), Section::of_rows(2048, 16), Section::of_units(2304, 4)];
        const Q6K: &[Section] = &[
            Section::of_units(0, 16),
            Section::of_units(2048, 8),
            Section::of_units(3072, 2),
            Section::of_rows(3328, 2),
        ];
        const Q2K: &[Section] =
            &[Section::of_units(0, 8), Section::of_units(1024, 2), Section::of_rows(1280, 4)];
        const IQ2_XXS: &[Section] = &[Section::of_units(0, 8), Section::of_rows(1024, 2)];
        const IQ2_XS: &[Section] =
            &[Section::of_units(0, 8), Section::of_units(1024, 1), Section::of_rows(1152, 2)];
        const IQ2_S: &[Section] =
            &[Section::of_units(0, 8), Section::of_units(1024, 2), Section::of_rows(1280, 2)];
        const IQ3_XXS: &[Section] =
            &[Section::of_units(0, 8), Section::of_units(1024, 4), Section::of_rows(1536, 2)];
        const IQ3_S: &[Section] = &[
            Section::of_units(0, 8),
            Section::of_units(1024, 4),
            Section::of_units(1536, 1),
            Section::of_rows(1664, 4),
            Section::of_rows(1728, 2),
        ];
        const IQ1_M: &[Section] =
            &[Section::of_units(0, 4), Section::of_units(512, 2), Section::of_rows(768, 8)];
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => &[],
            Format::Q8_0 => Q8_0,
            Format::Q4_0 => Q4_0,
            Format::Q4K => Q4K,
            Format::Q5K => Q5K,
            Format::Q6K => Q6K,
            Format::Q2K => Q2K,
            Format::Iq2Xxs => IQ2_XXS,
            Format::Iq2Xs => IQ2_XS,
            Format::Iq2S => IQ2_S,
            Format::Iq3Xxs => IQ3_XXS,
            Format::Iq3S => IQ3_S,
            Format::Iq1M => IQ1_M,
        }
    }

    /// Bytes of a tile; 0 for types that are not quantized.
    pub const fn tile_bytes(self) -> u32 {
        match self.sections() {
            [.., last] => last.at + last.size(),
            [] => 0,
        }
    }

    /// Bytes of a packed matrix, or of some of its rows; for quantized types of whole tiles.
    pub fn packed_bytes(self, rows: u64, cols: u64) -> u64 {
        match self.tile_bytes() {
            0 => rows * self.ty().bytes_for(cols).unwrap_or_default(),
            tile => rows.div_ceil(TILE_ROWS.into()) * cols.div_ceil(TILE_COLS.into()) * u64::from(tile),
        }
    }

    /// Rows that a packed matrix can be divided at: multiples of this.
    pub const fn rows_together(self) -> u32 {
        if self.is_quantized() { TILE_ROWS } else { 1 }
    }

    /// Bytes of a value of a type that is not quantized.
    pub(crate) const fn value_bytes(self) -> u32 {
        16 / self.unit()
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

    /// Whether the values come from a codebook.
    pub const fn has_codebook(self) -> bool {
        self as u32 > Format::Q2K as u32
    }

    /// Whether blocks have a minimum beside their scale: integers are not signed.
    pub(crate) const fn has_minimum(self) -> bool {
        matches!(self, Format::Q4K | Format::Q5K | Format::Q2K)
    }

    /// Whether the minimum is that of a whole unit, which takes the sum of the unit's input.
    pub(crate) const fn has_unit_minimum(self) -> bool {
        matches!(self, Format::Q4K | Format::Q5K)
    }

    /// Factor by which the integers of [`Format::quads`] are too large.
    pub(crate) const fn raised(self) -> f32 {
        match self {
            Format::Q4_0 => 16.0,
            Format::Iq2Xxs | Format::Iq2Xs | Format::Iq2S | Format::Iq1M => 8.0,
            Format::Q6K | Format::Iq3Xxs => 4.0,
            _ => 1.0,
        }
    }

    /// Registers of a unit.
    pub(crate) const fn registers(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 4,
            Format::Q2K | Format::Iq2Xs | Format::Iq2S | Format::Iq3Xxs | Format::Iq1M => 4,
            Format::Iq2Xxs => 3,
            Format::Iq3S => 6,
            Format::Q4_0 => 5,
            Format::Q8_0 | Format::Q5K => 9,
            Format::Q4K | Format::Q6K => 8,
        }
    }

    /// Start of row `row`: for quantized types its pieces of each section of the first tile.
    pub(crate) fn row(
        self,
        k: &Kernel,
        weights: Pointer<Global, u8>,
        row: Reg<u32>,
        cols: Multiple,
    ) -> Vec<Pointer<Global, u8>> {
        if !self.is_quantized() {
            let bytes = k.scale(cols, if self == Format::F32 { 4 } else { 2 });
            return vec![k.row(weights, row, bytes)];
        }
        let tiles = k.shr(k.add(cols.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
        let tile = k.row(weights, k.shr(row, TILE_ROWS.trailing_zeros()), k.scale(tiles, self.tile_bytes()));
        let (g, h) = (k.and(row, 7), k.bfe(row, 3, 1));
        let start = |s: &Section| k.at_stride(k.at_stride(tile, g, s.g), h, s.h).plus_bytes(s.at.into());
        self.sections().iter().map(start).collect()
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
        if !self.is_quantized() {
            let at = k.at_stride(row[0], unit, 16).plus_bytes(i64::from(after) * 16);
            return k.load_words_where(guard, at, r, Cache::Stream);
        }
        // `after` is a multiple of 32, so of whole tiles too.
        let (tile, s, t) = (k.shr(unit, 3), k.bfe(unit, 2, 1), k.and(unit, 3));
        self.load_pieces(k, guard, into, |number| {
            let section = self.sections()[number];
            let at = k.at_stride(row[number], tile, self.tile_bytes());
            let at = if section.has_units() {
                k.at_stride(k.at_stride(at, s, section.s), t, section.t)
            } else {
                at
            };
            at.plus_bytes(i64::from(after / 8) * i64::from(self.tile_bytes()))
        });
    }

    /// Loads the unit whose piece of each section is at `at`, where `guard` holds.
    fn load_pieces(
        self,
        k: &Kernel,
        guard: Option<Pred>,
        into: &Packed,
        at: impl Fn(usize) -> Pointer<Global, u8>,
    ) {
        let r = &into.words;
        let words = |section, range: std::ops::Range<usize>, cache| {
            k.load_words_where(guard, at(section), &r[range], cache);
        };
        let half = |section, into: usize| k.load_half_where(guard, at(section), r[into], Cache::ReadOnly);
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => {}
            Format::Q8_0 => {
                words(0, 0..4, Cache::Stream);
                words(1, 4..8, Cache::Stream);
                half(2, 8);
            }
            Format::Q4_0 => {
                words(0, 0..4, Cache::Stream);
                half(1, 4);
            }
            Format::Q4K | Format::Q5K => {
                words(0, 0..4, Cache::Stream);
                words(1, 4..8, Cache::ReadOnly);
                if self == Format::Q5K {
                    words(2, 8..9, Cache::Stream);
                }
            }
            Format::Q6K => {
                words(0, 0..4, Cache::Stream);
                words(1, 4..6, Cache::Stream);
                half(2, 6);
                half(3, 7);
            }
            Format::Q2K => {
                words(0, 0..2, Cache::Stream);
                half(1, 2);
                words(2, 3..4, Cache::ReadOnly);
            }
            _ => {
                let mut first = 0;
                for (number, section) in self.sections().iter().enumerate() {
                    let last = first + section.bytes.div_ceil(4) as usize;
                    match section.bytes {
                        1 => k.load_byte_where(guard, at(number), r[first], Cache::ReadOnly),
                        2 => half(number, first),
                        _ => words(number, first..last, Cache::ReadOnly),
                    }
                    first = last;
                }
            }
        }
    }

    /// Loads unit `unit` of a row into new registers.
    pub(crate) fn fetch(self, k: &Kernel, row: &[Pointer<Global, u8>], unit: Reg<u32>) -> Packed {
        let packed = Packed { words: (0..self.registers()).map(|_| k.reg()).collect(), unit, book: None };
        self.load(k, row, unit, 0, None, &packed);
        packed
    }

    /// Start of the lane's pieces of a tile, those of row `g + 8h` and unit t.
    pub(crate) fn lane_pieces(
        self,
        k: &Kernel,
        tile: Pointer<Global, u8>,
        (h, g, t): (Reg<u32>, Reg<u32>, Reg<u32>),
    ) -> Vec<Pointer<Global, u8>> {
        let start = |s: &Section| {
            let at = k.at_stride(k.at_stride(tile, g, s.g), h, s.h).plus_bytes(s.at.into());
            if s.has_units() { k.at_stride(at, t, s.t) } else { at }
        };
        self.sections().iter().map(start).collect()
    }

    /// Loads what a lane has of a tile for the tensor cores: [`Section::lane_pieces`] of each section.
    pub(crate) fn load_lane<S: Space>(
        self,
        k: &Kernel,
        tile: Pointer<S, u8>,
        lane: Reg<u32>,
        to: &[Reg<u32>],
        cache: Cache,
    ) {
        let row = k.shr(lane, 2);
        let mut to = to.iter().copied();
        for section in self.sections() {
            let at = match section.has_units() {
                true => k.at_stride(tile, lane, section.t),
                false => k.at_stride(tile, row, section.g),
            };
            for (offset, bytes) in section.lane_pieces() {
                let at = at.plus_bytes(i64::from(section.at + offset)).cast::<u32>();
                let words: Vec<Reg<u32>> = to.by_ref().take(bytes.div_ceil(4) as usize).collect();
                match bytes {
                    2 => k.load_half_where(None, at, words[0], cache),
                    _ => k.load_words_where(None, at, &words, cache),
                }
            }
        }
    }

    /// Loads unit `t + 4s` of the row of [`Format::lane_pieces`] into new registers.
    pub(crate) fn fetch_piece(
        self,
        k: &Kernel,
        pieces: &[Pointer<Global, u8>],
        t: Reg<u32>,
        s: u32,
    ) -> Packed {
        let unit = k.add(t, 4 * s);
        let packed = Packed { words: (0..self.registers()).map(|_| k.reg()).collect(), unit, book: None };
        self.load_pieces(k, None, &packed, |number| {
            let section = self.sections()[number];
            pieces[number].plus_bytes(i64::from(s * section.s))
        });
        packed
    }

    /// The first value of each run of up to 16 neighbouring values in unit `unit`.
    pub(crate) fn runs(self, k: &Kernel, unit: Reg<u32>) -> Vec<Multiple> {
        let start = k.scale(unit, self.unit());
        if self.is_quantized() { vec![start, k.plus(start, 16)] } else { vec![start] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_added_by_packing_whole_tiles() {
        for format in Format::ALL {
            let file = format.ty().bytes_for(u64::from(TILE_COLS)).map(|row| 48 * 3 * row);
            assert_eq!(Some(format.packed_bytes(48, 768)), file, "{format:?}");
        }
    }

    #[test]
    fn every_byte_of_a_tile_belongs_to_one_piece() {
        for format in Format::ALL.into_iter().filter(|f| f.is_quantized()) {
            let mut times = vec![0; format.tile_bytes() as usize];
            for section in format.sections() {
                let units = if section.has_units() { 8 } else { 1 };
                for (row, unit) in (0..TILE_ROWS).flat_map(|r| (0..units).map(move |u| (r, u))) {
                    let at = section.place(row, unit);
                    assert_eq!(at % section.bytes, 0, "{format:?}: unaligned");
                    (at..at + section.bytes).for_each(|byte| times[byte as usize] += 1);
                }
            }
            assert!(times.iter().all(|n| *n == 1), "{format:?}");
        }
    }
}
