//! The calls that are not for the machine: straight to the kernel, because the C library's functions are the
//! ones replaced here.

use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, epoll_event, mode_t, nfds_t, off_t, pollfd, sigset_t, size_t,
    stat as Status, statx as StatusX, syscall, timespec,
};
use std::ffi::CString;

/// Bytes of a signal mask, as the kernel has it.
const SIGNAL_MASK: size_t = 8;

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
    unsafe { faccessat(libc::AT_FDCWD, path, mode, 0) }
}

/// `faccessat(2)`: the newer system call where flags ask for it.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if flags == 0 {
            syscall(libc::SYS_faccessat, directory, path, mode) as c_int
        } else {
            syscall(libc::SYS_faccessat2, directory, path, mode, flags) as c_int
        }
    }
}

/// `fstatat(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn fstatat(directory: c_int, path: *const c_char, buf: *mut Status, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_newfstatat, directory, path, buf, flags) as c_int }
}

/// `statx(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    buf: *mut StatusX,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_statx, directory, path, flags, mask, buf) as c_int }
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

/// A time-out of `poll(2)` as one of `ppoll(2)`; `None` for ever.
pub(crate) fn limit(timeout: c_int) -> Option<timespec> {
    let limit = || timespec { tv_sec: (timeout / 1000).into(), tv_nsec: (timeout % 1000 * 1_000_000).into() };
    (timeout >= 0).then(limit)
}

/// `ppoll(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // The kernel writes the time that is left, which the C function does not.
    // SAFETY: the caller's promise.
    let mut left = (!timeout.is_null()).then(|| unsafe { *timeout });
    let left = left.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: the caller's promise; a null mask leaves signals as they are.
    unsafe { syscall(libc::SYS_ppoll, fds, count, left, mask, SIGNAL_MASK) as c_int }
}

/// `close(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn close(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_close, fd) as c_int }
}

/// The working folder; `None` if it has no path.
pub(crate) fn working_folder() -> Option<Vec<u8>> {
    let mut path = vec![0; libc::PATH_MAX as usize];
    // SAFETY: the buffer is as long as it says. The answer has its zero at the end.
    let len = unsafe { syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) };
    path.truncate(usize::try_from(len).ok()?.checked_sub(1)?);
    path.starts_with(b"/").then_some(path)
}

/// Returns the target of a symbolic link, if that is an absolute path.
pub(crate) fn link_of(link: &str) -> Option<Vec<u8>> {
    let link = CString::new(link).ok()?;
    let mut path = vec![0; libc::PATH_MAX as usize];
    // SAFETY: a C string, and a buffer that is as long as it says.
    let len = unsafe {
        syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), path.len())
    };
    path.truncate(usize::try_from(len).ok()?);
    path.starts_with(b"/").then_some(path)
}

/// `dup3(2)`.
pub(crate) fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: takes numbers only.
    unsafe { syscall(libc::SYS_dup3, from, to, flags) as c_int }
}

/// `close_range(2)`.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: takes numbers only.
    unsafe { syscall(libc::SYS_close_range, first, last, flags) as c_int }
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_epoll_ctl, epoll, what, fd, event) as c_int }
}
