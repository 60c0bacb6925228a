//! The registers that an instruction reads and writes, with the widths of its operands.
//!
//! Predicates and uniform registers are those that the printer reads out of the word; the registers of the
//! thread are the operands, as wide as the operation makes them.

use crate::instruction::Instruction;
use crate::memory::{Access, Space};
use crate::opcode::Opcode;
use crate::operand::{Operand, Source};
use crate::printer::Printer;
use crate::registers::{Register, RegisterSet};
use crate::table::find;

/// Registers and predicates that an instruction reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects {
    /// Read, the guard included.
    pub reads: RegisterSet,
    /// Written if the guard lets it.
    pub writes: RegisterSet,
}

/// Numbers of 32-bit registers of an instruction's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Widths {
    dst: u8,
    sources: [u8; 3],
}

impl Widths {
    const fn new(dst: u8, a: u8, b: u8, c: u8) -> Self {
        Self { dst, sources: [a, b, c] }
    }
}

impl Instruction {
    /// The registers read and written; `None` where only the name of the operation is known, and for
    /// textures and surfaces: how many registers they take depends on the shape of the object.
    ///
    /// Convergence barriers and the states of the warp that `BMOV` moves are no registers here.
    pub fn effects(&self) -> Option<Effects> {
        let row = find(self.arch, self.word).filter(|row| !row.name_only && !row.widths_unknown)?;
        let mut printer = Printer::new(&row.operands, self.arch, self.word, 0, None);
        // A word put together by hand has the operands that can be read.
        let _ = printer.line(row);
        let mut effects = Effects { reads: printer.read, writes: printer.written };
        let widths = self.widths();
        for (source, width) in [self.a, self.b, self.c].into_iter().zip(widths.sources) {
            effects.reads = effects.reads | source_registers(source, width);
        }
        match self.dst {
            // The address in shared memory.
            Some(address) if self.opcode == Opcode::Ldgsts => effects.reads.insert_group(address, 1),
            Some(dst) if self.writes_uniform() => effects.writes.insert_uniform_group(dst, widths.dst),
            Some(dst) => effects.writes.insert_group(dst, widths.dst),
            None => {}
        }
        self.predicate_moves(&mut effects);
        if matches!(self.opcode, Opcode::Hmma | Opcode::Imma) && self.is_sparse() {
            effects.reads.insert_group(self.word.bits(40, 8) as u8, 1);
        }
        Some(effects)
    }

    fn writes_uniform(&self) -> bool {
        self.guard.uniform
            || matches!(
                self.opcode,
                Opcode::Redux
                    | Opcode::R2ur
                    | Opcode::Elect
                    | Opcode::Voteu
                    | Opcode::S2ur
                    | Opcode::Uldc
                    | Opcode::Umov
            )
    }

    /// `P2R` and `R2P` move the predicates of a mask.
    fn predicate_moves(&self, effects: &mut Effects) {
        let mask = match self.b.map(|b| b.operand) {
            Some(Operand::Imm(mask)) => mask,
            _ => 0x7f,
        };
        let moved = (0..7).filter(|n| mask >> n & 1 != 0).map(Register::P).collect::<RegisterSet>();
        match self.opcode {
            Opcode::P2r => effects.reads = effects.reads | moved,
            Opcode::R2p => effects.writes = effects.writes | moved,
            _ => {}
        }
    }

    fn is_sparse(&self) -> bool {
        self.word.bit(if self.opcode == Opcode::Hmma { 73 } else { 72 })
    }

