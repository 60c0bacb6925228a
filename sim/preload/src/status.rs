//! `stat`, `access` and their kin: nodes of the machine are character devices of the group `video`.

use crate::folders;
use crate::kernel;
use crate::machine::{answer, borrow, from_program, owner_here, place};
use crate::paths::{Resolved, opened, passed, resolve};
use ga10b_sim::Place;
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint, stat as Status, statx as StatusX,
};
use nix::errno::Errno;
use nix::sys::stat::makedev;
use std::ffi::CString;

/// The group `video`, as Debian and Ubuntu number it.
const VIDEO: u32 = 44;
/// The major number of the GPU's nodes. The kernel gives it out when it boots, so that any is as good.
const MAJOR: u32 = 505;
/// File modes of nodes and folders.
const NODE_MODE: u32 = libc::S_IFCHR | 0o660;
const FOLDER_MODE: u32 = libc::S_IFDIR | 0o755;
/// Descriptors that the driver makes (address spaces, groups, channels) have no type, as anonymous inodes.
const ANONYMOUS_MODE: u32 = 0o600;

/// Returns mode, group and device number of a place, for `stat`.
fn describe(place: Place) -> (u32, u32, Option<u32>) {
    match place {
        Place::Folder(_) => (FOLDER_MODE, 0, None),
        Place::Node { minor } => (NODE_MODE, VIDEO, Some(minor)),
    }
}

/// Returns the file that replaces a place when the kernel fills the caller's structure.
fn stand_in(place: Place) -> *const c_char {
    if matches!(place, Place::Folder(_)) { c"/dev".as_ptr() } else { c"/dev/null".as_ptr() }
}

/// The number of a place's inode: a program that walks a tree takes two folders of one number for a loop.
fn inode(place: Place) -> u64 {
    let number = match place {
        Place::Folder(names) => 0x80 + names.len() as u64,
        Place::Node { minor } => minor.into(),
    };
    (u64::from(MAJOR) << 8) + number
}

/// Resolves the target of a call with `directory`, `path` and `flags`. An empty path with `AT_EMPTY_PATH`
/// names the place that the descriptor is open on.
///
/// # Safety
/// As for [`resolve`].
unsafe fn target(directory: c_int, path: *const c_char, flags: c_int) -> Resolved {
    let find = || {
        let names_descriptor = flags & AT_EMPTY_PATH != 0;
        let found = if names_descriptor && path.is_null() {
            Resolved::Empty
        } else {
            // SAFETY: the caller's promise.
            unsafe { resolve(directory, path) }
        };
        if !names_descriptor || !matches!(found, Resolved::Empty) {
            return found;
        }
        let place =
            opened(directory).and_then(|name| CString::new(name).ok()).and_then(|n| Some((place(&n)?, n)));
        place.map_or(found, |(place, name)| Resolved::Place(name, place))
    };
    from_program(find).unwrap_or(Resolved::Kernel(None))
}

/// Answers `stat` for a path of the machine.
///
/// # Safety
/// As for `fstatat(2)`.
unsafe fn stat_of(place: Place, buf: *mut Status) -> c_int {
    // SAFETY: the kernel checks `buf`.
    let filled = unsafe { kernel::fstatat(AT_FDCWD, stand_in(place), buf, 0) };
    if filled == 0 {
        let (mode, group, minor) = describe(place);
        // SAFETY: the kernel has written the structure.
        let status = unsafe { &mut *buf };
        (status.st_mode, status.st_uid, status.st_gid) = (mode, 0, group);
        status.st_ino = inode(place);
        if let Some(minor) = minor {
            status.st_rdev = makedev(MAJOR.into(), minor.into());
        }
    }
    filled
}

/// `fstatat(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat(
    directory: c_int,
    path: *const c_char,
    buf: *mut Status,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise; the path is the caller's or a C string.
    unsafe {
        match target(directory, path, flags) {
            Resolved::Place(_, place) => stat_of(place, buf),
            Resolved::Nothing(errno) => answer(Err(errno)),
            Resolved::Empty if flags & AT_EMPTY_PATH != 0 && directory != AT_FDCWD => fstat(directory, buf),
            Resolved::Empty => kernel::fstatat(directory, path, buf, flags),
            Resolved::Kernel(other) => {
                let (directory, path) = passed(&other, directory, path);
                kernel::fstatat(directory, path, buf, flags)
            }
        }
    }
}

/// `fstat(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, buf: *mut Status) -> c_int {
    // SAFETY: the caller's promise.
    let filled = unsafe { kernel::fstatat(fd, c"".as_ptr(), buf, AT_EMPTY_PATH) };
    if filled != 0 {
        return filled;
    }
    // A buffer's descriptor is a file of its size, as a dma-buf is; it has no name here.
    let of = |name: String| Some(place(&CString::new(name).ok()?));
    let name = || folders::path_of(fd).or_else(|| owner_here(fd)?.descriptor_name(borrow(fd)?));
    match from_program(|| of(name()?)).flatten() {
        // SAFETY: the caller's promise.
        Some(Some(place)) => unsafe { stat_of(place, buf) },
        Some(None) => {
            // SAFETY: the kernel has written the structure.
            unsafe { (*buf).st_mode = ANONYMOUS_MODE };
            filled
        }
        None => filled,
    }
}

