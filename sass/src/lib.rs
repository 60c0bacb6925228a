//! Decoder and printer of SM 8.x and 9.x machine code.
//!
//! [`decode`] turns a 128-bit [`Word`] into an [`Instruction`]: operation, operand form, guard,
//! destination and sources.
//! [`Instruction::text`] prints it exactly as NVIDIA's `nvdisasm` does, and [`Listing`] iterates over a piece
//! of code. The decoder is strict: a word that it does not understand in full is a [`DecodeError`] that shows
//! the word. Bits that an operation does not use must hold what the compiler puts there, which is narrower
//! than what `nvdisasm` accepts. Register numbers that a 64 or 128-bit value cannot have are accepted: the
//! hardware reports those when it executes them.
//!
//! SM 8.0 to 8.9 and SM 9.0 are covered as far as compute kernels go; graphics, texture and surface
//! operations have names only ([`Instruction::is_name_only`]). SM 8.0, 8.6, 8.7 and 8.9 share one encoding
//! ([`Encoding`]); the FP8 operations that SM 8.9 adds are unknown.
//!
//! ```
//! use sass::{Arch, Opcode, Operand, Word, decode};
//!
//! // FADD R5, R2, R3
//! let add = decode(Arch::Sm87, Word(0x000fca00000000000000000302057221))?;
//! assert_eq!(add.opcode, Opcode::Fadd);
//! assert_eq!(add.dst, Some(5));
//! assert_eq!(add.b.map(|source| source.operand), Some(Operand::Reg(3)));
//! assert_eq!(add.text(0), "FADD R5, R2, R3");
//! # Ok::<(), sass::DecodeError>(())
//! ```
//!
//! # Layers
//! ```text
//! 0  arch number opcode operand word
//! 1  error operands special
//! 2  control printer
//! 3  table::address table::item
//! 4  table::fields table::row
//! 5  print table::control table::convert table::graphics table::half table::integer table::matrix table::memory
//! 6  table::float table::uniform
//! 7  table
//! 8  instruction
//! 9  listing memory
//! ```
#![forbid(unsafe_code)]

mod arch;
mod control;
mod error;
mod instruction;
mod listing;
mod memory;
mod number;
mod opcode;
mod operand;
mod operands;
mod print;
mod printer;
mod special;
mod table;
mod word;

pub use arch::{Arch, Encoding};
pub use control::Control;
pub use error::DecodeError;
pub use instruction::{Instruction, decode};
pub use listing::{Line, Listing};
pub use memory::{Access, MemoryAccess, Space};
pub use opcode::Opcode;
pub use operand::{Guard, Operand, Source};
pub use word::{WORD_BYTES, Word};
