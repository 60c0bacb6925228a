//! An open of the device-scope profiler.

use std::sync::atomic::{AtomicBool, AtomicU32};

/// One open of `prof-dev`.
#[derive(Debug, Default)]
pub(crate) struct ProfilerFile {
    /// A context is bound.
    pub(crate) context_bound: AtomicBool,
    /// Reserved resources, one bit each.
    pub(crate) resources: AtomicU32,
    /// They are bound.
    pub(crate) resources_bound: AtomicBool,
}
