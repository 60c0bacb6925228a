//! `ioctl` and `poll`.

use crate::kernel;
use crate::machine::{answer, borrow, from_program, machine, name, owner};
use crate::mark::Mark;
use libc::{c_int, c_ulong, c_void, nfds_t, pollfd, sigset_t, size_t, timespec};
use nvgpu_sys::TraceMark;
use std::os::fd::AsRawFd;

/// `ioctl(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let served = from_program(|| {
        let sim = owner(fd)?;
        let request = request as u32;
        let fd = borrow(fd)?;
        let about = TraceMark {
            kind: TraceMark::IOCTL,
            fd: fd.as_raw_fd(),
            request,
            argument: arg.expose_provenance() as u64,
            ..TraceMark::default()
        };
        let mark = Mark::begin(about, || name(sim, fd));
        // SAFETY: the program's own promise.
        Some(answer(mark.end(unsafe { sim.ioctl_at(fd, request, arg) })))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::ioctl(fd, request, arg) })
}

/// `poll(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let limit = kernel::limit(timeout);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the caller's promise; the limit outlives the call.
    unsafe { ppoll(fds, count, limit, std::ptr::null()) }
}

/// `__poll_chk`, which fortified programs call.
///
/// # Safety
/// As for `poll`; `_room` bytes are at `fds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, _room: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { poll(fds, count, timeout) }
}

/// `ppoll(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let served = from_program(|| {
        let sim = machine()?;
        // SAFETY: the caller's promise.
        Some(answer(unsafe { sim.ppoll_at(fds, count as usize, timeout, mask.cast()) }))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::ppoll(fds, count, timeout, mask) })
}

/// `__ppoll_chk`, which fortified programs call.
///
/// # Safety
/// As for `ppoll`; `_room` bytes are at `fds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: size_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ppoll(fds, count, timeout, mask) }
}
