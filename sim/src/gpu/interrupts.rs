//! The interrupt lines from the GPU to its driver.

use crate::gpu::exception::{Exception, PbdmaRegisters};
use crate::gpu::instance::Instance;

/// The handler of the GPU's interrupts. All calls are made on the GPU's thread.
pub(crate) trait Interrupts: Sync {
    /// A non-stalling interrupt: the driver posts the blocking-sync event to the groups of all channels.
    fn non_stalling(&self);

    /// An exception stopped a channel.
    fn stalling(&self, channel: &Instance, exception: &Exception, registers: PbdmaRegisters);

    /// A context switch away from the group of `channel` takes longer than the runlist's time-out, which has
    /// passed `times` times.
    fn switch_timeout(&self, channel: &Instance, times: u32);

    /// Runs the driver's periodic work.
    fn housekeeping(&self);
}
