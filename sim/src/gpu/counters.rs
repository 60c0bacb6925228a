//! What the GPU counts.

use crate::gpu::sm;

/// What the GPU did, as a profiler would count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events inside the SMs.
    pub sm: sm::Counters,
    /// Doorbells that were noticed; several rings may be noticed as one.
    pub doorbells: u64,
    /// Copy-engine transfers.
    pub copies: u64,
    /// Bytes they wrote.
    pub copied_bytes: u64,
}
