//! An open of the control node.

use std::sync::atomic::{AtomicBool, Ordering};

/// One open of the control node.
#[derive(Debug)]
pub(crate) struct CtrlFile {
    /// Number of the open: the device instance.
    pub(crate) instance: u64,
    mapped: AtomicBool,
}

impl CtrlFile {
    /// The open number `instance`.
    pub(crate) fn new(instance: u64) -> Self {
        Self { instance, mapped: AtomicBool::new(false) }
    }

    /// Takes the one mapping of the doorbell page that an open file may have; false when it is taken.
    pub(crate) fn take_mapping(&self) -> bool {
        !self.mapped.swap(true, Ordering::AcqRel)
    }

    /// Gives the mapping back.
    pub(crate) fn return_mapping(&self) {
        self.mapped.store(false, Ordering::Release);
    }
}
