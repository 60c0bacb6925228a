//! The shape of a launch.

use hcq::LaunchConfig;

use crate::call::get;
use crate::failure::Failure;

/// The shape of a launch. Zeros that are left out of an initializer mean none: no dynamic shared memory, blocks per
/// SM as they fit. Every side of grid and block is one at least.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_launch_config {
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory per block beyond the kernel's static ones.
    pub dynamic_shared: u32,
    /// Blocks for which an SM sets shared memory apart; 0 for as many as fit.
    pub blocks_per_sm: u32,
}

/// The shape as the library has it.
///
/// # Safety
/// `config` is null, or points to a shape.
pub(crate) unsafe fn shape(config: *const hcq_launch_config) -> Result<LaunchConfig, Failure> {
    // SAFETY: the caller's promise.
    let config = unsafe { get(config, "config") }?;
    Ok(LaunchConfig::new(config.grid, config.block)
        .with_dynamic_shared(config.dynamic_shared)
        .with_blocks_per_sm(config.blocks_per_sm))
}
