//! The error notifier: 16 bytes of a buffer into which the driver writes why a channel died.

use crate::dram::Backing;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Size of a notification (`struct nvgpu_notification`).
pub(crate) const NOTIFICATION_LEN: u64 = 16;
/// Value of the status field once an error is recorded.
const STATUS_SET: u16 = 0xffff;

/// Memory of a channel's notification.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    backing: Arc<Backing>,
    offset: u64,
}

impl Notifier {
    /// A notification at `offset` of a buffer, cleared; `None` when it does not fit. Any offset is good
    /// (`gk20a_init_error_notifier`).
    pub(crate) fn new(backing: Arc<Backing>, offset: u64) -> Option<Self> {
        if offset.checked_add(NOTIFICATION_LEN).is_none_or(|end| end > backing.len()) {
            return None;
        }
        let notifier = Self { backing, offset };
        notifier.put(0, &[0; NOTIFICATION_LEN as usize]);
        Some(notifier)
    }

    fn at(&self, at: u64) -> *mut u8 {
        self.backing.ptr().as_ptr().wrapping_add((self.offset + at) as usize)
    }

    /// Writes bytes, the last one last.
    fn put(&self, at: u64, bytes: &[u8]) {
        for (i, &byte) in (at..).zip(bytes) {
            // SAFETY: inside the buffer by `new`; the memory lives as long as `backing` and is only reached through
            // atomics here.
            unsafe { AtomicU8::from_ptr(self.at(i)) }.store(byte, Ordering::Release);
        }
    }

    fn status(&self) -> u16 {
        // SAFETY: as in `put`.
        let byte = |at| unsafe { AtomicU8::from_ptr(self.at(at)) }.load(Ordering::Acquire);
        u16::from_le_bytes([byte(14), byte(15)])
    }

    /// Records an error, unless one is recorded already; whether it did. `time` is the wall clock in
    /// nanoseconds.
    pub(crate) fn record(&self, code: u32, time: u64) -> bool {
        if self.status() == STATUS_SET {
            return false;
        }
        self.put(0, &time.to_le_bytes());
        if !self.offset.is_multiple_of(4) {
            self.put(8, &code.to_le_bytes());
            self.put(14, &STATUS_SET.to_le_bytes());
            return true;
        }
        // SAFETY: as in `put`, and aligned.
        unsafe { AtomicU32::from_ptr(self.at(8).cast()) }.store(code, Ordering::Relaxed);
        // SAFETY: as above; 14 is a multiple of 2.
        unsafe { AtomicU16::from_ptr(self.at(14).cast()) }.store(STATUS_SET, Ordering::Release);
        true
    }
}
