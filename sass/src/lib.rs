#![doc = include_str!("../README.md")]
//!
//! # Layers
//! ```text
//! lint         effects lint            # waits that are missing
//! listing      listing memory          # listings, and what instructions access
//! instruction  instruction print       # one instruction and its text
//! table        table                   # rows: one for each form of an instruction
//! printing     control printer         # control codes and operands as text
//! operands     error operands special  # operands, errors, special registers
//! words        arch number opcode operand registers word  # bits and names
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
