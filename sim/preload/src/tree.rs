//! `chdir`, `readlink` and `realpath`.

use crate::kernel;
use crate::machine::{answer, borrow, from_program, name, owner_here};
use crate::original::original;
use crate::paths::{Resolved, descriptor_of, opened, passed, resolve};
use crate::working;
use ga10b_sim::Place;
use libc::{AT_FDCWD, c_char, c_int, size_t, ssize_t};
use nix::errno::Errno;
use std::ffi::CStr;
use std::ptr::null_mut;

/// `chdir(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let found = from_program(|| unsafe { resolve(AT_FDCWD, path, true) });
    match found.unwrap_or(Resolved::Kernel(None)) {
        Resolved::Place(path, Place::Folder(_)) => working::enter(&path.to_string_lossy()),
        Resolved::Place(..) => answer(Err(Errno::ENOTDIR)),
        Resolved::Nothing(errno) => answer(Err(errno)),
        // SAFETY: the caller's promise.
        Resolved::Empty => unsafe { kernel::chdir(path) },
        Resolved::Kernel(other) => {
            let (_, path) = passed(&other, AT_FDCWD, path);
            // SAFETY: the caller's promise; the path is the caller's or a C string.
            working::left(unsafe { kernel::chdir(path) })
        }
    }
}

/// Returns the target of the link in `/proc` of a descriptor of the machine, as the real driver names it.
fn link(path: &CStr) -> Option<String> {
    let fd = descriptor_of(path.to_str().ok()?)?;
    let of_machine = || {
        let name = name(owner_here(fd)?, borrow(fd)?);
        Some(if name.starts_with('/') { name } else { format!("anon_inode:{name}") })
    };
    opened(fd).or_else(of_machine)
}

/// `readlinkat(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    directory: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    size: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise; the path is the caller's or a C string, and the kernel checks the rest.
    let read = |other: &Option<_>| unsafe {
        let (directory, path) = passed(other, directory, path);
        let read = kernel::readlinkat(directory, path, buffer, size);
        let link = || from_program(|| link(CStr::from_ptr(path))).flatten();
        match if read < 0 { None } else { link() } {
            Some(link) => {
                let len = link.len().min(size);
                std::ptr::copy_nonoverlapping(link.as_ptr().cast(), buffer, len);
                len as ssize_t
            }
            None => read,
        }
    };
    // SAFETY: the caller's promise.
    let found = from_program(|| unsafe { resolve(directory, path, false) });
    match found.unwrap_or(Resolved::Kernel(None)) {
        Resolved::Place(..) => answer(Err(Errno::EINVAL)) as ssize_t,
        Resolved::Nothing(errno) => answer(Err(errno)) as ssize_t,
        Resolved::Empty => read(&None),
        Resolved::Kernel(other) => read(&other),
    }
}

/// `readlink(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, buffer: *mut c_char, size: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { readlinkat(AT_FDCWD, path, buffer, size) }
}

/// `__readlink_chk`, which fortified programs call.
///
/// # Safety
/// As for `readlink`; `_room` bytes are at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    buffer: *mut c_char,
    size: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { readlink(path, buffer, size) }
}

/// `__readlinkat_chk`, which fortified programs call.
///
/// # Safety
/// As for `readlinkat`; `_room` bytes are at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlinkat_chk(
    directory: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    size: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { readlinkat(directory, path, buffer, size) }
}

/// `realpath(3)`: no path of the machine is a link.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    type Realpath = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    // A null path is the C library's to refuse.
    // SAFETY: the caller's promise.
    let find = || (!path.is_null()).then(|| unsafe { resolve(AT_FDCWD, path, true) });
    let found = from_program(find).flatten();
    let other = match found {
        Some(Resolved::Place(path, _)) => {
            if resolved.is_null() {
                // SAFETY: a C string; the caller frees the copy.
                return unsafe { libc::strdup(path.as_ptr()) };
            }
            let bytes = path.as_bytes_with_nul();
            // SAFETY: the caller's room is PATH_MAX bytes, and paths of the machine are shorter.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), resolved, bytes.len()) };
            return resolved;
        }
        Some(Resolved::Nothing(errno)) => {
            errno.set();
            return null_mut();
        }
        Some(Resolved::Kernel(other)) => other,
        Some(Resolved::Empty) | None => None,
    };
    let (_, path) = passed(&other, AT_FDCWD, path);
    // SAFETY: the C library's function, with the caller's arguments or a C string.
    unsafe { original::<Realpath>(c"realpath").map_or(null_mut(), |next| next(path, resolved)) }
}

/// `__realpath_chk`, which fortified programs call.
///
/// # Safety
/// As for `realpath`; `_room` bytes are at `resolved`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    resolved: *mut c_char,
    _room: size_t,
) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { realpath(path, resolved) }
}
