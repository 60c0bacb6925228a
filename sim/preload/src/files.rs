//! `open` and its kin.

use crate::folders;
use crate::kernel;
use crate::machine::{answer, from_program, start, warn_fork};
use crate::mark::Mark;
use crate::paths::{Resolved, resolve};
use ga10b_capture::TraceMark;
use ga10b_sim::Place;
use libc::{c_char, c_int, mode_t};
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
    let opened = from_program(|| match unsafe { resolve(directory, path) } {
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
