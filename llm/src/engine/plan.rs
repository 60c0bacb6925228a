//! The launches of a decode step in one kernel.

use hcq::Buffer;

use crate::engine::launch::Launch;
use crate::error::Result;
use crate::kernels::stream::sync::{FIRST_PHASE_AT, PHASES_PER_STEP};

/// Launches of a persistent step.
#[derive(Debug)]
pub struct StepPlan {
    /// The whole step as one launch.
    pub whole: Launch,
    /// The whole step with logits that stay on the device, if those of `whole` do not.
    pub resident: Option<Launch>,
    /// One launch per phase.
    pub phases: Vec<Launch>,
    /// Clock readings of the first block, if phases are timed.
    pub times: Buffer,
    /// Whether phases are timed.
    pub timed: bool,
    /// The number of the step's first phase.
    pub sync: Buffer,
    /// Buffers that the phases name by address.
    #[expect(dead_code, reason = "held, not used")]
    pub kept: Vec<Buffer>,
}

impl StepPlan {
    /// Makes what a failed step may have left harmless.
    ///
    /// # Errors
    /// The device's errors.
    pub fn reset(&self) -> Result<()> {
        let at = 4 * u64::from(FIRST_PHASE_AT);
        let first = self.sync.read_vec::<u32>(at, 1)?[0];
        Ok(self.sync.write_slice(at, &[first.wrapping_add(PHASES_PER_STEP)])?)
    }
}
