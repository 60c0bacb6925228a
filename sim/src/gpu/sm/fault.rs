//! Why a launch stopped early: the SM's own error codes.

use crate::findings::FaultPlace;
use std::sync::Arc;

use crate::gpu::sm::launch::MemoryFault;
use crate::gpu::sm::state::BlockState;

/// Error codes of warps.
pub mod esr {
    pub use nv_hw::fault::warp_esr::*;

    /// Not a program error: a launch that this model stopped because it does not end.
    pub const NONE: u32 = 0;
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
    /// The MMU's report, for [`esr::MMU_FAULT`].
    pub mmu: Option<MemoryFault>,
    /// The instruction as text, or why the launch was stopped.
    pub text: String,
    /// A check has found the mistake that led to it.
    pub found: bool,
    /// The instruction in full, where checks saw it.
    pub place: Option<Box<FaultPlace>>,
    /// The block as it stood then; `None` where none was running.
    pub state: Option<Arc<BlockState>>,
}
