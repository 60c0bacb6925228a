//! A decoded instruction.

use crate::arch::Arch;
use crate::control::Control;
use crate::error::DecodeError;
use crate::opcode::Opcode;
use crate::operand::{Guard, Source};
use crate::operands::Dst;
use crate::printer::{Printer, Refused};
use crate::table::control::branch_target;
use crate::table::find;
use crate::table::row::Row;
use crate::word::Word;

/// A decoded instruction: the operation and its operands. Everything else (modifiers, predicates, address
/// offsets) is read from [`word`](Self::word) by bit position.
///
/// **Roles.** `a`, `b`, `c` are the sources A, B, C of the operation, wherever the word holds them. Three
/// rules keep users free of special cases:
/// - the second source of a two-source operation is always `b`, also for `FADD`, `DADD`, `DSETP`, `HADD2`,
///   `HSET2` and `HSETP2`, which keep it in the slot of C in some forms; the only source of a one-source
///   operation is `b` too;
/// - in memory operations `a` is the address register, `b` the data stored or the operand of an atomic (for
///   `CAS` the value compared with), `c` the value that `CAS` stores; offsets and uniform registers stay in
///   the word;
/// - `SHFL`: `a` value, `b` lane, `c` clamp and segment. `BAR`: `b` barrier number, `c` thread count. `S2R`,
///   `S2UR`, `CS2R`: `a` is the special register number.
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
    /// Condition for execution.
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
    let row = find(arch, word).ok_or(DecodeError::UnknownOpcode { arch, word })?;
    Control::check(word)?;
    check(arch, row, word)?;
    let [a, b, c] = row.operands.sources(word);
    let dst = match row.operands.dst {
        Dst::None => None,
        Dst::R => Some(word.bits(16, 8) as u8),
        Dst::U => Some(word.bits(16, 6) as u8),
    };
    Ok(Instruction {
        arch,
        word,
        opcode: row.opcode,
        form: word.form(),
        guard: Guard { index: word.bits(12, 3) as u8, neg: word.bit(15), uniform: row.operands.uniform },
        dst,
        a,
        b,
        c,
    })
}

/// Refuses words with fields that the printer cannot read, and with set bits that it does not read.
fn check(arch: Arch, row: &'static Row, word: Word) -> Result<(), DecodeError> {
    if row.name_only {
        return Ok(());
    }
    let opcode = row.opcode;
    let mut printer = Printer::new(&row.operands, arch, word, 0, None);
    printer.line(row).map_err(|Refused { lo, width }| {
        let value = word.bits(lo, width);
        DecodeError::UnknownValue { word, opcode, lo, width, value }
    })?;
    match printer.unread() {
        0 => Ok(()),
        bits => Err(DecodeError::UnexpectedBits { word, opcode, bits }),
    }
}

impl Instruction {
    /// The text that NVIDIA's disassembler prints for this instruction at address `pc`, without the final
    /// semicolon and with single blanks. Branch targets are absolute addresses.
    ///
    /// Operations of [`is_name_only`](Self::is_name_only) print their name only.
    pub fn text(&self, pc: u64) -> String {
        let mut text = String::with_capacity(48);
        if let Some(row) = find(self.arch, self.word) {
            // The word was accepted when it was decoded; a word put together by hand prints as far as it has
            // meaning.
            let _ = Printer::new(&row.operands, self.arch, self.word, pc, Some(&mut text)).line(row);
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The address that a direct branch, call, `BSSY` or `WARPSYNC.COLLECTIVE` at address `pc` names.
    pub fn branch_target(&self, pc: u64) -> Option<u64> {
        branch_target(find(self.arch, self.word)?, self.arch, self.word, pc)
    }

    /// Whether only the name of the operation is known (graphics and the system): it has no operands
    /// here, and its other bits were not checked.
    pub fn is_name_only(&self) -> bool {
        find(self.arch, self.word).is_some_and(|row| row.name_only)
    }

    /// The scheduling field.
    pub const fn control(&self) -> Control {
        Control::of(self.word)
    }
}
