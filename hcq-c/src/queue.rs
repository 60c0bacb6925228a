//! Queues: launches, copies, waits and timestamps, handed to the GPU in submissions.

use std::ptr;
use std::sync::Mutex;

use hcq::{Queue, SyncPoint};

use crate::args::{self, hcq_args};
use crate::buffer::hcq_buffer;
use crate::call::{call, deadline, put};
use crate::device::hcq_device;
use crate::failure::Failure;
use crate::graph::hcq_graph;
use crate::handle::{Handle, exclusive, free, get, hand_out, handle};
use crate::launch::{hcq_launch_config, shape};
use crate::point::{hcq_point, hcq_timestamp};
use crate::program::hcq_kernel;
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// A channel to the GPU. One thread uses a queue at a time.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_queue {
    _private: (),
}

impl Handle for hcq_queue {
    type Object = Mutex<Queue>;

    fn registry() -> &'static Registry<Mutex<Queue>> {
        static ALL: Registry<Mutex<Queue>> = Registry::new(Kind::Queue);
        &ALL
    }
}

fn with(
    queue: *const hcq_queue,
    use_it: impl FnOnce(&mut Queue) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let queue = get(queue)?;
    use_it(&mut *exclusive(&queue, "queue")?)
}

/// Hands work over; a point for it where one is wanted.
///
/// # Safety
/// `point` is null, or valid for the write of a pointer.
unsafe fn submit(
    point: *mut *mut hcq_point,
    submit: impl FnOnce() -> Result<SyncPoint, Failure>,
) -> Result<(), Failure> {
    if point.is_null() {
        return submit().map(drop);
    }
    // SAFETY: the caller's promise.
    unsafe { put(point, "point", ptr::null_mut()) }?;
    let handle = handle(submit()?)?;
    // SAFETY: as above.
    unsafe { put(point, "point", handle) }
}

/// Opens a queue for launches and copies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_queue_open(device: *const hcq_device, queue: *mut *mut hcq_queue) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { hand_out(queue, || Ok(Mutex::new(get(device)?.queue()?))) })
}

/// Opens a queue for copies alone, which run beside the launches of other queues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_queue_open_copy(
    device: *const hcq_device,
    queue: *mut *mut hcq_queue,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { hand_out(queue, || Ok(Mutex::new(get(device)?.copy_queue()?))) })
}

/// Frees a queue: discards what was not submitted, and waits for what was, at most the device's patience (60 s by
/// default). Work that does not end is stopped then: waits for it are `HCQ_ERROR_QUEUE_STOPPED`. On a Jetson that takes
/// the device's other queues along, and later calls are `HCQ_ERROR_LOST`; where it has none, opening one takes the
/// patience again, and is `HCQ_ERROR_DRIVER_IOCTL` (`EBUSY`) while the kernel runs on. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_queue_free(queue: *mut hcq_queue) -> hcq_status {
    free(queue)
}

/// Sets how long the calls of a queue wait for room in its rings, in place of the device's patience. A call that ends
/// with `HCQ_ERROR_QUEUE_TIMEOUT` has recorded and handed over nothing new, and may be made again. `hcq_queue_free`
/// still takes the device's patience.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_queue_set_patience(queue: *mut hcq_queue, patience_ns: i64) -> hcq_status {
    call(|| {
        with(queue, |queue| {
            queue.set_patience(deadline(patience_ns)?);
            Ok(())
        })
    })
}

/// Records a launch. `args` may be `NULL` for none. Launches without a barrier between them may overlap.
///
/// The kernel's arguments decide what it reads and writes: everything in the device's address space can be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_queue_launch(
    queue: *mut hcq_queue,
    kernel: *const hcq_kernel,
    config: *const hcq_launch_config,
    args: *const hcq_args,
) -> hcq_status {
    call(|| {
        with(queue, |queue| {
            let kernel = get(kernel)?;
            // SAFETY: the caller's promise, for the shape and for the launch.
            unsafe {
                let config = shape(config)?;
                args::with(args, |args| Ok(queue.launch(&kernel, config, args)?))
            }
        })
    })
}

/// A barrier: work recorded later starts after everything recorded so far has ended, and sees its writes.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_queue_barrier(queue: *mut hcq_queue) -> hcq_status {
    call(|| {
        with(queue, |queue| {
            queue.barrier();
            Ok(())
        })
    })
}

/// Records a copy of `len` bytes between buffers, or between ranges of one that do not overlap. Copies of a queue
/// follow each other; launches and copies need a barrier between them.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_queue_copy(
    queue: *mut hcq_queue,
    src: *const hcq_buffer,
    src_offset: u64,
    dst: *const hcq_buffer,
    dst_offset: u64,
    len: u64,
) -> hcq_status {
    call(|| with(queue, |queue| Ok(queue.copy(&*get(src)?, src_offset, &*get(dst)?, dst_offset, len)?)))
}

/// Records the taking of a timestamp when everything recorded so far has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_queue_timestamp(
    queue: *mut hcq_queue,
    timestamp: *mut *mut hcq_timestamp,
) -> hcq_status {
    call(|| {
        // SAFETY: the caller's promise.
        with(queue, |queue| unsafe { hand_out(timestamp, || Ok(queue.timestamp()?)) })
    })
}

/// Work recorded later starts after `point`, which may belong to another queue of the device.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_queue_wait_for(queue: *mut hcq_queue, point: *const hcq_point) -> hcq_status {
    call(|| with(queue, |queue| Ok(queue.wait_for(&*get(point)?)?)))
}

/// Hands everything recorded to the GPU. `point`, which may be `NULL`, gets a point to wait for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_queue_submit(queue: *mut hcq_queue, point: *mut *mut hcq_point) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| with(queue, |queue| unsafe { submit(point, || Ok(queue.submit()?)) }))
}

/// Runs a graph after everything recorded so far, and hands both to the GPU. Replays of one graph follow each other.
/// `point` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_queue_replay(
    queue: *mut hcq_queue,
    graph: *const hcq_graph,
    point: *mut *mut hcq_point,
) -> hcq_status {
    call(|| {
        with(queue, |queue| {
            let graph = get(graph)?;
            // SAFETY: the caller's promise.
            unsafe { submit(point, || Ok(queue.replay(graph.graph())?)) }
        })
    })
}
