//! The scheduling field that the compiler adds to every instruction.

use std::fmt;

use crate::error::DecodeError;
use crate::word::Word;

/// Scheduling control, bits 105 to 125. It steers timing only: results do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    /// Cycles before the warp's next instruction may issue; 0 stands for a longer time than any other value.
    pub stall: u8,
    /// The scheduler may prefer another warp (bit 109 clear).
    pub may_yield: bool,
    /// Barrier 0 to 5 that is set on issue and released when the result is written.
    pub write_barrier: Option<u8>,
    /// Barrier 0 to 5 that is released when the sources have been read.
    pub read_barrier: Option<u8>,
    /// Barriers to wait for before issue: bit `i` is barrier `i`.
    pub wait_mask: u8,
    /// Sources to keep in the operand reuse cache: bit 0 is A, 1 is B, 2 is C.
    pub reuse: u8,
}

impl Control {
    /// Reads the field.
    pub const fn of(word: Word) -> Self {
        Self {
            stall: word.bits(105, 4) as u8,
            may_yield: !word.bit(109),
            write_barrier: barrier(word.bits(110, 3) as u8),
            read_barrier: barrier(word.bits(113, 3) as u8),
            wait_mask: word.bits(116, 6) as u8,
            reuse: word.bits(122, 3) as u8,
        }
    }

    /// Cycles before the warp's next instruction may issue, at least. A stall of 0, which ptxas gives to `ERRBAR`
    /// and without optimization to matrix products, is one of 45 (Huerta et al., "Analyzing Modern NVIDIA GPU
    /// cores", 2025).
    pub(crate) const fn cycles(&self) -> u8 {
        if self.stall == 0 { 45 } else { self.stall }
    }

    /// Refuses the field values that no instruction may hold.
    pub(crate) const fn check(word: Word) -> Result<(), DecodeError> {
        let stall = word.bits(105, 4) as u8;
        if word.bit(109) && (stall == 0 || stall > 11) {
            return Err(DecodeError::Stall { word, stall });
        }
        Ok(())
    }
}

/// 7 means no barrier; 6 does not exist and reads as none.
const fn barrier(value: u8) -> Option<u8> {
    if value < 6 { Some(value) } else { None }
}

/// `B--:R-:W0:Y:S05`: wait mask, read barrier, write barrier, yield, stall.
impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("B")?;
        for i in 0..6 {
            if self.wait_mask >> i & 1 != 0 { write!(f, "{i}")? } else { f.write_str("-")? }
        }
        for (name, barrier) in [('R', self.read_barrier), ('W', self.write_barrier)] {
            match barrier {
                Some(i) => write!(f, ":{name}{i}")?,
                None => write!(f, ":{name}-")?,
            }
        }
        write!(f, ":{}:S{:02}", if self.may_yield { 'Y' } else { '-' }, self.stall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_field_of_a_load_names_its_barrier() {
        let word = Word(0x000e_a200_0c1e_1500_0000_0006_0606_7981);
        let control = Control::of(word);
        assert_eq!(control.write_barrier, Some(2));
        assert_eq!(control.read_barrier, None);
        assert_eq!(control.to_string(), "B------:R-:W2:-:S01");
    }
}
