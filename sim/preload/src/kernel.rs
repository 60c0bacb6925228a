//! The calls that are not for the machine: straight to the kernel, because the C library's functions are the
//! ones replaced here.

use libc::{
    c_char, c_int, c_long, c_ulong, c_void, mode_t, nfds_t, off_t, pollfd, size_t, syscall, timespec,
};

/// `openat(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_openat, directory, path, flags, mode) as c_int }
}

/// `access(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, mode) as c_int }
}

/// `ioctl(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_ioctl, fd, request, arg) as c_int }
}

/// `mmap(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_mmap, addr, len, prot, flags, fd, offset) as *mut c_void }
}

/// `munmap(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_munmap, addr, len) as c_int }
}

/// `poll(2)`, by way of `ppoll(2)`, which every architecture has.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let limit = timespec { tv_sec: (timeout / 1000).into(), tv_nsec: (timeout % 1000 * 1_000_000).into() };
    let limit = if timeout < 0 { std::ptr::null() } else { &raw const limit };
    // SAFETY: the caller's promise; a null mask leaves signals as they are.
    unsafe { syscall(libc::SYS_ppoll, fds, count, limit, std::ptr::null::<c_void>(), 0 as c_long) as c_int }
}

/// `close(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn close(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_close, fd) as c_int }
}
