//! The functions of the C library that are interposed.

use crate::original::Original;
use crate::watch::{poll_from_now_on, with};
use libc::{c_int, c_ulong, c_void, off_t, size_t};

static IOCTL: Original = Original::new(c"ioctl");
static MMAP: Original = Original::new(c"mmap");
static MUNMAP: Original = Original::new(c"munmap");
static MREMAP: Original = Original::new(c"mremap");
static CLOSE: Original = Original::new(c"close");
static DUP: Original = Original::new(c"dup");
static DUP2: Original = Original::new(c"dup2");
static DUP3: Original = Original::new(c"dup3");
static FCNTL: Original = Original::new(c"fcntl");
static FCNTL64: Original = Original::new(c"fcntl64");

/// `ioctl(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
    // SAFETY: the C library's function.
    let original: Ioctl = unsafe { IOCTL.get() };
    // Earlier submissions are read before a request that may take memory or channels away.
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
    if replaces {
        with(|watcher| watcher.unmap(address.addr(), len));
    }
    let at = call();
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
    with(|watcher| watcher.unmap(address.addr(), len));
    // SAFETY: the C library's function, with the caller's arguments.
    unsafe { MUNMAP.get::<Munmap>()(address, len) }
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
    with(|watcher| watcher.unmap(address.addr(), old));
    // SAFETY: the C library's function, with the caller's arguments.
    unsafe { MREMAP.get::<Mremap>()(address, old, new, flags, to) }
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

/// Notes a copy that was made, if one was.
fn copied(fd: c_int, copy: c_int) -> c_int {
    if copy >= 0 {
        with(|watcher| watcher.duplicated(fd, copy));
    }
    copy
}

/// `dup(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    type Dup = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the C library's function, with the caller's argument.
    copied(fd, unsafe { DUP.get::<Dup>()(fd) })
}

/// `dup2(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: the C library's function, with the caller's arguments.
    copied(fd, unsafe { DUP2.get::<Dup2>()(fd, to) })
}

/// `dup3(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    type Dup3 = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    // SAFETY: the C library's function, with the caller's arguments.
    copied(fd, unsafe { DUP3.get::<Dup3>()(fd, to, flags) })
}

/// `fcntl(2)`, which copies descriptors too.
///
/// # Safety
/// As for the C function.
unsafe fn control(original: &Original, fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
    // SAFETY: the C library's function, with the caller's arguments; it takes a third for some commands only.
    let answer = unsafe { original.get::<Fcntl>()(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, answer),
        _ => answer,
    }
}

/// `fcntl(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { control(&FCNTL, fd, command, argument) }
}

/// `fcntl64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { control(&FCNTL64, fd, command, argument) }
}
