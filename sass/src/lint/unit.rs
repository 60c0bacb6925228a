//! The units that execute instructions, as far as their timing differs.
//!
//! The division is the one of Mesa's compiler (`sm80_instr_latencies.rs` of NAK), which had it from NVIDIA.

use crate::arch::{Arch, Encoding};
use crate::instruction::Instruction;
use crate::opcode::Opcode;
use crate::operand::Operand;
use crate::registers::Register;

/// Execution unit of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Integer and logic operations, comparisons, selects, moves.
    Alu,
    /// Single-precision arithmetic and 32-bit products.
    Fma,
    /// `IMAD.WIDE`, lower half of the result or of the addend.
    WideLow,
    /// `IMAD.WIDE`, upper half.
    WideHigh,
    /// Half-precision pairs.
    Half,
    /// `HFMA2.MMA`.
    HalfMma,
    /// 64-bit moves of special registers.
    Dispatch,
    /// Double precision.
    Double,
    /// Tensor-core products of one step.
    Matrix,
    /// Tensor-core products of two steps.
    MatrixLong,
    /// Double-precision tensor-core products.
    MatrixDouble,
    /// The uniform datapath.
    Uniform,
    /// Moves of the uniform datapath: `UMOV`, `ULDC`, `VOTEU`.
    UniformMove,
    /// Votes to a register or predicate.
    Vote,
    /// Branches, calls and convergence.
    Branch,
    /// Memory, shuffles and barriers: variable latency, through the address unit.
    Memory,
    /// Everything else of variable latency: conversions, transcendentals, special registers, bit counts.
    Variable,
}

impl Unit {
    /// Whether the results are waited for by a barrier rather than by cycles.
    pub(super) fn is_variable(instruction: &Instruction) -> bool {
        match Self::of(instruction, Register::R(255)) {
            Self::Memory | Self::Variable => {
                !(instruction.opcode == Opcode::R2ur && instruction.arch.encoding() == Encoding::Sm9x)
            }
            Self::Double => matches!(instruction.arch, Arch::Sm86 | Arch::Sm87 | Arch::Sm89),
            Self::MatrixDouble => instruction.arch != Arch::Sm80 && instruction.arch != Arch::Sm90,
            Self::Branch => instruction.opcode == Opcode::Bmov,
            _ => false,
        }
    }

