//! Why a launch stopped early: the SM's own error codes.

use crate::gpu::sm::launch::MemoryFault;

/// Warp error codes of ga10b, as `NV_PGRAPH_PRI_GPC_TPC_SM_HWW_WARP_ESR` reports them.
pub mod esr {
    /// Not a program error: a launch that this model stopped because it does not end.
    pub const NONE: u32 = 0x00;
    /// Branch target that is not a multiple of 16.
    pub const MISALIGNED_PC: u32 = 0x05;
    /// The program counter left the code.
    pub const PC_OVERFLOW: u32 = 0x06;
    /// A register pair or quad that does not start at a multiple of its size.
    pub const MISALIGNED_REG: u32 = 0x08;
    /// The word is not an instruction, or a trap without a handler.
    pub const ILLEGAL_INSTR_ENCODING: u32 = 0x09;
    /// The instruction exists, its fields contradict each other.
    pub const ILLEGAL_INSTR_PARAM: u32 = 0x0b;
    /// A register beyond those that the launch grants.
    pub const OOR_REG: u32 = 0x0d;
    /// A shared or local address beyond the size that the launch grants.
    pub const OOR_ADDR: u32 = 0x0e;
    /// An address that is not a multiple of the access width.
    pub const MISALIGNED_ADDR: u32 = 0x0f;
    /// A global access to an address inside a window.
    pub const INVALID_ADDR_SPACE: u32 = 0x10;
    /// A constant bank that is not bound, or an offset beyond it.
    pub const INVALID_CONST_ADDR: u32 = 0x12;
    /// The MMU refused the translation.
    pub const MMU_FAULT: u32 = 0x17;
}

/// The first error of a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("warp error {code:#04x} at pc {pc:#x}, block {block:?}, warp {warp}, lanes {lanes:#010x}: {text}")]
pub struct Fault {
    /// Warp error code, one of [`esr`].
    pub code: u32,
    /// Guest address of the instruction.
    pub pc: u64,
    /// Block that failed.
    pub block: [u32; 3],
    /// SM that the block is modelled to run on.
    pub sm: u32,
    /// Warp within the block.
    pub warp: u32,
    /// Lanes that failed.
    pub lanes: u32,
    /// The offending address, where there is one.
    pub address: Option<u64>,
    /// What the MMU said, for [`esr::MMU_FAULT`].
    pub mmu: Option<MemoryFault>,
    /// The instruction as text, or why the launch was stopped.
    pub text: String,
}
