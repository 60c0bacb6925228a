//! Events: descriptors that become readable when the driver posts.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// An event descriptor: readable once per post.
#[derive(Debug)]
pub(crate) struct EventFile {
    /// Event number.
    pub(crate) id: u32,
    far_end: Weak<OwnedFd>,
}

impl EventFile {
    /// Event `id`, posted to the write end of its pipe.
    pub(crate) fn new(id: u32, far_end: &Arc<OwnedFd>) -> Self {
        Self { id, far_end: Arc::downgrade(far_end) }
    }

    /// Makes the descriptor readable.
    pub(crate) fn post(&self) {
        if let Some(far_end) = self.far_end.upgrade() {
            // A full pipe is readable already; a reader that went away needs nothing.
            let _ = nix::unistd::write(&*far_end, &[1]);
        }
    }

    /// Whether a descriptor of it is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.far_end.strong_count() > 0
    }
}
