//! Which paths are the machine's.

use crate::folders;
use crate::kernel;
use ga10b_sim::{Place, Sim};
use libc::{c_char, c_int};
use nix::errno::Errno;
use std::ffi::{CStr, CString};

/// What a path names, relative to a folder's descriptor, if it is of the machine; and the whole path. Where the
/// program cannot read it, the kernel says so.
///
/// # Safety
/// `path` stays as it is during the call.
pub(crate) unsafe fn place(directory: c_int, path: *const c_char) -> Option<(CString, Place)> {
    // The kernel reads the whole path before it looks for the file.
    // SAFETY: the kernel checks the pointer.
    let found = unsafe { kernel::access(path, libc::F_OK) } == 0;
    if !found && matches!(Errno::last(), Errno::EFAULT | Errno::ENAMETOOLONG) {
        return None;
    }
    // SAFETY: the kernel has found the end of the string.
    let path = unsafe { CStr::from_ptr(path) };
    let path = match folders::path_of(directory) {
        Some(folder) if !path.to_bytes().starts_with(b"/") => {
            CString::new([folder.as_bytes(), b"/", path.to_bytes()].concat()).ok()?
        }
        _ => path.to_owned(),
    };
    Sim::place(&path).map(|place| (path, place))
}

/// The path, if it names a node.
///
/// # Safety
/// As for [`place`].
pub(crate) unsafe fn node(directory: c_int, path: *const c_char) -> Option<CString> {
    // SAFETY: the caller's promise.
    let (path, place) = unsafe { place(directory, path) }?;
    matches!(place, Place::Node { .. }).then_some(path)
}
