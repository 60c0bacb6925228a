//! A lock of byte ranges: accesses of the same bytes exclude each other, others run at the same time.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::sync::lock;

/// An access of a thread to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Runs beside other reads.
    Read,
    /// Runs beside nothing.
    Write,
}

/// The ranges in use, a few at most.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    busy: Mutex<Vec<(Range<u64>, Access)>>,
    freed: Condvar,
}

/// A range in use, until it is dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    range: Range<u64>,
    access: Access,
}

impl RangeLock {
    /// Waits until `access` to `len` bytes at `offset` disturbs no other. The range ends within 64 bits.
    pub fn take(&self, offset: u64, len: u64, access: Access) -> RangeGuard<'_> {
        let range = offset..offset + len;
        let mut busy = lock(&self.busy);
        let conflicts = |(other, kind): &(Range<u64>, Access)| {
            let shared = access == Access::Read && *kind == Access::Read;
            !shared && other.start.max(range.start) < other.end.min(range.end)
        };
        while busy.iter().any(conflicts) {
            busy = self.freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        busy.push((range.clone(), access));
        RangeGuard { lock: self, range, access }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut busy = lock(&self.lock.busy);
        let own = busy.iter().position(|(range, access)| *range == self.range && *access == self.access);
        if let Some(at) = own {
            busy.swap_remove(at);
        }
        drop(busy);
        self.lock.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn ranges_apart_and_reads_of_one_range_run_together() {
        let lock = RangeLock::default();
        // One thread takes all of them: each would wait for ever if it disturbed another.
        let _first = lock.take(0, 8, Access::Write);
        let _next = lock.take(8, 8, Access::Write);
        let _reads = [lock.take(16, 8, Access::Read), lock.take(20, 8, Access::Read)];
        let _nothing = lock.take(4, 0, Access::Read);
        assert_eq!(lock.busy.lock().unwrap().len(), 5);
    }

    #[test]
    fn a_write_waits_for_what_it_overlaps() {
        for held in [Access::Read, Access::Write] {
            let (lock, done) = (RangeLock::default(), AtomicBool::new(false));
            let guard = lock.take(0, 8, held);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _write = lock.take(7, 2, Access::Write);
                    done.store(true, Ordering::Release);
                });
                thread::sleep(Duration::from_millis(5));
                assert!(!done.load(Ordering::Acquire));
                drop(guard);
            });
            assert!(done.load(Ordering::Acquire) && lock.busy.lock().unwrap().is_empty());
        }
    }
}
