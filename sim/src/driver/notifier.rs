//! The error notifier: 16 bytes of a buffer into which the driver writes why a channel died.

use crate::dram::Backing;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Size of a notification (`struct nvgpu_notification`).
pub(crate) const NOTIFICATION_LEN: u64 = 16;
/// Value of the status field once an error is recorded.
const STATUS_SET: u16 = 0xffff;

/// Where a channel's notification lies.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    backing: Arc<Backing>,
    offset: u64,
}

impl Notifier {
    /// A notification at `offset` of a buffer, cleared; `None` when it does not fit or is not aligned.
    pub(crate) fn new(backing: Arc<Backing>, offset: u64) -> Option<Self> {
        if offset.checked_add(NOTIFICATION_LEN).is_none_or(|end| end > backing.len())
            || !offset.is_multiple_of(4)
        {
            return None;
        }
        let notifier = Self { backing, offset };
        for at in [0, 4, 8, 12] {
            notifier.word(at).store(0, Ordering::Release);
        }
        Some(notifier)
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        let ptr = self.backing.ptr().as_ptr().wrapping_add((self.offset + at) as usize);
        // SAFETY: inside the buffer and 4-byte aligned by `new`; the memory lives as long as `backing` and is
        // only reached through atomics here.
        unsafe { AtomicU32::from_ptr(ptr.cast()) }
    }

    fn status(&self) -> &AtomicU16 {
        let ptr = self.backing.ptr().as_ptr().wrapping_add((self.offset + 14) as usize);
        // SAFETY: as in `word`; 14 is a multiple of 2.
        unsafe { AtomicU16::from_ptr(ptr.cast()) }
    }

    /// Records an error, unless one is recorded already. `time` is the wall clock in nanoseconds.
    pub(crate) fn record(&self, code: u32, time: u64) {
        if self.status().load(Ordering::Acquire) != 0 {
            return;
        }
        self.word(0).store(time as u32, Ordering::Relaxed);
        self.word(4).store((time >> 32) as u32, Ordering::Relaxed);
        self.word(8).store(code, Ordering::Relaxed);
        self.status().store(STATUS_SET, Ordering::Release);
    }
}
