//! Decoder and printer of SM 8.x and 9.x machine code.
//!
//! [`decode`] turns a 128-bit [`Word`] into an [`Instruction`]: operation, operand form, guard, destination and sources.
//! The decoder is strict: a word that it does not understand in full is a [`DecodeError`] that shows the word.
//!
//! ```
//! use sass::{Arch, Opcode, Operand, Word, decode};
//!
//! // FADD R5, R2, R3
//! let add = decode(Arch::Sm87, Word(0x000fca00000000000000000302057221))?;
//! assert_eq!(add.opcode, Opcode::Fadd);
//! assert_eq!(add.dst, Some(5));
//! assert_eq!(add.b.map(|source| source.operand), Some(Operand::Reg(3)));
//! # Ok::<(), sass::DecodeError>(())
//! ```
#![forbid(unsafe_code)]

mod arch;
mod control;
mod error;
mod instruction;
mod number;
mod opcode;
mod operand;
mod print;
mod special;
mod table;
mod word;

pub use arch::Arch;
pub use control::Control;
pub use error::DecodeError;
pub use instruction::{Instruction, decode};
pub use opcode::Opcode;
pub use operand::{Guard, Operand, Source};
pub use word::{WORD_BYTES, Word};
