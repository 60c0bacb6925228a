//! Memory accesses of instructions.

use crate::arch::Encoding;
use crate::instruction::Instruction;
use crate::opcode::Opcode;
use crate::operand::Operand;

/// The memory an instruction addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Device memory through the GPU's page tables.
    Global,
    /// An address that may lie in the shared or local window, else global.
    Generic,
    /// The block's shared memory.
    Shared,
    /// The thread's local memory.
    Local,
    /// A constant bank.
    Constant,
}

/// Kind of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads, changes and writes in one step.
    Atomic,
}

/// A memory access of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryAccess {
    /// The memory addressed. A copy from global to shared memory counts as a global load.
    pub space: Space,
    /// Kind of the access.
    pub access: Access,
    /// Bytes per thread, which the address must be aligned to. `LDSM` loads rows of 16 bytes.
    pub bytes: u32,
    /// Address register; 255 (RZ) adds nothing.
    pub register: u8,
    /// The address register is the first of a pair of 64 bits.
    pub wide: bool,
    /// Byte offset added to the register.
    pub offset: i32,
}

impl Instruction {
    /// The memory access that this instruction makes, if any. Cache control, prefetches and fences make none,
    /// nor do the constants that arithmetic operations take as sources.
    pub fn memory_access(&self) -> Option<MemoryAccess> {
        use Opcode as Op;
        let (space, access) = match self.opcode {
            Op::Ldg | Op::Ldgsts => (Space::Global, Access::Load),
            Op::Ld => (Space::Generic, Access::Load),
            Op::Lds | Op::Ldsm => (Space::Shared, Access::Load),
            Op::Ldl => (Space::Local, Access::Load),
            Op::Ldc | Op::Uldc => (Space::Constant, Access::Load),
            Op::Stg => (Space::Global, Access::Store),
            Op::St => (Space::Generic, Access::Store),
            Op::Sts => (Space::Shared, Access::Store),
            Op::Stl => (Space::Local, Access::Store),
            Op::Atomg | Op::AtomgCas | Op::Red | Op::Redg => (Space::Global, Access::Atomic),
            Op::Atom | Op::AtomCas => (Space::Generic, Access::Atomic),
            Op::Atoms | Op::AtomsCas | Op::AtomsCount => (Space::Shared, Access::Atomic),
            _ => return None,
        };
        let register = match self.a.map(|source| source.operand) {
            Some(Operand::Reg(register)) => register,
            _ => 255,
        };
        let extended = matches!(space, Space::Global | Space::Generic);
        let narrow = match self.opcode {
            Op::Ldg | Op::Ld => self.word.bit(91) && !self.word.bit(90),
            _ => false,
        };
        Some(MemoryAccess {
            space,
            access,
            bytes: self.access_bytes(access),
            register,
            wide: extended && !narrow && (self.opcode == Op::Ldgsts || self.word.bit(72)),
            offset: self.address_offset(),
        })
    }

    fn access_bytes(&self, access: Access) -> u32 {
        use Opcode as Op;
        if self.opcode == Op::Ldsm {
            return 16;
        }
        let field = self.word.bits(73, 3) as usize;
        if access != Access::Atomic {
            return [1, 1, 2, 2, 4, 8, 16, 4][field];
        }
        match self.opcode {
            Op::Atoms | Op::AtomsCas | Op::AtomsCount => [4, 4, 8, 4][self.word.bits(73, 2) as usize],
            _ if self.has_float_atomic_type() => {
                [4, 8, 16, 4, 8, 16, 4, 4, 4, 4, 8, 16, 4, 8, 16, 8][self.word.bits(73, 4) as usize]
            }
            _ if self.arch.encoding() == Encoding::Sm9x => [4, 4, 8, 8, 16, 4, 4, 4][field],
            _ => [4, 4, 8, 4, 4, 8, 8, 4][field],
        }
    }

    /// Whether the operation is one of SM 9.0's own codes for floating-point atomics.
    fn has_float_atomic_type(&self) -> bool {
        matches!(self.word.op12(), 0x9a2 | 0x9a3 | 0x9a6)
    }

    fn address_offset(&self) -> i32 {
        use Opcode as Op;
        let (lo, width) = match self.opcode {
            Op::Ldc | Op::Uldc => (38, 16),
            Op::Ldgsts => (32, 12),
            Op::Ld | Op::St if !self.word.bit(91) => (32, 32),
            _ => (40, 24),
        };
        self.word.sbits(lo, width) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use crate::instruction::decode;
    use crate::word::Word;

    #[test]
    fn a_global_load_names_its_register_width_and_offset() {
        // LDG.E.64 R10, desc[UR4][R2.64+0x4]
        let load = decode(Arch::Sm90, Word(0x000e_e800_0c1e_1b00_0000_0404_020a_7981)).expect("valid");
        let expected = MemoryAccess {
            space: Space::Global,
            access: Access::Load,
            bytes: 8,
            register: 2,
            wide: true,
            offset: 4,
        };
        assert_eq!(load.memory_access(), Some(expected));
    }

    #[test]
    fn arithmetic_accesses_no_memory() {
        let add = decode(Arch::Sm87, Word(0x000f_ca00_0000_0000_0000_0003_0205_7221)).expect("valid");
        assert_eq!(add.memory_access(), None);
    }
}
