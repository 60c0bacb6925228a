//! The lines from the GPU to its driver.

use crate::gpu::exception::{Exception, PbdmaRegisters};
use crate::gpu::instance::Instance;

/// Whoever handles the GPU's interrupts. All calls come from the GPU's thread.
pub(crate) trait Interrupts: Sync {
    /// Something asked to be noticed: the driver posts the blocking-sync event to the groups of all channels.
    fn non_stalling(&self);

    /// An exception stopped a channel.
    fn stalling(&self, channel: &Instance, exception: &Exception, registers: PbdmaRegisters);

    /// Time for what the driver does now and then.
    fn housekeeping(&self);
}
