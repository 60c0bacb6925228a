//! The GPFIFO ring of a channel and its USERD, where program and host publish how far they are.

use crate::dram::Backing;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of USERD at which the host publishes how far it has fetched.
const USERD_GP_GET: usize = 0x88;
/// Bytes of USERD at which the program publishes how far it has written.
const USERD_GP_PUT: usize = 0x8c;
/// Bytes of USERD at which `SET_REFERENCE` shows.
const USERD_REFERENCE: usize = 0x48;

/// The ring of a user-mode channel.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Address of the ring in the driver's range.
    pub(crate) va: u64,
    userd: Arc<Backing>,
}

impl Ring {
    /// A ring of `entries` mapped at `va`, whose indexes live in the first page of `userd`.
    pub(crate) fn new(entries: u32, va: u64, userd: Arc<Backing>) -> Self {
        Self { entries, va, userd }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let ptr = self.userd.ptr().as_ptr().wrapping_add(at);
        // SAFETY: the first page of the buffer, which lives as long as `userd`; the offsets are 4-byte
        // aligned and below 4096.
        unsafe { AtomicU32::from_ptr(ptr.cast()) }
    }

    /// Index after the last entry the program published.
    pub(crate) fn put(&self) -> u32 {
        self.word(USERD_GP_PUT).load(Ordering::Acquire)
    }

    /// Publishes the fetch index.
    pub(crate) fn set_get(&self, index: u32) {
        self.word(USERD_GP_GET).store(index, Ordering::Release);
    }

    /// Publishes the value of `SET_REFERENCE`.
    pub(crate) fn set_reference(&self, value: u32) {
        self.word(USERD_REFERENCE).store(value, Ordering::Release);
    }
}
