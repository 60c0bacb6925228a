//! The 128-bit instruction word and its bit fields.

use std::fmt;

/// Bytes of one instruction; instructions lie at multiples of it.
pub const WORD_BYTES: usize = 16;

/// One instruction as the machine stores it: 16 bytes, little-endian, bit 0 the lowest bit of the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word(pub u128);

impl Word {
    /// Reads the 16 bytes of an instruction as they lie in memory.
    pub const fn from_bytes(bytes: [u8; WORD_BYTES]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The 16 bytes of the instruction as they lie in memory.
    pub const fn to_bytes(self) -> [u8; WORD_BYTES] {
        self.0.to_le_bytes()
    }

    /// Bit `n`, 0 to 127.
    pub const fn bit(self, n: u32) -> bool {
        self.0 >> n & 1 != 0
    }

    /// The unsigned field of `width` (1 to 64) bits that begins at bit `lo`.
    pub const fn bits(self, lo: u32, width: u32) -> u64 {
        ((self.0 >> lo) as u64) & (u64::MAX >> (64 - width))
    }

    /// The two's complement field of `width` (1 to 64) bits that begins at bit `lo`.
    pub const fn sbits(self, lo: u32, width: u32) -> i64 {
        let unused = 64 - width;
        ((self.bits(lo, width) << unused) as i64) >> unused
    }

    /// The 12-bit operation code, bits 0 to 11.
    pub const fn op12(self) -> u16 {
        self.bits(0, 12) as u16
    }

    /// The operand form, bits 9 to 11: where an arithmetic operation takes its sources from.
    pub const fn form(self) -> u8 {
        self.bits(9, 3) as u8
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word({self})")
    }
}

/// 32 hex digits, the highest bit first.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#034x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_may_cross_the_middle_of_the_word() {
        let word = Word(0b1011 << 62);
        assert_eq!(word.bits(62, 4), 0b1011);
        assert_eq!(word.sbits(62, 4), -5);
        assert_eq!(word.bits(0, 64), 0b11 << 62);
    }

    #[test]
    fn bytes_are_little_endian() {
        let word = Word(0x0102);
        assert_eq!(word.to_bytes()[..2], [2, 1]);
        assert_eq!(Word::from_bytes(word.to_bytes()), word);
    }
}
