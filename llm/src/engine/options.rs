//! Options of an engine.

use std::time::Duration;

use crate::cache::CacheType;
use crate::kernels::choices::Tuning;

/// Options of an [`Engine`](crate::engine::Engine).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Positions in the cache, at least 1.
    pub context: usize,
    /// The launch mode of a step.
    pub mode: Mode,
    /// Type of the key/value cache.
    pub kv: CacheType,
    /// Whether prompts keep the weights that they expand to f16, for 2 bytes of memory each: faster.
    pub expanded: bool,
    /// Whether the phases of a step in one launch are timed, for profiles and traces; costs a little.
    pub timed: bool,
    /// Shapes of kernels, from a search for this device and model.
    pub tuning: Tuning,
    /// Whether position, tokens and logits lie in the host's memory, where no token waits for a copy; `None`
    /// for yes where a step is one launch and the GPU has memory of its own.
    pub host_state: Option<bool>,
    /// Whether tokens are drawn on the device, with logits that stay there; `None` for yes but on the software
    /// device.
    pub device_sampling: Option<bool>,
}

impl EngineOptions {
    /// A cache of `context` positions in f16, steps in one launch, default shapes.
    pub fn new(context: usize) -> Self {
        Self { context, ..Self::default() }
    }

    /// Sets how a step is launched.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Sets the type of the key/value cache.
    #[must_use]
    pub fn with_cache(self, kv: CacheType) -> Self {
        Self { kv, ..self }
    }

    /// Sets whether prompts keep expanded weights.
    #[must_use]
    pub fn with_expanded_weights(self, expanded: bool) -> Self {
        Self { expanded, ..self }
    }

    /// Sets whether the phases of a step in one launch are timed.
    #[must_use]
    pub fn with_phase_times(self, timed: bool) -> Self {
        Self { timed, ..self }
    }

    /// Sets the shapes of kernels, which must be those for the device and the model.
    #[must_use]
    pub fn with_tuning(self, tuning: Tuning) -> Self {
        Self { tuning, ..self }
    }

    /// Sets whether position, tokens and logits lie in the host's memory.
    #[must_use]
    pub fn with_host_state(self, host_state: bool) -> Self {
        Self { host_state: Some(host_state), ..self }
    }

    /// Sets whether tokens are drawn on the device.
    #[must_use]
    pub fn with_device_sampling(self, device_sampling: bool) -> Self {
        Self { device_sampling: Some(device_sampling), ..self }
    }
}

/// The launch mode of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One launch in which blocks wait for each other; that of batches if the model has no such kernel.
    #[default]
    Stream,
    /// The launches of a batch step, some ten per layer.
    Batch,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 2] = [Mode::Stream, Mode::Batch];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Stream => "stream",
            Mode::Batch => "batch",
        }
    }
}

/// Times that setting up an engine took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadTimes {
    /// Reading the weights from the mapped file, packing them and writing them to the device.
    pub weights: Duration,
    /// The rest: reserving memory, loading kernels, recording launches.
    pub kernels: Duration,
}
