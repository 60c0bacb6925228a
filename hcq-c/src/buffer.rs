//! Buffers: memory that a program fills, names in launches, and reads back.

use std::ffi::{c_char, c_void};
use std::ptr;

use hcq::{Buffer, GpuVa};

use crate::call::{bytes, call, deadline, put, room, text};
use crate::device::hcq_device;
use crate::failure::Failure;
use crate::handle::{Handle, free, get, hand_out};
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// Memory that CPU and GPU access.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_buffer {
    _private: (),
}

impl Handle for hcq_buffer {
    type Object = Buffer;

    fn registry() -> &'static Registry<Buffer> {
        static ALL: Registry<Buffer> = Registry::new(Kind::Buffer);
        &ALL
    }
}

/// Allocates a buffer of `len` bytes, aligned to 256, and to 2 MiB from 8 MiB on. Its content is not specified.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_alloc(
    device: *const hcq_device,
    len: u64,
    buffer: *mut *mut hcq_buffer,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { hand_out(buffer, || Ok(get(device)?.alloc(len)?)) })
}

/// Allocates a buffer in the CPU's memory, which both sides reach: the GPU over its bus, the CPU without a copy
/// (`hcq_buffer_host_pointer`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_alloc_host(
    device: *const hcq_device,
    len: u64,
    buffer: *mut *mut hcq_buffer,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { hand_out(buffer, || Ok(get(device)?.alloc_host(len)?)) })
}

/// Allocates a buffer at a GPU address, a multiple of 4 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_alloc_at(
    device: *const hcq_device,
    address: u64,
    len: u64,
    buffer: *mut *mut hcq_buffer,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        hand_out(buffer, || {
            let device = get(device)?;
            let va = GpuVa::new(address);
            let va = va.ok_or_else(|| Failure::value(format!("{address:#x} is no address of a GPU")))?;
            Ok(device.alloc_at(va, len)?)
        })
    })
}

/// Frees a buffer's handle. The memory goes back when the last submission, graph and argument list that names it
/// has ended. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_buffer_free(buffer: *mut hcq_buffer) -> hcq_status {
    free(buffer)
}

/// A buffer's length in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_len(buffer: *const hcq_buffer, len: *mut u64) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(len, "len", get(buffer)?.len()) })
}

/// A buffer's GPU address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_address(buffer: *const hcq_buffer, address: *mut u64) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(address, "address", get(buffer)?.va().raw()) })
}

/// Names a buffer in what the checks of the software ga10b find.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_set_name(buffer: *const hcq_buffer, name: *const c_char) -> hcq_status {
    call(|| {
        let buffer = get(buffer)?;
        // SAFETY: the caller's promise.
        buffer.set_name(unsafe { text(name, "name") }?);
        Ok(())
    })
}

/// Copies `len` bytes to `offset` in a buffer, after the last submission that names it has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_write(
    buffer: *const hcq_buffer,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> hcq_status {
    call(|| {
        let buffer = get(buffer)?;
        // SAFETY: the caller's promise.
        Ok(buffer.write(offset, unsafe { bytes(data, len, "data") }?)?)
    })
}

/// Copies `len` bytes from `offset` in a buffer, after the last submission that names it has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_read(
    buffer: *const hcq_buffer,
    offset: u64,
    data: *mut c_void,
    len: usize,
) -> hcq_status {
    call(|| {
        let buffer = get(buffer)?;
        // SAFETY: the caller's promise; every pattern of bits is a byte.
        Ok(buffer.read(offset, unsafe { room(data.cast::<u8>(), len, "data") }?)?)
    })
}

/// Waits until the last submissions that name a buffer have completed, at most `timeout_ns`, which is not negative: after
/// that the memory of `hcq_buffer_host_pointer` may be touched. Work that was recorded and not submitted is not waited
/// for. `HCQ_ERROR_QUEUE_TIMEOUT` where it was not done in time.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_buffer_wait(buffer: *const hcq_buffer, timeout_ns: i64) -> hcq_status {
    call(|| {
        let buffer = get(buffer)?;
        Ok(buffer.wait(deadline(timeout_ns)?)?)
    })
}

/// The CPU's address of a buffer of `hcq_buffer_alloc_host`; `NULL` for another one.
///
/// It stays until the buffer's handle is freed. Nothing orders accesses through it: wait for the submissions
/// that use the buffer before (`hcq_buffer_wait`), and make them after. The checks of the software ga10b do not see them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_buffer_host_pointer(
    buffer: *const hcq_buffer,
    pointer: *mut *mut c_void,
) -> hcq_status {
    call(|| {
        let buffer = get(buffer)?;
        // In a fork there is no memory at the address.
        buffer.here()?;
        let found = buffer.host_pointer();
        // SAFETY: the caller's promise.
        unsafe { put(pointer, "pointer", found.map_or(ptr::null_mut(), |found| found.as_ptr().cast())) }
    })
}
