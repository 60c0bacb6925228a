//! A block as it stood when one of its warps failed.

use crate::gpu::sm::launch::Windows;

/// A block that has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Guest address of the program.
    pub program: u64,
    /// Number of the grid, as the launch descriptor has it.
    pub grid_id: u64,
    /// Size of the grid in blocks.
    pub grid: [u32; 3],
    /// Size of a block in threads.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Index of the block.
    pub index: [u32; 3],
    /// SM that it is modelled to run on.
    pub sm: u32,
    /// Positions of the memory windows.
    pub windows: Windows,
    /// Its shared memory.
    pub shared: Vec<u8>,
    /// Its warps.
    pub warps: Vec<WarpState>,
}

/// A warp of a block that has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarpState {
    /// Its number in the block.
    pub index: u32,
    /// Lanes whose threads have not exited, as a mask.
    pub valid: u32,
    /// Lanes that were executing together: those of the path that failed, or of the one that was next.
    pub active: u32,
    /// Guest address of each lane's instruction.
    pub pc: [u64; 32],
    /// General registers from R0 on, lane by lane.
    pub registers: Vec<[u32; 32]>,
    /// Predicates P0 to P6, as masks of lanes.
    pub predicates: [u32; 7],
    /// Uniform registers from UR0 on.
    pub uniform_registers: Vec<u32>,
    /// Uniform predicates UP0 to UP6.
    pub uniform_predicates: [bool; 7],
    /// Local memory of each lane, which ends where the local-memory window does; empty where none was used, and
    /// of other warps than the one that failed.
    pub local: Vec<Vec<u8>>,
}
