//! A decoded instruction.

use crate::table::{self, Dst};
use crate::{Arch, Control, DecodeError, Guard, Opcode, Source, Word};

/// A decoded instruction: the operation and its operands. Everything else (modifiers, predicates, address offsets) is read
/// from [`word`](Self::word) by bit position.
///
/// **Roles.** `a`, `b`, `c` are the sources A, B, C of the operation, wherever the word holds them. Three rules keep users
/// free of special cases:
/// - the second source of a two-source operation is always `b`, also for `FADD`, `DADD`, `DSETP`, `HADD2`, `HSET2` and
///   `HSETP2`, which keep it in the slot of C in some forms; the only source of a one-source operation is `b` too;
/// - in memory operations `a` is the address register, `b` the data stored or the operand of an atomic (for `CAS` the value
///   compared with), `c` the value that `CAS` stores; offsets and uniform registers stay in the word;
/// - `SHFL`: `a` value, `b` lane, `c` clamp and segment. `BAR`: `b` barrier number, `c` thread count. `S2R`, `S2UR`, `CS2R`:
///   `a` is the special register number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The instruction set.
    pub arch: Arch,
    /// The word decoded.
    pub word: Word,
    /// The operation.
    pub opcode: Opcode,
    /// Bits 9 to 11: the operand form of arithmetic operations.
    pub form: u8,
    /// Who executes it.
    pub guard: Guard,
    /// Destination register: R, or UR for operations of the uniform datapath and those that write one.
    pub dst: Option<u8>,
    /// Source A.
    pub a: Option<Source>,
    /// Source B.
    pub b: Option<Source>,
    /// Source C.
    pub c: Option<Source>,
}

/// Decodes one instruction word.
///
/// # Errors
/// [`DecodeError`] if any part of the word has no known meaning; the error shows the word.
pub fn decode(arch: Arch, word: Word) -> Result<Instruction, DecodeError> {
    let row = table::find(arch, word).ok_or(DecodeError::UnknownOpcode { arch, word })?;
    Control::check(word)?;
    let [a, b, c] = row.sources(word);
    let dst = match row.dst {
        Dst::None => None,
        Dst::R => Some(word.bits(16, 8) as u8),
        Dst::U => Some(word.bits(16, 6) as u8),
    };
    Ok(Instruction {
        arch,
        word,
        opcode: row.opcode,
        form: word.form(),
        guard: Guard { index: word.bits(12, 3) as u8, neg: word.bit(15), uniform: row.uniform },
        dst,
        a,
        b,
        c,
    })
}

impl Instruction {
    /// The scheduling field.
    pub const fn control(&self) -> Control {
        Control::of(self.word)
    }
}
