//! Options with which a device is opened.

use std::time::Duration;

use crate::backend::MemoryKind;
use crate::info::GpuCache;
use crate::options::Interleave;
use crate::profile::{CommandMemory, Preemption, Subcontext};

/// The CPU's mapping of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Cached.
    Cacheable,
    /// Uncached, stores combined.
    WriteCombined,
}

/// Options with which a device is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Reserve both windows.
    pub reserve_windows: bool,
    /// The content that the level-2 cache may keep.
    pub cache: GpuCache,
    /// Time for which requests are repeated that signals interrupt, or that kernels are in the way of.
    pub patience: Duration,
    /// CPU mapping of commands.
    pub commands: CommandMemory,
    /// Whether channels and signals are as those that ran on an Orin.
    pub conservative: bool,
    /// The subcontext of channels; `None` for the asynchronous one where the driver has it.
    pub subcontext: Option<Subcontext>,
    /// The points at which kernels are preempted.
    pub preemption: Preemption,
    /// Context-switch time of a channel's life; `None` for the driver's.
    pub switch_limit: Option<Duration>,
    /// Time slice; `None` for the driver's.
    pub timeslice: Option<Duration>,
    /// Level on the run list; `None` for the driver's.
    pub interleave: Option<Interleave>,
}

impl Settings {
    /// The CPU mapping for memory of a kind.
    pub fn caching(&self, kind: MemoryKind) -> Caching {
        let combined = match kind {
            MemoryKind::Command => self.commands == CommandMemory::WriteCombined,
            MemoryKind::Signal => self.conservative,
            MemoryKind::Device | MemoryKind::Shared => false,
        };
        if combined { Caching::WriteCombined } else { Caching::Cacheable }
    }
}
