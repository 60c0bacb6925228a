//! Why a word was refused.

use crate::arch::Arch;
use crate::opcode::Opcode;
use crate::word::Word;

/// Why [`decode`](crate::decode) refused a word.
///
/// The decoder never guesses: a word that it does not understand in full is an error that shows the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No operation has this code.
    #[error("{word}: operation code {:#05x} is unknown on {arch}", .word.op12())]
    UnknownOpcode {
        /// The requested instruction set.
        arch: Arch,
        /// The refused word.
        word: Word,
    },
    /// A field holds a value without meaning.
    #[error("{word}: {opcode} has no meaning for the value {value:#x} of bits {lo} to {}", .lo + .width - 1)]
    UnknownValue {
        /// The refused word.
        word: Word,
        /// The operation found.
        opcode: Opcode,
        /// Lowest bit of the field.
        lo: u32,
        /// Bits in the field.
        width: u32,
        /// The value found there.
        value: u64,
    },
    /// Bits that the operation does not use hold something else than the value they must hold.
    #[error("{word}: {opcode} does not use the bits {bits:#034x}, which hold an unexpected value")]
    UnexpectedBits {
        /// The refused word.
        word: Word,
        /// The operation found.
        opcode: Opcode,
        /// The offending bits.
        bits: u128,
    },
    /// The stall count does not go with the yield bit.
    #[error("{word}: a stall of {stall} cycles with bit 109 set; 1 to 11 are possible")]
    Stall {
        /// The refused word.
        word: Word,
        /// Bits 105 to 108.
        stall: u8,
    },
}

impl DecodeError {
    /// The refused word.
    pub const fn word(&self) -> Word {
        match *self {
            Self::UnknownOpcode { word, .. }
            | Self::UnknownValue { word, .. }
            | Self::UnexpectedBits { word, .. }
            | Self::Stall { word, .. } => word,
        }
    }
}
