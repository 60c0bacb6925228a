//! The functions of the C library that are interposed.

use crate::original::Original;
use crate::watch::{poll_from_now_on, with};
use libc::{c_int, c_ulong, c_void, off_t, size_t};

static IOCTL: Original = Original::new(c"ioctl");
static MMAP: Original = Original::new(c"mmap");
static MUNMAP: Original = Original::new(c"munmap");
static MREMAP: Original = Original::new(c"mremap");
static CLOSE: Original = Original::new(c"close");

/// `ioctl(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
    // SAFETY: the C library's function.
    let original: Ioctl = unsafe { IOCTL.get() };
    // What was submitted before a request that may take memory or channels away is read before it.
    let wanted = with(|watcher| {
        let wanted = watcher.wants(fd, request as u32);
        if wanted {
            watcher.poll();
        }
        wanted
    });
    // SAFETY: the caller's promise.
    let answer = unsafe { original(fd, request, argument) };
    if answer >= 0 && wanted == Some(true) {
        with(|watcher| {
            // SAFETY: the driver has accepted the argument.
            unsafe { watcher.request(fd, request as u32, argument) };
            poll_from_now_on(watcher);
        });
    }
    answer
}

/// `mmap(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    // SAFETY: the C library's function, with the caller's arguments.
    let call = || unsafe { MMAP.get::<Mmap>()(address, len, protection, flags, fd, offset) };
    let replaces = flags & libc::MAP_FIXED != 0;
    if flags & libc::MAP_ANONYMOUS != 0 && !replaces {
        return call();
    }
    let mut made = None;
    if replaces {
        with(|watcher| made = Some(watcher.unmap(address.addr(), len, call)));
    }
    let at = made.unwrap_or_else(call);
    if at != libc::MAP_FAILED && flags & libc::MAP_ANONYMOUS == 0 && flags & libc::MAP_SHARED != 0 {
        with(|watcher| watcher.mapped(fd, at.expose_provenance(), len, offset));
    }
    at
}

/// `mmap64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// `munmap(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    type Munmap = unsafe extern "C" fn(*mut c_void, size_t) -> c_int;
    // SAFETY: the C library's function, with the caller's arguments.
    let call = || unsafe { MUNMAP.get::<Munmap>()(address, len) };
    let mut answer = None;
    with(|watcher| answer = Some(watcher.unmap(address.addr(), len, call)));
    answer.unwrap_or_else(call)
}

/// `mremap(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    type Mremap = unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, ...) -> *mut c_void;
    // SAFETY: the C library's function, with the caller's arguments.
    let call = || unsafe { MREMAP.get::<Mremap>()(address, old, new, flags, to) };
    let mut answer = None;
    with(|watcher| answer = Some(watcher.unmap(address.addr(), old, call)));
    answer.unwrap_or_else(call)
}

/// `close(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    type Close = unsafe extern "C" fn(c_int) -> c_int;
    with(|watcher| watcher.close(fd));
    // SAFETY: the C library's function, with the caller's argument.
    unsafe { CLOSE.get::<Close>()(fd) }
}
