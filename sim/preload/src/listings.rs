//! `opendir`, `readdir` and their kin, for the folders of nodes.

use crate::folders::{self, Folder, entry};
use crate::machine::{from_program, place};
use crate::original::original;
use crate::paths::{Resolved, resolve};
use ga10b_sim::Place;
use libc::{AT_FDCWD, DIR, DT_CHR, DT_DIR, c_char, c_int, c_long, dirent64};
use nix::errno::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// Returns the entries that `readdir` gives for a folder with these names.
fn entries(names: &[&str]) -> Box<[dirent64]> {
    let kind = |name: &str| if name == "igpu0" { DT_DIR } else { DT_CHR };
    let names = [(".", DT_DIR), ("..", DT_DIR)].into_iter().chain(names.iter().map(|n| (*n, kind(n))));
    let entries = names.enumerate();
    entries.filter_map(|(i, (name, kind))| Some(entry(&CString::new(name).ok()?, i, kind))).collect()
}

/// `opendir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the caller's promise.
    let resolved = from_program(|| unsafe { resolve(AT_FDCWD, path) });
    let fail = |errno: Errno| {
        errno.set();
        null_mut()
    };
    let passed = match &resolved {
        Some(Resolved::Place(path, Place::Folder(names))) => {
            let fd = folders::open(&path.to_string_lossy(), libc::O_CLOEXEC);
            return fd
                .map_or_else(fail, |fd| folders::insert(Folder { fd, entries: entries(names), next: 0 }));
        }
        Some(Resolved::Place(..)) => return fail(Errno::ENOTDIR),
        Some(Resolved::Nothing(errno)) => return fail(*errno),
        Some(Resolved::Kernel(Some(other))) => other.as_ptr(),
        Some(Resolved::Empty | Resolved::Kernel(None)) | None => path,
    };
    // SAFETY: the C library's function, with the caller's argument or a C string.
    unsafe {
        original::<unsafe extern "C" fn(*const c_char) -> *mut DIR>(c"opendir")
            .map_or(null_mut(), |f| f(passed))
    }
}

/// `fdopendir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    let place = from_program(|| place(&CString::new(folders::path_of(fd)?).ok()?)).flatten();
    match place {
        Some(Place::Folder(names)) => {
            // SAFETY: the program gives the descriptor to the stream.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            folders::insert(Folder { fd, entries: entries(names), next: 0 })
        }
        Some(Place::Node { .. }) => {
            Errno::ENOTDIR.set();
            null_mut()
        }
        // SAFETY: the C library's function, with the caller's argument.
        None => unsafe {
            original::<unsafe extern "C" fn(c_int) -> *mut DIR>(c"fdopendir").map_or(null_mut(), |f| f(fd))
        },
    }
}

/// `readdir64(3)`, which on 64-bit machines is `readdir`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(folder: *mut DIR) -> *mut dirent64 {
    let next = folders::with(folder, |folder| {
        let next = folder.entries.get_mut(folder.next);
        folder.next += usize::from(next.is_some());
        next.map_or(null_mut(), std::ptr::from_mut)
    });
    // SAFETY: the C library's function, with the caller's argument.
    next.unwrap_or_else(|| unsafe {
        original::<unsafe extern "C" fn(*mut DIR) -> *mut dirent64>(c"readdir64")
            .map_or(null_mut(), |f| f(folder))
    })
}

/// `readdir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir(folder: *mut DIR) -> *mut dirent64 {
    // SAFETY: the caller's promise.
    unsafe { readdir64(folder) }
}

/// `closedir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(folder: *mut DIR) -> c_int {
    if folders::remove(folder) {
        return 0;
    }
    // SAFETY: the C library's function, with the caller's argument.
    unsafe { original::<unsafe extern "C" fn(*mut DIR) -> c_int>(c"closedir").map_or(-1, |f| f(folder)) }
}

/// `dirfd(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dirfd(folder: *mut DIR) -> c_int {
    let fd = folders::with(folder, |folder| folder.fd.as_raw_fd());
    // SAFETY: the C library's function, with the caller's argument.
    fd.unwrap_or_else(|| unsafe {
        original::<unsafe extern "C" fn(*mut DIR) -> c_int>(c"dirfd").map_or(-1, |f| f(folder))
    })
}

/// `rewinddir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(folder: *mut DIR) {
    if folders::with(folder, |folder| folder.next = 0).is_none() {
        // SAFETY: the C library's function, with the caller's argument.
        unsafe {
            original::<unsafe extern "C" fn(*mut DIR)>(c"rewinddir").into_iter().for_each(|f| f(folder))
        }
    }
}

/// `telldir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(folder: *mut DIR) -> c_long {
    let next = folders::with(folder, |folder| folder.next as c_long);
    // SAFETY: the C library's function, with the caller's argument.
    next.unwrap_or_else(|| unsafe {
        original::<unsafe extern "C" fn(*mut DIR) -> c_long>(c"telldir").map_or(-1, |f| f(folder))
    })
}

/// `seekdir(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(folder: *mut DIR, to: c_long) {
    if folders::with(folder, |folder| folder.next = usize::try_from(to).unwrap_or(0)).is_none() {
        // SAFETY: the C library's function, with the caller's arguments.
        unsafe {
            let next = original::<unsafe extern "C" fn(*mut DIR, c_long)>(c"seekdir");
            next.into_iter().for_each(|f| f(folder, to));
        }
    }
}
