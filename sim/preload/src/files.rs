//! `open`, `creat`, `fopen` and `fdopen`.

use crate::folders;
use crate::kernel;
use crate::machine::{answer, borrow, from_program, owner_here, start, warn_fork};
use crate::mark::Mark;
use crate::original::{Original, original};
use crate::paths::{Resolved, resolve};
use ga10b_capture::TraceMark;
use ga10b_sim::Place;
use libc::{FILE, c_char, c_int, mode_t};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::Sys;
use std::ffi::{CStr, CString};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

/// Opens a place of the machine.
fn open_place(path: &CStr, place: Place, flags: c_int) -> Result<OwnedFd, Errno> {
    let wanted = OFlag::from_bits_retain(flags);
    let name = || path.to_string_lossy();
    match place {
        Place::Folder(_) if wanted.contains(OFlag::O_CREAT | OFlag::O_EXCL) => Err(Errno::EEXIST),
        Place::Folder(_)
            if wanted.contains(OFlag::O_CREAT) || wanted & OFlag::O_ACCMODE != OFlag::O_RDONLY =>
        {
            Err(Errno::EISDIR)
        }
        Place::Node { .. } if wanted.contains(OFlag::O_PATH | OFlag::O_DIRECTORY) => Err(Errno::ENOTDIR),
        Place::Node { .. } if !wanted.contains(OFlag::O_PATH) => {
            let about =
                TraceMark { kind: TraceMark::OPEN, flags: flags.cast_unsigned(), ..TraceMark::default() };
            let mark = Mark::begin(about, || name().into_owned());
            let sim = start().ok_or(Errno::ENODEV);
            let opened = sim.and_then(|sim| {
                warn_fork(sim);
                sim.open(path, wanted)
            });
            mark.end(opened.map(IntoRawFd::into_raw_fd)).map(|fd| {
                // SAFETY: the descriptor is new.
                unsafe { OwnedFd::from_raw_fd(fd) }
            })
        }
        _ => folders::open(&name(), flags),
    }
}

/// Result of opening a path.
enum Opened {
    /// Here: a descriptor, or -1 and `errno`.
    Here(c_int),
    /// By the kernel, with this path or the caller's.
    Elsewhere(Option<CString>),
}

/// Opens a path of the machine.
///
/// # Safety
/// `path` stays as it is during the call.
unsafe fn open_here(directory: c_int, path: *const c_char, flags: c_int) -> Opened {
    // SAFETY: the caller's promise.
    let opened = from_program(|| match unsafe { resolve(directory, path, true) } {
        Resolved::Place(path, place) => {
            Opened::Here(answer(open_place(&path, place, flags).map(IntoRawFd::into_raw_fd)))
        }
        Resolved::Nothing(errno) => Opened::Here(answer(Err(errno))),
        Resolved::Empty => Opened::Elsewhere(None),
        Resolved::Kernel(other) => Opened::Elsewhere(other),
    });
    opened.unwrap_or(Opened::Elsewhere(None))
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
        match open_here(directory, path, flags) {
            Opened::Here(fd) => fd,
            Opened::Elsewhere(Some(other)) => kernel::openat(libc::AT_FDCWD, other.as_ptr(), flags, mode),
            Opened::Elsewhere(None) => kernel::openat(directory, path, flags, mode),
        }
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

/// `__openat_2`, which fortified programs call.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat(directory, path, flags, 0) }
}

/// `__openat64_2`, which fortified programs call.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat(directory, path, flags, 0) }
}

/// `creat(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// `creat64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { creat(path, mode) }
}

/// The C library's `fdopen(3)`.
///
/// # Safety
/// As for the C function.
unsafe fn stream(fd: c_int, mode: *const c_char) -> *mut FILE {
    static NEXT: Original = Original::new(c"fdopen");
    type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    // SAFETY: the C library's function, with the caller's arguments.
    unsafe { NEXT.get::<Fdopen>().map_or(std::ptr::null_mut(), |next| next(fd, mode)) }
}

/// `fdopen(3)`: the access mode of a node is the one that it was opened with. Its stream is as that of `fopen`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    let wanted = unsafe { open_flags(mode) };
    let checked = from_program(|| {
        let (sim, fd) = (owner_here(fd)?, borrow(fd)?);
        let flags = sim.status_flags(fd)?;
        let wanted = OFlag::from_bits_retain(wanted?);
        let (has, wants) = (flags & OFlag::O_ACCMODE, wanted & OFlag::O_ACCMODE);
        if has != OFlag::O_RDWR && has != wants {
            return Some(Err(Errno::EINVAL));
        }
        if wanted.contains(OFlag::O_APPEND) {
            sim.set_status_flags(fd, flags | OFlag::O_APPEND);
        }
        Some(Ok(()))
    });
    match checked.flatten() {
        Some(Err(errno)) => {
            errno.set();
            std::ptr::null_mut()
        }
        // SAFETY: the caller's promise, and a C string.
        Some(Ok(())) => unsafe { stream(fd, c"r".as_ptr()) },
        // SAFETY: the caller's promise.
        None => unsafe { stream(fd, mode) },
    }
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
    let opened = flags.map(|flags| unsafe { open_here(libc::AT_FDCWD, path, flags) });
    let passed = match &opened {
        Some(Opened::Here(fd)) if *fd < 0 => return std::ptr::null_mut(),
        // SAFETY: the descriptor is new.
        Some(Opened::Here(fd)) => return unsafe { stream(*fd, c"r".as_ptr()) },
        Some(Opened::Elsewhere(Some(other))) => other.as_ptr(),
        Some(Opened::Elsewhere(None)) | None => path,
    };
    type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    // SAFETY: the C library's function, with the caller's arguments or a C string.
    unsafe { original::<Fopen>(c"fopen").map_or(std::ptr::null_mut(), |next| next(passed, mode)) }
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
    let made = match mode.first()? {
        b'w' => libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_CREAT | libc::O_APPEND,
        _ => 0,
    };
    let flag = |letter: u8, flag: c_int| if mode.contains(&letter) { flag } else { 0 };
    Some(access | made | flag(b'e', libc::O_CLOEXEC) | flag(b'x', libc::O_EXCL))
}
