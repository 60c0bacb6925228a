//! Listings of machine code.

use std::fmt;

use crate::arch::Arch;
use crate::error::DecodeError;
use crate::instruction::{Instruction, decode};
use crate::word::{WORD_BYTES, Word};

/// Iterates over a piece of machine code, one [`Line`] per instruction. Bytes at the end that are less than
/// an instruction yield nothing.
///
/// ```
/// let code = 0x000fca00000000000000000302057221u128.to_le_bytes();
/// let text: Vec<String> = sass::Listing::new(sass::Arch::Sm87, &code, 0x40).map(|line| line.to_string()).collect();
/// assert_eq!(text, ["/*0040*/ FADD R5, R2, R3 ;"]);
/// ```
#[derive(Debug, Clone)]
pub struct Listing<'a> {
    arch: Arch,
    code: &'a [u8],
    pc: u64,
}

/// One instruction of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its address.
    pub pc: u64,
    /// Its word.
    pub word: Word,
    /// Its decoding.
    pub decoded: Result<Instruction, DecodeError>,
}

impl<'a> Listing<'a> {
    /// A listing of `code`, whose first byte lies at address `base`.
    pub const fn new(arch: Arch, code: &'a [u8], base: u64) -> Self {
        Self { arch, code, pc: base }
    }

    /// A listing of the instruction at `pc` and up to `reach` neighbours on each side; `None` if `pc` lies
    /// outside `code` or between two instructions.
    ///
    /// ```
    /// let code = 0x000fca00000000000000000302057221u128.to_le_bytes().repeat(5);
    /// let near = sass::Listing::around(sass::Arch::Sm87, &code, 0x100, 0x110, 2).expect("inside");
    /// assert_eq!(near.map(|line| line.pc).collect::<Vec<_>>(), [0x100, 0x110, 0x120, 0x130]);
    /// ```
    pub fn around(arch: Arch, code: &'a [u8], base: u64, pc: u64, reach: usize) -> Option<Self> {
        let at = usize::try_from(pc.checked_sub(base)?).ok()?;
        if at % WORD_BYTES != 0 || at + WORD_BYTES > code.len() {
            return None;
        }
        let index = at / WORD_BYTES;
        let first = index.saturating_sub(reach);
        let last = index.saturating_add(reach).min(code.len() / WORD_BYTES - 1);
        let code = code.get(first * WORD_BYTES..(last + 1) * WORD_BYTES)?;
        Some(Self::new(arch, code, base + (first * WORD_BYTES) as u64))
    }
}

impl Iterator for Listing<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let (word, rest) = self.code.split_first_chunk::<WORD_BYTES>()?;
        let (pc, word) = (self.pc, Word::from_bytes(*word));
        self.code = rest;
        self.pc = pc.wrapping_add(WORD_BYTES as u64);
        Some(Line { pc, word, decoded: decode(self.arch, word) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.code.len() / WORD_BYTES;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Listing<'_> {}

impl Line {
    /// The instruction's text, or the word where there is none.
    pub fn text(&self) -> String {
        match &self.decoded {
            Ok(instruction) => instruction.text(self.pc),
            Err(_) => format!(".word {}", self.word),
        }
    }
}

/// `/*address*/ text ;`, followed by the scheduling field with `{:#}`.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/*{:04x}*/ {} ;", self.pc, self.text())?;
        match &self.decoded {
            Ok(instruction) if f.alternate() => write!(f, " [{}]", instruction.control()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: [u8; 16] = 0x000f_ca00_0000_0000_0000_0003_0205_7221_u128.to_le_bytes();

    #[test]
    fn a_word_that_is_no_instruction_is_shown() {
        let mut code = ADD.to_vec();
        code.extend([0; 16]);
        code.push(7);
        let lines: Vec<_> = Listing::new(Arch::Sm87, &code, 0).map(|line| format!("{line:#}")).collect();
        assert_eq!(
            lines,
            [
                "/*0000*/ FADD R5, R2, R3 ; [B------:R-:W-:Y:S05]",
                "/*0010*/ .word 0x00000000000000000000000000000000 ;"
            ]
        );
    }

    #[test]
    fn a_program_counter_outside_the_code_has_no_neighbours() {
        for pc in [0, 0x108, 0x120, u64::MAX] {
            assert!(Listing::around(Arch::Sm87, &ADD.repeat(2), 0x100, pc, 1).is_none(), "{pc:#x}");
        }
    }
}
