//! `open`, `fopen` and `close`.

use crate::kernel;
use crate::machine::{answer, borrow, from_program, name, owner, start};
use crate::mark::Mark;
use crate::original::original;
use crate::paths::node;
use libc::{FILE, c_char, c_int, mode_t};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::{Sys, TraceMark};
use std::ffi::CStr;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

/// Opens a node of the machine; `None` for any other path.
///
/// # Safety
/// `path` stays as it is during the call.
unsafe fn open_node(directory: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let path = unsafe { node(directory, path) }?;
    from_program(|| {
        let sim = start().ok_or(Errno::ENODEV);
        let about = TraceMark { kind: TraceMark::OPEN, flags: flags.cast_unsigned(), ..TraceMark::default() };
        let mark = Mark::begin(about, || path.to_string_lossy().into_owned());
        let opened = sim.and_then(|sim| sim.open(&path, OFlag::from_bits_truncate(flags)));
        answer(mark.end(opened.map(IntoRawFd::into_raw_fd)))
    })
}

/// `open(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

/// `open64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, mode) }
}

/// `__open_2`, which fortified programs call.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, 0) }
}

/// `__open64_2`, which fortified programs call.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, 0) }
}

/// `openat(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        open_node(directory, path, flags).unwrap_or_else(|| kernel::openat(directory, path, flags, mode))
    }
}

/// `openat64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat(directory, path, flags, mode) }
}

/// `fopen(3)`. A node's stream is for its descriptor alone: nodes are neither read nor written, and the machine's
/// descriptors are for reading to the kernel.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    let flags = unsafe { open_flags(mode) };
    // SAFETY: the caller's promise.
    if let Some(fd) = flags.and_then(|flags| unsafe { open_node(libc::AT_FDCWD, path, flags) }) {
        // SAFETY: the descriptor is new, or -1.
        return if fd < 0 { std::ptr::null_mut() } else { unsafe { libc::fdopen(fd, c"r".as_ptr()) } };
    }
    type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    // SAFETY: the C library's function, with the caller's arguments.
    unsafe { original::<Fopen>(c"fopen").map_or(std::ptr::null_mut(), |next| next(path, mode)) }
}

/// `fopen64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { fopen(path, mode) }
}

/// The flags of `open` for a mode of `fopen`.
///
/// # Safety
/// `mode` is null or a C string.
unsafe fn open_flags(mode: *const c_char) -> Option<c_int> {
    if mode.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let access = match (mode.first()?, mode.contains(&b'+')) {
        (_, true) => libc::O_RDWR,
        (b'r', false) => libc::O_RDONLY,
        (b'w' | b'a', false) => libc::O_WRONLY,
        _ => return None,
    };
    Some(access | if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 })
}

/// `close(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let served = from_program(|| {
        let sim = owner(fd)?;
        let about = TraceMark { kind: TraceMark::CLOSE, fd, ..TraceMark::default() };
        let mark = Mark::begin(about, || borrow(fd).map_or(String::new(), |fd| name(sim, fd)));
        // SAFETY: the program gives the descriptor up with this call.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(answer(mark.end(sim.close(fd).map(|()| 0))))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::close(fd) })
}