/// `statx(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    buf: *mut StatusX,
) -> c_int {
    // SAFETY: the caller's promise.
    let place = match unsafe { target(directory, path, flags) } {
        Resolved::Place(_, place) => place,
        Resolved::Nothing(errno) => return answer(Err(errno)),
        // SAFETY: the caller's promise.
        Resolved::Empty => return unsafe { kernel::statx(directory, path, flags, mask, buf) },
        Resolved::Kernel(other) => {
            let (directory, path) = passed(&other, directory, path);
            // SAFETY: the caller's promise; the path is the caller's or a C string.
            return unsafe { kernel::statx(directory, path, flags, mask, buf) };
        }
    };
    // SAFETY: the kernel checks `buf`.
    let filled = unsafe { kernel::statx(AT_FDCWD, stand_in(place), flags & !AT_EMPTY_PATH, mask, buf) };
    if filled == 0 {
        let (mode, group, minor) = describe(place);
        // SAFETY: the kernel has written the structure.
        let status = unsafe { &mut *buf };
        (status.stx_mode, status.stx_uid, status.stx_gid) = (mode as u16, 0, group);
        status.stx_ino = inode(place);
        if let Some(minor) = minor {
            (status.stx_rdev_major, status.stx_rdev_minor) = (MAJOR, minor);
        }
    }
    filled
}

/// The names that call `fstatat` or `fstat`: those of files of 64 bits, and those that programs of a C library
/// before 2.33 use, which pass the structure's version first.
macro_rules! same {
    ($($name:ident($($argument:ident: $type:ty),*) => $call:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $call }
        }
    )*};
}

same! {
    stat(path: *const c_char, buf: *mut Status) => fstatat(AT_FDCWD, path, buf, 0);
    stat64(path: *const c_char, buf: *mut Status) => fstatat(AT_FDCWD, path, buf, 0);
    lstat(path: *const c_char, buf: *mut Status) => fstatat(AT_FDCWD, path, buf, AT_SYMLINK_NOFOLLOW);
    lstat64(path: *const c_char, buf: *mut Status) => fstatat(AT_FDCWD, path, buf, AT_SYMLINK_NOFOLLOW);
    fstat64(fd: c_int, buf: *mut Status) => fstat(fd, buf);
    fstatat64(directory: c_int, path: *const c_char, buf: *mut Status, flags: c_int)
        => fstatat(directory, path, buf, flags);
    __xstat(_version: c_int, path: *const c_char, buf: *mut Status) => fstatat(AT_FDCWD, path, buf, 0);
    __xstat64(_version: c_int, path: *const c_char, buf: *mut Status) => fstatat(AT_FDCWD, path, buf, 0);
    __lxstat(_version: c_int, path: *const c_char, buf: *mut Status)
        => fstatat(AT_FDCWD, path, buf, AT_SYMLINK_NOFOLLOW);
    __lxstat64(_version: c_int, path: *const c_char, buf: *mut Status)
        => fstatat(AT_FDCWD, path, buf, AT_SYMLINK_NOFOLLOW);
    __fxstat(_version: c_int, fd: c_int, buf: *mut Status) => fstat(fd, buf);
    __fxstat64(_version: c_int, fd: c_int, buf: *mut Status) => fstat(fd, buf);
    __fxstatat(_version: c_int, directory: c_int, path: *const c_char, buf: *mut Status, flags: c_int)
        => fstatat(directory, path, buf, flags);
    __fxstatat64(_version: c_int, directory: c_int, path: *const c_char, buf: *mut Status, flags: c_int)
        => fstatat(directory, path, buf, flags);
    access(path: *const c_char, mode: c_int) => faccessat(AT_FDCWD, path, mode, 0);
    eaccess(path: *const c_char, mode: c_int) => faccessat(AT_FDCWD, path, mode, libc::AT_EACCESS);
    euidaccess(path: *const c_char, mode: c_int) => faccessat(AT_FDCWD, path, mode, libc::AT_EACCESS);
}

/// `faccessat(2)`: nodes of the machine exist and may be read and written.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(
    directory: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { target(directory, path, flags) } {
        Resolved::Place(..) if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 => {
            answer(Err(Errno::EINVAL))
        }
        Resolved::Place(_, Place::Node { .. }) if mode & libc::X_OK != 0 => answer(Err(Errno::EACCES)),
        Resolved::Place(..) => 0,
        Resolved::Nothing(errno) => answer(Err(errno)),
        // SAFETY: the caller's promise.
        Resolved::Empty => unsafe { kernel::faccessat(directory, path, mode, flags) },
        Resolved::Kernel(other) => {
            let (directory, path) = passed(&other, directory, path);
            // SAFETY: the caller's promise; the path is the caller's or a C string.
            unsafe { kernel::faccessat(directory, path, mode, flags) }
        }
    }
}