    fn widths(&self) -> Widths {
        use Opcode as Op;
        let bit = |n: u32| u8::from(self.word.bit(n));
        // A size field of which 3 says 64 bits.
        let size = |lo: u32| 1 + u8::from(self.word.bits(lo, 2) == 3);
        match self.opcode {
            Op::ImadWide | Op::UimadWide => Widths::new(2, 1, 1, 2),
            Op::ImadHi => Widths::new(1, 1, 1, 2),
            Op::Dadd | Op::Dmul | Op::Dfma | Op::Dsetp | Op::Uiadd3B64 => Widths::new(2, 2, 2, 2),
            Op::F2f | Op::F2i | Op::I2f | Op::Frnd => Widths::new(size(75), 1, size(84), 1),
            Op::Cs2r => Widths::new(1 + bit(80), 1, 1, 1),
            Op::Match => Widths::new(1, 1 + bit(73), 1, 1),
            Op::Lepc => Widths::new(2, 0, 0, 0),
            Op::Brx | Op::Brxu | Op::Jmx | Op::Jmxu | Op::Ret | Op::CallAbs | Op::CallRel => {
                Widths::new(0, 2, 1, 1)
            }
            Op::Cctl | Op::Qspc => Widths::new(1, 1 + bit(72), 1, 1),
            Op::Hmma | Op::Imma | Op::Bmma | Op::Dmma | Op::Qmma => self.matrix_widths(),
            Op::Syncs => match self.word.op12() {
                0x5b2 => Widths::new(2, 1, 2, 1),
                _ => Widths::new(2, 1, 1, 1),
            },
            Op::Ublkcp => Widths::new(0, 2, 2, 1),
            Op::Ublkpf => Widths::new(0, 2, 0, 1),
            Op::Clmad => Widths::new(2, 2, 2, 2),
            _ => self.memory_widths(),
        }
    }

    /// Registers of a fragment per thread: elements of the matrix, times their bits, over 32 threads of 32 bits.
    fn matrix_widths(&self) -> Widths {
        let bits = |lo: u32, n: u32| self.word.bits(lo, n);
        let bit = |n: u32| self.word.bit(n);
        match self.opcode {
            Opcode::Hmma => {
                let d = if bit(76) { 4 } else { 2 };
                let (a, b) = match (bits(75, 1) | bits(78, 1) << 1, bits(82, 2) == 2) {
                    // 1688: k is 8; tf32 elements fill a register.
                    (0, false) => (2, 1),
                    (0, true) => (4, 2),
                    (1, _) => (4, 2),
                    (..) => (2, 1),
                };
                let b = if bit(73) { 2 * b } else { b };
                Widths::new(d, a, b, d)
            }
            Opcode::Imma => {
                let (d, a, b) = match bits(75, 1) | bits(85, 2) << 1 {
                    // 8816 and 8832.
                    0 | 2 => (2, 1, 1),
                    4 => (4, 2, 1),
                    5 if bit(83) => (4, 2, 1),
                    _ => (4, 4, 2),
                };
                Widths::new(d, a, if bit(72) { 2 * b } else { b }, d)
            }
            Opcode::Qmma => {
                let d = if bit(77) { 4 } else { 2 };
                let (a, b) = if bit(75) { (4, 2) } else { (2, 1) };
                Widths::new(d, a, b, d)
            }
            Opcode::Bmma => match bits(75, 2) {
                0 => Widths::new(2, 1, 1, 2),
                1 => Widths::new(4, 2, 1, 4),
                _ => Widths::new(4, 4, 2, 4),
            },
            _ => Widths::new(4, 2, 2, 4),
        }
    }

    fn memory_widths(&self) -> Widths {
        let Some(memory) = self.memory_access() else { return Widths::new(1, 1, 1, 1) };
        let address = 1 + u8::from(memory.wide);
        let data = memory.bytes.div_ceil(4) as u8;
        match (self.opcode, memory.access, memory.space) {
            (Opcode::Ldsm, ..) => Widths::new(1 << self.word.bits(72, 2), address, 0, 0),
            (Opcode::Ldgsts, ..) => Widths::new(0, address, 0, 0),
            (_, _, Space::Constant) => Widths::new(data, 1, 0, 0),
            (_, Access::Store, _) => Widths::new(0, address, data, 0),
            _ => Widths::new(data, address, data, data),
        }
    }
}

fn source_registers(source: Option<Source>, width: u8) -> RegisterSet {
    let mut set = RegisterSet::EMPTY;
    match source.map(|source| source.operand) {
        Some(Operand::Reg(first)) => set.insert_group(first, width),
        Some(Operand::UReg(first)) => set.insert_uniform_group(first, width),
        Some(Operand::BindlessConst { ureg, .. }) => set.insert_uniform_group(ureg, 2),
        Some(Operand::Imm(_) | Operand::Const { .. }) | None => {}
    }
    set
}
