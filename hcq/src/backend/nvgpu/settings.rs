//! How a device is opened.

use std::time::Duration;

use crate::info::GpuCache;

/// How to open a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Reserve both windows.
    pub reserve_windows: bool,
    /// What the level-2 cache may keep.
    pub cache: GpuCache,
    /// How long requests are repeated that signals interrupt, or that kernels are in the way of.
    pub patience: Duration,
    /// Whether channels are in an asynchronous subcontext.
    pub async_subcontext: bool,
    /// Context-switch time of a channel's life; `None` for the driver's.
    pub switch_limit: Option<Duration>,
    /// Time slice; `None` for the driver's.
    pub timeslice: Option<Duration>,
}
