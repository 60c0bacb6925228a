#![doc = include_str!("../README.md")]
//!
//! # Layers
//! ```text
//! 0  arch number opcode operand registers word
//! 1  error operands special
//! 2  control printer
//! 3  table::address table::item
//! 4  table::fields table::row
//! 5  print table::control table::convert table::graphics table::half table::integer table::matrix table::memory
//! 6  table::float table::uniform
//! 7  table
//! 8  instruction
//! 9  listing memory
//! 10 effects lint::unit
//! 11 lint::step
//! 12 lint::flow lint::pending
//! 13 lint::search lint::timing
//! 14 lint
//! ```
#![forbid(unsafe_code)]

mod arch;
mod control;
mod effects;
mod error;
mod instruction;
pub mod lint;
mod listing;
mod memory;
mod number;
mod opcode;
mod operand;
mod operands;
mod print;
mod printer;
mod registers;
mod special;
mod table;
mod word;

pub use arch::{Arch, Encoding};
pub use control::Control;
pub use effects::Effects;
pub use error::DecodeError;
pub use instruction::{Instruction, decode};
pub use listing::{Line, Listing};
pub use memory::{Access, MemoryAccess, Space};
pub use opcode::Opcode;
pub use operand::{Guard, Operand, Source};
pub use registers::{Register, RegisterSet};
pub use word::{WORD_BYTES, Word};