    /// The unit of an instruction that reads or writes `register`.
    #[allow(clippy::too_many_lines)] // A table.
    pub(super) fn of(instruction: &Instruction, register: Register) -> Self {
        use Opcode as Op;
        match instruction.opcode {
            Op::Imad | Op::Idp | Op::ImadHi | Op::Ffma | Op::Fadd | Op::Fmul | Op::Fswzadd => Self::Fma,
            Op::ImadWide if is_upper_half(instruction, register) => Self::WideHigh,
            Op::ImadWide => Self::WideLow,
            Op::Hadd2 | Op::Hfma2 | Op::Hmul2 | Op::Hset2 | Op::Hsetp2 | Op::Hmnmx2 => Self::Half,
            Op::Hfma2Mma => Self::HalfMma,
            Op::Dadd | Op::Dmul | Op::Dfma | Op::Dsetp => Self::Double,
            Op::Hmma if instruction.word.bit(75) => Self::MatrixLong,
            Op::Hmma | Op::Imma | Op::Bmma | Op::Qmma => Self::Matrix,
            Op::Movm => Self::Matrix,
            Op::Dmma => Self::MatrixDouble,
            Op::Cs2r if instruction.word.bit(80) => Self::Dispatch,
            Op::Nop | Op::Pmtrig | Op::Lepc | Op::Acqbulk | Op::Preexit => Self::Dispatch,
            Op::Umov | Op::Uldc | Op::Voteu => Self::UniformMove,
            Op::Usel
            | Op::Uisetp
            | Op::Uiadd3
            | Op::Uiadd3B64
            | Op::Ulea
            | Op::Ulop3
            | Op::Uprmt
            | Op::Ushf
            | Op::Usgxt
            | Op::Ubmsk
            | Op::Uflo
            | Op::Ubrev
            | Op::Upopc
            | Op::Uplop3
            | Op::Uimad
            | Op::UimadWide
            | Op::Up2ur
            | Op::Ur2up
            | Op::Uclea
            | Op::Uf2fp => Self::Uniform,
            Op::Elect if matches!(register, Register::Ur(_)) => Self::UniformMove,
            Op::Vote | Op::Elect => Self::Vote,
            Op::Bra
            | Op::Brx
            | Op::CallRel
            | Op::CallAbs
            | Op::Ret
            | Op::Exit
            | Op::Bmov
            | Op::Bssy
            | Op::Bsync
            | Op::Break
            | Op::Warpsync
            | Op::Endcollective
            | Op::Jmp
            | Op::Jmx
            | Op::Brxu
            | Op::Jmxu
            | Op::Kill
            | Op::Rpcmov
            | Op::Bpt
            | Op::Yield
            | Op::Nanosleep => Self::Branch,
            Op::Ldg
            | Op::Ld
            | Op::Stg
            | Op::St
            | Op::Lds
            | Op::Sts
            | Op::Ldl
            | Op::Stl
            | Op::Ldsm
            | Op::Ldgsts
            | Op::Ldgdepbar
            | Op::Depbar
            | Op::Arrives
            | Op::Qspc
            | Op::Atomg
            | Op::AtomgCas
            | Op::Atom
            | Op::AtomCas
            | Op::Red
            | Op::Redg
            | Op::Atoms
            | Op::AtomsCas
            | Op::AtomsCount
            | Op::Membar
            | Op::Errbar
            | Op::Cctl
            | Op::Cgaerrbar
            | Op::Fence
            | Op::Syncs
            | Op::Ublkcp
            | Op::Ublkpf
            | Op::Utmacmdflush
            | Op::Usetmaxreg
            | Op::Shfl
            | Op::Bar
            | Op::B2r => Self::Memory,
            Op::Ldc
            | Op::Mufu
            | Op::Fchk
            | Op::F2f
            | Op::F2i
            | Op::I2f
            | Op::Frnd
            | Op::Flo
            | Op::Brev
            | Op::Popc
            | Op::S2r
            | Op::S2ur
            | Op::R2ur
            | Op::Redux
            | Op::Match
            | Op::Clmad => Self::Variable,
            _ => Self::Alu,
        }
    }
}

fn is_upper_half(instruction: &Instruction, register: Register) -> bool {
    let upper = |first: u8| Register::R(first.wrapping_add(1)) == register;
    let addend = match instruction.c.map(|c| c.operand) {
        Some(Operand::Reg(first)) if first != 255 => upper(first),
        _ => false,
    };
    addend || instruction.dst.is_some_and(upper)
}

/// Units of variable latency that work in order: the end of one instruction implies that of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Queue {
    /// Shared memory and shuffles.
    Shared,
    /// Sources of memory operations.
    Sources,
    /// Addresses of global loads.
    Global,
    /// Conversions, transcendentals, bit counts.
    Convert,
    /// Double precision.
    Double,
    /// Values that go to the uniform registers.
    Uniform,
}

impl Queue {
    /// The queue in which results become visible in order.
    pub(super) fn of_results(instruction: &Instruction) -> Option<Self> {
        use Opcode as Op;
        match instruction.opcode {
            Op::Lds | Op::Ldsm | Op::Shfl | Op::Atoms | Op::AtomsCas | Op::AtomsCount | Op::Qspc => {
                Some(Self::Shared)
            }
            Op::Mufu | Op::Fchk | Op::F2f | Op::F2i | Op::I2f | Op::Frnd | Op::Flo | Op::Brev | Op::Popc => {
                Some(Self::Convert)
            }
            Op::Dadd | Op::Dmul | Op::Dfma | Op::Dsetp => Some(Self::Double),
            Op::R2ur | Op::Redux | Op::S2ur => Some(Self::Uniform),
            _ => None,
        }
    }

    /// The queue in which sources are read in order.
    pub(super) fn of_sources(instruction: &Instruction) -> Option<Self> {
        match Unit::of(instruction, Register::R(255)) {
            Unit::Memory => Some(Self::Sources),
            _ => Self::of_results(instruction),
        }
    }

    /// The queue in which the sources of one instruction are read before another writes its results.
    pub(super) fn of_replacement(instruction: &Instruction) -> Option<Self> {
        match instruction.opcode {
            Opcode::Ldg | Opcode::Ld | Opcode::Ldgsts => Some(Self::Global),
            _ => Self::of_sources(instruction),
        }
    }
}
