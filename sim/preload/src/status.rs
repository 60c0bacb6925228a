//! `stat`, `access`, `realpath` and their kin: nodes of the machine are character devices of the group `video`.

use crate::kernel;
use crate::machine::{borrow, from_program, owner};
use crate::original::original;
use crate::paths::place;
use ga10b_sim::{Place, Sim};
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, SYS_getxattr, SYS_lgetxattr, c_char, c_int, c_uint, c_void,
    size_t, ssize_t, stat as Status, statx as StatusX,
};
use nix::errno::Errno;
use nix::sys::stat::makedev;
use std::ffi::CString;
use std::ptr::null_mut;

/// The group `video`, as Debian and Ubuntu number it.
const VIDEO: u32 = 44;
/// The major number of the GPU's nodes. The kernel gives it out when it boots, so that any is as good.
const MAJOR: u32 = 505;
/// What nodes and folders may be used for.
const NODE_MODE: u32 = libc::S_IFCHR | 0o660;
const FOLDER_MODE: u32 = libc::S_IFDIR | 0o755;
/// Descriptors that the driver makes (address spaces, groups, channels) have no type, as anonymous inodes.
const ANONYMOUS_MODE: u32 = 0o600;

/// What `stat` says of a place: mode, group, device number.
fn describe(place: Place) -> (u32, u32, Option<u32>) {
    match place {
        Place::Folder(_) => (FOLDER_MODE, 0, None),
        Place::Node { minor } => (NODE_MODE, VIDEO, Some(minor)),
    }
}

/// What stands in for a place when the kernel fills the caller's structure.
fn stand_in(place: Place) -> *const c_char {
    if matches!(place, Place::Folder(_)) { c"/dev".as_ptr() } else { c"/dev/null".as_ptr() }
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
        if let Some(minor) = minor {
            status.st_rdev = makedev(MAJOR.into(), minor.into());
            status.st_ino = (u64::from(MAJOR) << 8) + u64::from(minor);
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
    // SAFETY: the caller's promise.
    let place = from_program(|| unsafe { place(directory, path) }).flatten();
    match place {
        // SAFETY: the caller's promise.
        Some((_, place)) => unsafe { stat_of(place, buf) },
        // SAFETY: the caller's promise.
        None => unsafe { kernel::fstatat(directory, path, buf, flags) },
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
    // A buffer's descriptor is a file of its size, as a dma-buf is; it has no name here.
    let name = || from_program(|| owner(fd)?.descriptor_name(borrow(fd)?)).flatten();
    if filled == 0
        && let Some(name) = name()
    {
        // SAFETY: the kernel has written the structure.
        let status = unsafe { &mut *buf };
        match CString::new(name).ok().and_then(|name| Sim::place(&name)) {
            // SAFETY: as above.
            Some(place) => return unsafe { stat_of(place, buf) },
            None => status.st_mode = ANONYMOUS_MODE,
        }
    }
    filled
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
    let found = from_program(|| unsafe { place(directory, path) }).flatten().map(|(_, place)| place);
    let opened = || {
        let name = from_program(|| owner(directory)?.descriptor_name(borrow(directory)?)).flatten();
        name.and_then(|name| Sim::place(&CString::new(name).ok()?))
    };
    // SAFETY: the kernel has checked that the path can be read.
    let empty = flags & AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0);
    let Some(place) = found.or_else(|| empty.then(opened).flatten()) else {
        // SAFETY: the caller's promise.
        return unsafe { kernel::statx(directory, path, flags, mask, buf) };
    };
    // SAFETY: the kernel checks `buf`.
    let filled = unsafe { kernel::statx(AT_FDCWD, stand_in(place), flags & !AT_EMPTY_PATH, mask, buf) };
    if filled == 0 {
        let (mode, group, minor) = describe(place);
        // SAFETY: the kernel has written the structure.
        let status = unsafe { &mut *buf };
        (status.stx_mode, status.stx_uid, status.stx_gid) = (mode as u16, 0, group);
        if let Some(minor) = minor {
            (status.stx_rdev_major, status.stx_rdev_minor) = (MAJOR, minor);
            status.stx_ino = (u64::from(MAJOR) << 8) + u64::from(minor);
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
    match from_program(|| unsafe { place(directory, path) }).flatten() {
        Some((_, Place::Node { .. })) if mode & libc::X_OK != 0 => {
            Errno::EACCES.set();
            -1
        }
        Some(_) => 0,
        // SAFETY: the caller's promise.
        None => unsafe { kernel::faccessat(directory, path, mode, flags) },
    }
}

/// Answers a question about extended attributes: nodes have none.
///
/// # Safety
/// `path` as for [`place`].
unsafe fn has_no_attributes(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let ours = from_program(|| unsafe { place(AT_FDCWD, path) }).flatten().is_some();
    if ours {
        Errno::ENODATA.set();
    }
    ours
}

/// `getxattr(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getxattr(
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        if has_no_attributes(path) { -1 } else { kernel::getxattr(SYS_getxattr, path, name, value, size) }
    }
}

/// `lgetxattr(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lgetxattr(
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        if has_no_attributes(path) { -1 } else { kernel::getxattr(SYS_lgetxattr, path, name, value, size) }
    }
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
    let find = || (!path.is_null()).then(|| unsafe { place(AT_FDCWD, path) }).flatten();
    let found = from_program(find).flatten();
    let Some((path, _)) = found else {
        // SAFETY: the C library's function, with the caller's arguments.
        return unsafe { original::<Realpath>(c"realpath").map_or(null_mut(), |next| next(path, resolved)) };
    };
    if resolved.is_null() {
        // SAFETY: a C string; the caller frees the copy.
        return unsafe { libc::strdup(path.as_ptr()) };
    }
    let bytes = path.as_bytes_with_nul();
    // SAFETY: the caller's room is PATH_MAX bytes, and paths of the machine are shorter.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), resolved, bytes.len()) };
    resolved
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
