//! The launches of a decode step in one kernel.

use hcq::Buffer;

use crate::engine::launch::Launch;
use crate::error::Result;
use crate::kernels::step::sync as counted;
use crate::kernels::stream::sync as numbered;

/// Launches of a step kernel.
#[derive(Debug)]
pub struct StepPlan {
    /// The whole step as one launch.
    pub whole: Launch,
    /// The whole step with logits that stay on the device, if those of `whole` do not.
    pub resident: Option<Launch>,
    /// A step without the output matrix.
    pub fill: Launch,
    /// One launch per phase.
    pub phases: Vec<Launch>,
    /// Clock readings of the first block, if phases are timed.
    pub times: Buffer,
    /// Whether phases are timed.
    pub timed: bool,
    /// What blocks wait for each other with.
    pub exchange: Exchange,
    /// Buffers that the phases name by address.
    #[expect(dead_code, reason = "held, not used")]
    pub kept: Vec<Buffer>,
}

/// What blocks wait for each other with.
#[derive(Debug)]
pub enum Exchange {
    /// A counter, zero between steps.
    Counter(Buffer),
    /// Phase numbers that go up with every step.
    Numbers(Buffer),
}

impl StepPlan {
    /// Makes what a failed step may have left harmless.
    ///
    /// # Errors
    /// What the device reports.
    pub fn reset(&self) -> Result<()> {
        match &self.exchange {
            Exchange::Counter(sync) => sync.write(4 * counted::COUNTER_AT, &0u32.to_le_bytes())?,
            Exchange::Numbers(sync) => {
                let at = 4 * u64::from(numbered::FIRST_PHASE_AT);
                let mut first = [0; 4];
                sync.read(at, &mut first)?;
                let next = u32::from_le_bytes(first).wrapping_add(numbered::PHASES_PER_STEP);
                sync.write(at, &next.to_le_bytes())?;
            }
        }
        Ok(())
    }
}
