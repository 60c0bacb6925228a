//! Event counters of the GPU.

use crate::gpu::sm;

/// Events on the GPU, as a profiler would count them.
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
