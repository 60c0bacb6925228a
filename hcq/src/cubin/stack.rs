//! The stack that a kernel needs, where the compiler's records do not say.
//!
//! ptxas 12 writes a minimum of 0 for every kernel with calls: for those whose need it does not know (recursion,
//! indirect calls, `alloca`), and for those that call its own small functions (a division, a shuffle), which
//! need none. The code itself tells them apart by what it does with R1, the stack pointer.

use sass::{Arch, Instruction, Opcode, Operand, Register, Word};

/// Stack bytes for kernels whose need is unknown: CUDA's default.
const UNKNOWN: u32 = 1024;

/// The stack pointer.
const POINTER: u8 = 1;

/// The use of the stack by a kernel's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StackUse {
    /// It calls functions.
    calls: bool,
    /// Some of them are not in the same code.
    leaves: bool,
    /// It reaches local memory.
    local: bool,
    /// Bytes by which it lowers the stack pointer, all places together; `None` if it sets it in another way.
    lowered: Option<u32>,
}

fn scan(arch: Arch, code: &[u8]) -> StackUse {
    let mut found = StackUse { lowered: Some(0), ..StackUse::default() };
    // By the number of an operation, its lowest 12 bits: whether it is known to neither call nor reach local memory.
    let mut others = [false; 1 << 12];
    for (pc, word) in (0..).step_by(sass::WORD_BYTES).zip(code.chunks_exact(sass::WORD_BYTES)) {
        let Ok(bytes): Result<[u8; sass::WORD_BYTES], _> = word.try_into() else { continue };
        let number = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]) & 0xfff);
        // Decoding all is slow. Vectors that contain R1 begin there or at R0.
        if others[number] && bytes[2] > POINTER {
            continue;
        }
        // A word that cannot be decoded faults when it runs, not here.
        let Ok(instruction) = sass::decode(arch, Word::from_bytes(bytes)) else { continue };
        let name = instruction.opcode.mnemonic();
        if name.starts_with("CALL") {
            found.calls = true;
            let target = instruction.branch_target(pc);
            found.leaves |= target.is_none_or(|target| target >= code.len() as u64);
        }
        let is_local = name.starts_with("LDL") || name.starts_with("STL");
        found.local |= is_local;
        others[number] = !is_local && !name.starts_with("CALL");
        if instruction.effects().is_some_and(|e| e.writes.contains(Register::R(POINTER))) {
            let more = lowered(&instruction);
            found.lowered = found.lowered.zip(more).map(|(all, more)| all.saturating_add(more));
        }
    }
    found
}

/// Bytes by which an instruction that writes the stack pointer lowers it. `None` if it is neither the start of
/// the kernel, where the pointer comes from the driver's constants, nor the addition of a number.
fn lowered(instruction: &Instruction) -> Option<u32> {
    // The top of a thread's stack, as the driver sets it.
    if instruction.text(0).contains("c[0x0][0x28]") {
        return Some(0);
    }
    match (instruction.opcode, instruction.a?.operand, instruction.b?.operand) {
        (Opcode::Iadd3 | Opcode::Viadd, Operand::Reg(POINTER), Operand::Imm(n)) => {
            Some(n.cast_signed().min(0).unsigned_abs())
        }
        _ => None,
    }
}

/// Stack bytes per thread: `frame` and `minimum` as the compiler recorded them for the kernel (`u32::MAX` is
/// its word for unknown), `callees` the sum of the frames of the functions beside it.
pub(super) fn bytes(sm: u32, code: &[u8], frame: u32, minimum: Option<u32>, callees: u32) -> u32 {
    let unknown = frame.saturating_add(callees).saturating_add(UNKNOWN);
    let known = match minimum {
        Some(u32::MAX) => return unknown,
        Some(minimum) => minimum.max(frame),
        None => frame,
    };
    let Some(arch) = Arch::from_sm(sm) else { return known };
    // A known need that covers the frames of what is called is believed.
    if known > frame && known >= callees {
        return known;
    }
    let used = scan(arch, code);
    // Functions of the same code that never lower the pointer below the kernel's own frame need no more.
    let frameless = callees == 0 && !used.leaves && used.lowered.is_some_and(|bytes| bytes <= known);
    let unknown_calls = used.calls && !frameless;
    if unknown_calls || (used.local && known == 0) { unknown.max(known) } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_compiler_knows_is_believed() {
        assert_eq!(bytes(87, &[], 0, Some(0), 0), 0);
        assert_eq!(bytes(87, &[], 256, Some(256), 0), 256);
        assert_eq!(bytes(87, &[], 64, Some(512), 80), 512);
        assert_eq!(bytes(87, &[], 64, None, 0), 64);
    }

    #[test]
    fn what_it_does_not_know_gets_the_default() {
        assert_eq!(bytes(87, &[], 64, Some(u32::MAX), 0), 64 + UNKNOWN);
        assert_eq!(bytes(87, &[], u32::MAX, Some(u32::MAX), 80), u32::MAX);
    }
}
