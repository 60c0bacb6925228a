//! Points that work comes to, and times that the GPU takes.

use hcq::{SyncPoint, Timestamp};

use crate::call::{call, deadline, put};
use crate::failure::Failure;
use crate::handle::{Handle, free, get};
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// A point in a queue's work that can be waited for.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_point {
    _private: (),
}

impl Handle for hcq_point {
    type Object = SyncPoint;

    fn registry() -> &'static Registry<SyncPoint> {
        static ALL: Registry<SyncPoint> = Registry::new(Kind::Point);
        &ALL
    }
}

/// A time taken by the GPU.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_timestamp {
    _private: (),
}

impl Handle for hcq_timestamp {
    type Object = Timestamp;

    fn registry() -> &'static Registry<Timestamp> {
        static ALL: Registry<Timestamp> = Registry::new(Kind::Timestamp);
        &ALL
    }
}

/// Frees a point's handle; the work goes on. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_point_free(point: *mut hcq_point) -> hcq_status {
    free(point)
}

/// Waits until everything submitted up to a point is done, at most `timeout_ns`, which is not negative. 0 looks
/// once. `HCQ_ERROR_QUEUE_TIMEOUT` where it was not done in time, `HCQ_ERROR_FAULT` where the GPU stopped the
/// work.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_point_wait(point: *const hcq_point, timeout_ns: i64) -> hcq_status {
    call(|| {
        let point = get(point)?;
        Ok(point.wait(deadline(timeout_ns)?)?)
    })
}

/// Whether everything submitted up to a point is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_point_is_done(point: *const hcq_point, done: *mut bool) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(done, "done", get(point)?.is_done()?) })
}

/// Frees a timestamp's handle. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_timestamp_free(timestamp: *mut hcq_timestamp) -> hcq_status {
    free(timestamp)
}

fn taken<T>(time: Option<T>) -> Result<T, Failure> {
    time.ok_or_else(|| {
        Failure::new(
            hcq_status::HCQ_ERROR_NOT_TAKEN,
            "the GPU has not come to the timestamp: wait for its work",
        )
    })
}

/// The GPU's clock in ns when the work before a timestamp had ended. Of a timestamp in a graph: that of the last
/// replay that got so far. `HCQ_ERROR_NOT_TAKEN` before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_timestamp_ns(timestamp: *const hcq_timestamp, ns: *mut u64) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(ns, "ns", taken(get(timestamp)?.ns())?) })
}

/// Nanoseconds from one timestamp of a device to another, of any of its queues; negative where `end` was taken first.
/// `HCQ_ERROR_FOREIGN_DEVICE` for timestamps of two devices, which have clocks of their own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_timestamp_elapsed(
    begin: *const hcq_timestamp,
    end: *const hcq_timestamp,
    ns: *mut i64,
) -> hcq_status {
    call(|| {
        let (begin, end) = (get(begin)?, get(end)?);
        // SAFETY: the caller's promise.
        unsafe { put(ns, "ns", taken(end.since(&begin)?)?) }
    })
}
