//! Cycles until a result of fixed latency can be used.
//!
//! The numbers are those of Mesa's compiler for SM 8.x (`sm80_instr_latencies.rs` of NAK: "the register
//! scheduling information provided by NVIDIA"), and the fewest cycles that ptxas leaves over the corpus of the
//! tests where that table is silent or where SM 9.0 is faster. The fewest cycles of ptxas are never below a
//! number here: a test compares them.

use crate::arch::Encoding;
use crate::lint::pending::Hazard;
use crate::lint::step::Step;
use crate::lint::unit::Unit;
use crate::opcode::Opcode;
use crate::registers::Register;

/// Cycles from the issue of `first` to the issue of `next`, which read or write `register`.
pub(super) fn needed(hazard: Hazard, first: &Step, next: &Step, register: Register) -> u8 {
    let (from, to) = (Unit::of(&first.instruction, register), Unit::of(&next.instruction, register));
    let guards = next.guard() == register;
    match (hazard, register) {
        (Hazard::ReadAfterWrite, Register::R(_)) => match first.instruction.arch.encoding() {
            Encoding::Sm8x => register_read(from, to),
            // It reads its address and its arrival's operand as late as that.
            Encoding::Sm9x if next.instruction.opcode == Opcode::Syncs => register_read_sm9x(from, to).min(4),
            Encoding::Sm9x => register_read_sm9x(from, to),
        },
        (Hazard::ReadAfterWrite, Register::P(_)) => predicate_read(from, to, guards),
        (Hazard::ReadAfterWrite, Register::Ur(_)) => uniform_read(from, to),
        (Hazard::ReadAfterWrite, Register::Up(_)) => uniform_predicate_read(from, to, guards),
        (Hazard::WriteAfterWrite, _) => write_after_write(from, to, next.instruction.guard.is_always()),
        // Instructions of fixed latency read their sources when they issue.
        (Hazard::WriteAfterRead, _) => 1,
    }
}

const fn register_read(from: Unit, to: Unit) -> u8 {
    use Unit as U;
    // Cycles by which the reader needs it earlier or later than the ALU.
    match (from, to) {
        (U::Variable | U::Memory | U::Branch, _) => 1,
        (U::Alu | U::Vote, U::Alu | U::Vote | U::Branch | U::Variable) => 4,
        (U::Fma | U::WideHigh | U::Half | U::Dispatch, U::Branch | U::Variable) => 4,
        (U::WideLow, U::Branch | U::Variable) => 4,
        (U::HalfMma | U::Double, U::Branch | U::Variable) => 6,
        (U::Alu | U::Vote | U::Fma | U::WideLow | U::WideHigh | U::Half | U::Dispatch, U::Memory) => 5,
        (U::HalfMma | U::Double, U::Memory) => 7,
        (U::Alu | U::Vote | U::Fma | U::WideLow | U::WideHigh | U::Half | U::Dispatch, to) => {
            match (from, to) {
                (_, U::Matrix | U::MatrixLong | U::MatrixDouble) => 7,
                (_, U::HalfMma | U::Double) => 6,
                (U::WideLow, U::WideHigh | U::WideLow | U::Fma) => 2,
                (U::Fma | U::WideHigh, U::WideHigh) => 2,
                (U::Dispatch, U::WideHigh) => 4,
                (_, U::WideHigh) => 3,
                (U::Dispatch, _) => 6,
                (U::Half, U::Half) => 4,
                (U::WideLow, _) => 3,
                (U::Fma | U::WideHigh, U::Fma | U::WideLow) => 4,
                _ => 5,
            }
        }
        (U::HalfMma | U::Double, U::HalfMma | U::Double) => 6,
        (U::HalfMma | U::Double, U::WideHigh) => 8,
        (U::HalfMma | U::Double, U::Matrix | U::MatrixLong | U::MatrixDouble) => 11,
        (U::HalfMma | U::Double, _) => 10,
        (U::Matrix, to) => matrix_read(13, to),
        (U::MatrixLong, to) => matrix_read(24, to),
        (U::MatrixDouble, to) => matrix_read(25, to),
        (U::Uniform | U::UniformMove, _) => 1,
    }
}

