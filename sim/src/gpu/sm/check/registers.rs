//! Registers that an instruction reads and writes.

use sass::{Access, Arch, Instruction, Opcode, Operand, Word};

/// Consecutive registers of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub first: u8,
    /// 0 for none.
    pub count: u8,
}

/// Registers of an instruction: at least those it reads, at most those it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    pub reads: [Group; 4],
    pub written: Group,
}

impl Group {
    fn new(first: u8, count: u32) -> Self {
        if first == 255 { Group::default() } else { Group { first, count: count as u8 } }
    }

    /// The most that an operand of unknown width can be: up to four registers, aligned to their number.
    fn widest(first: u8) -> Self {
        Group::new(first, 1 << first.trailing_zeros().min(2))
    }

    pub fn contains(self, register: u8) -> bool {
        register >= self.first && register - self.first < self.count
    }
}

impl Registers {
    /// Of the instruction `word`.
    pub fn of(arch: Arch, word: u128) -> Self {
        let Ok(i) = sass::decode(arch, Word(word)) else { return Registers::default() };
        let memory = i.memory_access();
        let words = |bytes: u32| (bytes / 4).max(1);
        let narrow = is_narrow(i.opcode);
        let mut reads = [Group::default(); 4];
        for (n, source) in [i.a, i.b, i.c].into_iter().enumerate() {
            let Some(Operand::Reg(first)) = source.map(|s| s.operand) else { continue };
            reads[n] = match memory {
                Some(m) if n == 0 => Group::new(first, 1 + u32::from(m.wide)),
                Some(m) if n == 1 && m.access == Access::Store => Group::new(first, words(m.bytes)),
                None if narrow || (n < 2 && is_wide_sum(i.opcode)) => Group::new(first, 1),
                _ => Group::widest(first),
            };
        }
        if i.opcode == Opcode::Ldgsts {
            // The address in shared memory.
            reads[3] = Group::new(i.word.bits(16, 8) as u8, 1);
        }
        let written = match (memory, i.dst) {
            (Some(m), Some(dst)) if writes_result(&i, m.access) => Group::new(dst, words(m.bytes)),
            (None, Some(dst)) if narrow || is_wide_sum(i.opcode) || is_conversion(i.opcode) => {
                Group::new(dst, 1)
            }
            _ => Group::default(),
        };
        Registers { reads, written }
    }
}

/// Whether a memory operation is a load to registers of the thread.
fn writes_result(i: &Instruction, access: Access) -> bool {
    access == Access::Load && !matches!(i.opcode, Opcode::Ldgsts | Opcode::Ldsm | Opcode::Uldc)
}

/// Whether all operands are registers of 32 bits.
fn is_narrow(opcode: Opcode) -> bool {
    use Opcode as Op;
    matches!(
        opcode,
        Op::Mov
            | Op::Sel
            | Op::Fsel
            | Op::Prmt
            | Op::P2r
            | Op::R2p
            | Op::Iadd3
            | Op::Imad
            | Op::Idp
            | Op::Lea
            | Op::Lop3
            | Op::Shf
            | Op::Sgxt
            | Op::Bmsk
            | Op::Iabs
            | Op::Imnmx
            | Op::Isetp
            | Op::Brev
            | Op::Popc
            | Op::Viadd
            | Op::Vimnmx
            | Op::Viaddmnmx
            | Op::Fadd
            | Op::Fmul
            | Op::Ffma
            | Op::Fmnmx
            | Op::Fsetp
            | Op::Fset
            | Op::Mufu
            | Op::Hadd2
            | Op::Hmul2
            | Op::Hfma2
            | Op::Hfma2Mma
            | Op::Hmnmx2
            | Op::Hset2
            | Op::Hsetp2
            | Op::Shfl
    )
}

/// Products whose addend has 64 bits.
fn is_wide_sum(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::ImadWide | Opcode::ImadHi)
}

/// Operations with a result of at least one register, and operands of any width.
fn is_conversion(opcode: Opcode) -> bool {
    use Opcode as Op;
    matches!(opcode, Op::F2i | Op::I2f | Op::I2fp | Op::F2f | Op::F2fp | Op::S2r | Op::Cs2r)
}
