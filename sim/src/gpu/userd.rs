//! The GPFIFO ring of a channel and its USERD, where program and host publish how far they are.

use crate::dram::Backing;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of USERD at which the host publishes how far it has fetched.
const USERD_GP_GET: usize = 0x88;
/// Bytes of USERD at which the program publishes how far it has written.
const USERD_GP_PUT: usize = 0x8c;
/// Bytes of USERD at which `SET_REFERENCE` shows.
const USERD_REFERENCE: usize = 0x48;

/// Largest delay of the fetch index: the driver sets USERD's write-back timer to 100 us
/// (`ga10b_fifo_config_userd_writeback_timer`, hal/fifo/fifo_ga10b_fusa.c, r36.4.3).
const WRITE_BACK: Duration = Duration::from_micros(100);

/// A fetch index that is not in USERD yet.
#[derive(Clone, Copy, Debug)]
struct Unwritten {
    index: u32,
    /// Since when USERD is behind, in the host's time: nothing in the model waits for the write.
    since: Instant,
}

/// The ring of a user-mode channel.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Address of the ring in the driver's range.
    pub(crate) va: u64,
    userd: Arc<Backing>,
    unwritten: Arc<Mutex<Option<Unwritten>>>,
}

impl Ring {
    /// A ring of `entries` mapped at `va`, whose indexes live in the first page of `userd`.
    pub(crate) fn new(entries: u32, va: u64, userd: Arc<Backing>) -> Self {
        Self { entries, va, userd, unwritten: Arc::default() }
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

    fn unwritten(&self) -> MutexGuard<'_, Option<Unwritten>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the fetch index with the next [`write_back`](Self::write_back) that is due.
    pub(crate) fn set_get_later(&self, index: u32) {
        let mut unwritten = self.unwritten();
        let since = unwritten.map_or_else(Instant::now, |before| before.since);
        *unwritten = Some(Unwritten { index, since });
    }

    /// Writes a fetch index to USERD that has waited for long enough; whether one still waits.
    pub(crate) fn write_back(&self) -> bool {
        let mut unwritten = self.unwritten();
        if let Some(due) = unwritten.take_if(|unwritten| unwritten.since.elapsed() >= WRITE_BACK) {
            self.set_get(due.index);
        }
        unwritten.is_some()
    }

    /// Publishes the value of `SET_REFERENCE`.
    pub(crate) fn set_reference(&self, value: u32) {
        self.word(USERD_REFERENCE).store(value, Ordering::Release);
    }
}
