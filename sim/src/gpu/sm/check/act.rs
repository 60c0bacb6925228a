//! Effects of instructions that the checks examine.

use sass::{Access, Arch, Encoding, Instruction, MemoryAccess, Opcode, Space, Word};

/// An access to memory by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub space: Space,
    pub access: Access,
    /// Per thread.
    pub bytes: u32,
    /// It synchronizes: volatile, relaxed, acquire or release.
    pub strong: bool,
    /// ... within the block alone (`.cta`).
    pub of_block: bool,
    /// A load that may be served by a cache that no write reaches (`.nc`).
    pub constant: bool,
    /// It is of a barrier object in shared memory.
    pub object: bool,
}

/// Effect of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing that is checked.
    Other,
    Memory(Memory),
    /// LDSM.
    LoadMatrix,
    /// LDGSTS.
    CopyToShared,
    /// SYNCS.EXCH: a barrier object in shared memory begins.
    InitObject,
    /// SYNCS.ARRIVE and ATOMS.ARRIVE: an arrival at a barrier object.
    Arrive,
    /// ARRIVES: the same, when the thread's copies have ended.
    ArriveAfterCopies,
    /// SYNCS.PHASECHK: a poll of a barrier object.
    CheckPhase,
    /// UBLKCP to shared memory.
    CopyBulk,
    /// LDGDEPBAR: ends a group of copies to shared memory.
    CommitCopies,
    /// DEPBAR with a count: waits until no more groups than that are unfinished.
    WaitForCopies(u32),
    /// HGMMA of factors in shared memory; whether it closes a group.
    MultiplyShared(bool),
    /// WARPGROUP.DEPBAR: waits until no more groups of products than that are unfinished.
    WaitForProducts(u32),
    Barrier,
    /// MEMBAR of the GPU or the system.
    Fence,
    /// MEMBAR of the block.
    BlockFence,
    /// CCTL.IVALL: the level-1 cache is emptied.
    EmptyCache,
    /// ACQBULK: waits for the grid that this one follows.
    WaitForGrid,
    Shuffle,
    WarpSync,
    /// BRA.DIV and BRA.CONV: to code that brings the lanes of a mask together, unless they are.
    BranchDiverged,
}

/// The orders of loads and stores from this number on, that of the block's scope, are strong.
const STRONG: u64 = 5;
/// The order of `ld.global.nc`.
const CONSTANT: u64 = 4;
/// CCTL's operation `IVALL`.
const INVALIDATE_ALL: u64 = 4;
/// WARPGROUP's operation `DEPBAR`.
const PRODUCTS_BARRIER: u64 = 2;

impl Act {
    /// Returns the effect of the instruction `word`.
    pub fn of(arch: Arch, word: u128) -> Self {
        let Ok(instruction) = sass::decode(arch, Word(word)) else { return Act::Other };
        match instruction.opcode {
            Opcode::Ldsm => Act::LoadMatrix,
            Opcode::Ldgsts => Act::CopyToShared,
            Opcode::Arrives => Act::ArriveAfterCopies,
            Opcode::Syncs => match instruction.word.op12() {
                0x5b2 => Act::InitObject,
                0x5a7 => Act::CheckPhase,
                0x9a7 => Act::Arrive,
                _ => Act::Other,
            },
            Opcode::Ublkcp if instruction.word.bit(73) => Act::CopyBulk,
            Opcode::AtomsCount if is_arrival(arch, &instruction) => Act::Arrive,
            Opcode::Ldgdepbar => Act::CommitCopies,
            // The copies' scoreboard.
            Opcode::Depbar if instruction.word.bit(47) && instruction.word.bits(44, 3) == 0 => {
                Act::WaitForCopies(instruction.word.bits(38, 6) as u32)
            }
            Opcode::Hgmma if instruction.word.op12() == 0x9f0 => {
                Act::MultiplyShared(instruction.word.bits(84, 3) == 0)
            }
            Opcode::Warpgroup if instruction.word.bits(79, 2) == PRODUCTS_BARRIER => {
                Act::WaitForProducts(instruction.word.bits(72, 3) as u32)
            }
            Opcode::Bar => Act::Barrier,
            Opcode::Membar if matches!(instruction.word.bits(76, 3), 2 | 3) => Act::Fence,
            Opcode::Membar => Act::BlockFence,
            Opcode::Cctl if instruction.word.bits(87, 4) == INVALIDATE_ALL => Act::EmptyCache,
            Opcode::Acqbulk => Act::WaitForGrid,
            Opcode::Shfl => Act::Shuffle,
            // On SM 9.0 the immediate form names no lanes.
            Opcode::Warpsync if !(instruction.form == 4 && arch.sm() >= 90) => Act::WarpSync,
            Opcode::Bra if instruction.word.bit(91) && instruction.word.bits(32, 2) >= 2 => {
                Act::BranchDiverged
            }
            _ => match instruction.memory_access() {
                Some(m) if m.space != Space::Constant => Act::Memory(Memory::of(&m, &instruction)),
                _ => Act::Other,
            },
        }
    }
}

/// ATOMS.ARRIVE.
fn is_arrival(arch: Arch, atomic: &Instruction) -> bool {
    let operation = match arch.encoding() {
        Encoding::Sm8x => 9,
        Encoding::Sm9x => 10,
    };
    atomic.word.bits(87, 4) == operation
}

impl Memory {
    /// A plain access to a word of shared memory.
    pub fn shared(access: Access) -> Self {
        Memory {
            space: Space::Shared,
            access,
            bytes: 4,
            strong: access == Access::Atomic,
            of_block: false,
            constant: false,
            object: false,
        }
    }

    /// Of an instruction, by its order and scope.
    fn of(memory: &MemoryAccess, instruction: &Instruction) -> Self {
        let MemoryAccess { space, access, bytes, .. } = *memory;
        let order = instruction.word.bits(77, 4);
        let global = matches!(space, Space::Global | Space::Generic);
        Memory {
            space,
            access,
            bytes,
            strong: access == Access::Atomic || global && order >= STRONG,
            of_block: global && order == STRONG,
            constant: global && access == Access::Load && order == CONSTANT,
            object: false,
        }
    }
}
