//! How a device is opened.

use std::time::Duration;

use crate::backend::MemoryKind;
use crate::info::GpuCache;
use crate::profile::{CommandMemory, Preemption, Subcontext};

/// How the CPU maps a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Cached.
    Cacheable,
    /// Uncached, stores combined.
    WriteCombined,
}

/// How to open a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Reserve both windows.
    pub reserve_windows: bool,
    /// What the level-2 cache may keep.
    pub cache: GpuCache,
    /// How long requests are repeated that signals interrupt, or that kernels are in the way of.
    pub patience: Duration,
    /// CPU mapping of commands.
    pub commands: CommandMemory,
    /// Whether channels and signals are as those that ran on an Orin.
    pub conservative: bool,
    /// The subcontext of channels; `None` for the asynchronous one where the driver has it.
    pub subcontext: Option<Subcontext>,
    /// Where kernels are to be preempted.
    pub preemption: Preemption,
    /// Context-switch time of a channel's life; `None` for the driver's.
    pub switch_limit: Option<Duration>,
    /// Time slice; `None` for the driver's.
    pub timeslice: Option<Duration>,
}

impl Settings {
    /// How the CPU maps memory of a kind.
    pub fn caching(&self, kind: MemoryKind) -> Caching {
        let combined = match kind {
            MemoryKind::Command => self.commands == CommandMemory::WriteCombined,
            MemoryKind::Signal => self.conservative,
            MemoryKind::Device | MemoryKind::Shared => false,
        };
        if combined { Caching::WriteCombined } else { Caching::Cacheable }
    }
}
