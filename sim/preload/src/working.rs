//! `chdir`, `fchdir` and `getcwd`: the working folder, where it is one of the machine's. To the kernel it is
//! `/dev` then, which a program executed by this one gets too.

use crate::folders;
use crate::kernel;
use crate::original::original;
use libc::{c_char, c_int, size_t};
use nix::errno::Errno;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folders of the machine.
const FOLDERS: [&str; 2] = ["/dev/nvgpu", "/dev/nvgpu/igpu0"];

/// The number of the working folder among [`FOLDERS`], from 1; 0 if it is the kernel's.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// The working folder, if it is of the machine.
pub(crate) fn inside() -> Option<String> {
    let number = INSIDE.load(Ordering::Acquire).checked_sub(1)?;
    FOLDERS.get(number).map(|&folder| folder.to_owned())
}

/// The machine's folder `path` is the working folder.
pub(crate) fn enter(path: &str) -> c_int {
    let Some(number) = FOLDERS.iter().position(|folder| *folder == path) else {
        Errno::ENOENT.set();
        return -1;
    };
    // SAFETY: a C string.
    let changed = unsafe { kernel::chdir(c"/dev".as_ptr()) };
    if changed == 0 {
        INSIDE.store(number + 1, Ordering::Release);
    }
    changed
}

/// A folder of the kernel's is the working folder, if `changed` is the result of a successful call.
pub(crate) fn left(changed: c_int) -> c_int {
    if changed == 0 {
        INSIDE.store(0, Ordering::Release);
    }
    changed
}

/// `fchdir(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    match folders::path_of(fd) {
        Some(path) if FOLDERS.contains(&path.as_str()) => enter(&path),
        Some(_) => {
            Errno::ENOTDIR.set();
            -1
        }
        None => left(kernel::fchdir(fd)),
    }
}

/// `getcwd(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getcwd(buffer: *mut c_char, size: size_t) -> *mut c_char {
    let Some(folder) = inside() else {
        type Getcwd = unsafe extern "C" fn(*mut c_char, size_t) -> *mut c_char;
        // SAFETY: the C library's function, with the caller's arguments.
        return unsafe { original::<Getcwd>(c"getcwd").map_or(null_mut(), |next| next(buffer, size)) };
    };
    let len = folder.len() + 1;
    let wrong = match size {
        0 if !buffer.is_null() => Some(Errno::EINVAL),
        1.. if size < len => Some(Errno::ERANGE),
        _ => None,
    };
    if let Some(errno) = wrong {
        errno.set();
        return null_mut();
    }
    // The kernel finds out whether its own answer can be written there.
    // SAFETY: the kernel checks the pointer.
    if !buffer.is_null() && unsafe { kernel::getcwd(buffer, size) } < 0 {
        return null_mut();
    }
    let to = if buffer.is_null() {
        // SAFETY: the caller frees it.
        unsafe { libc::malloc(size.max(len)) }.cast()
    } else {
        buffer
    };
    if !to.is_null() {
        // SAFETY: the room is at least `len` bytes, by the caller's promise or the allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(folder.as_ptr().cast(), to, folder.len());
            to.add(folder.len()).write(0);
        }
    }
    to
}

/// `__getcwd_chk`, which fortified programs call.
///
/// # Safety
/// As for `getcwd`; `_room` bytes are at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __getcwd_chk(buffer: *mut c_char, size: size_t, _room: size_t) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { getcwd(buffer, size) }
}