/// `alu` is the number of cycles for the ALU.
const fn matrix_read(alu: u8, to: Unit) -> u8 {
    match to {
        Unit::Memory => alu - 1,
        Unit::Branch | Unit::Variable | Unit::WideHigh => alu - 2,
        _ => alu,
    }
}

/// On SM 9.0 the ALU and the multiplier pass each other results a cycle earlier.
const fn register_read_sm9x(from: Unit, to: Unit) -> u8 {
    use Unit as U;
    match (from, to) {
        (U::Alu | U::Fma | U::WideHigh, U::Alu | U::Fma | U::WideLow) => 4,
        _ => register_read(from, to),
    }
}

const fn predicate_read(from: Unit, to: Unit, guards: bool) -> u8 {
    use Unit as U;
    let slow = matches!(from, U::Double | U::HalfMma);
    match to {
        // `R2UR` of SM 9.0; others set barriers.
        _ if matches!(from, U::Memory | U::Variable) => 8,
        _ if guards => 13 + slow as u8,
        U::Vote | U::Memory | U::Variable | U::Branch | U::UniformMove => 13 + slow as u8,
        U::HalfMma | U::Double => {
            if slow {
                6
            } else {
                13
            }
        }
        _ if slow => 6,
        U::Alu => {
            if matches!(from, U::Alu | U::Vote) {
                4
            } else {
                5
            }
        }
        U::Fma | U::WideLow | U::WideHigh => {
            if matches!(from, U::Fma | U::WideLow | U::WideHigh) {
                4
            } else {
                5
            }
        }
        _ => 5,
    }
}

const fn uniform_read(from: Unit, to: Unit) -> u8 {
    use Unit as U;
    match (from, to) {
        (U::Uniform, U::Uniform) => 4,
        (U::Uniform, U::UniformMove) => 7,
        (U::Uniform, U::Memory | U::Variable | U::Double) => 9,
        (U::Uniform, U::Branch) => 10,
        (U::Uniform, _) => 6,
        (U::UniformMove, U::Branch) => 3,
        (U::UniformMove, _) => 2,
        // `R2UR` of SM 9.0.
        (U::Variable, _) => 13,
        _ => 1,
    }
}

const fn uniform_predicate_read(from: Unit, to: Unit, guards: bool) -> u8 {
    use Unit as U;
    match (from, to) {
        (U::Uniform, U::Branch) => 9,
        (U::Uniform, U::UniformMove | U::Matrix | U::MatrixLong | U::MatrixDouble) => 11,
        (U::Uniform, _) if guards => 11,
        (U::Uniform, U::Uniform) => 4,
        (U::Uniform, _) => 6,
        (U::UniformMove, U::Branch) => 2,
        (U::UniformMove, _) if guards => 5,
        _ => 1,
    }
}

const fn write_after_write(from: Unit, to: Unit, always: bool) -> u8 {
    use Unit as U;
    match (from, to) {
        (U::HalfMma | U::Double, U::Alu | U::Fma) => 3,
        (U::HalfMma | U::Double, U::Half | U::HalfMma | U::Double) => 2,
        (U::Matrix, U::Alu | U::Fma | U::Half | U::HalfMma | U::Double) if always => 8,
        (U::MatrixLong, U::Alu | U::Fma | U::Half | U::HalfMma | U::Double) if always => 12,
        (U::Matrix, U::Matrix | U::MatrixLong) => 4,
        (U::MatrixLong, U::Matrix | U::MatrixLong) => 8,
        (U::Uniform, U::UniformMove | U::Variable) => 7,
        (U::UniformMove, U::Variable) => 4,
        _ => 1,
    }
}
