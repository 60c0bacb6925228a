//! Paths of the machine: the one place where a path of the program is resolved.
//!
//! The machine's folders are not in the kernel's tree, so a path through them is resolved here, component by
//! component, from the kernel's working folder or the folder that a descriptor is open on. Paths that can not be the
//! machine's, which have none of its names in them, cost a search in their text. Symbolic links elsewhere that
//! lead to the machine's folders are not followed.

use crate::folders;
use crate::kernel;
use crate::machine::{self, borrow, machine};
use ga10b_sim::Place;
use libc::{AT_FDCWD, c_char, c_int};
use nix::errno::Errno;
use std::ffi::{CStr, CString};

/// A resolved path of the program.
pub(crate) enum Resolved {
    /// The machine's: the whole path, and its node or folder.
    Place(CString, Place),
    /// Nothing: the errno of every call with it.
    Nothing(Errno),
    /// The empty path: nothing, or with `AT_EMPTY_PATH` the descriptor's own file.
    Empty,
    /// The kernel's, which gets this absolute path where the program's goes through the machine's folders.
    Kernel(Option<CString>),
}

/// A path relative to a folder's descriptor, resolved. Where the program cannot read it, the kernel says so.
///
/// # Safety
/// `path` stays as it is during the call.
pub(crate) unsafe fn resolve(directory: c_int, path: *const c_char) -> Resolved {
    // The kernel reads the whole path before it looks for the file.
    // SAFETY: the kernel checks the pointer.
    let found = unsafe { kernel::access(path, libc::F_OK) } == 0;
    if !found && matches!(Errno::last(), Errno::EFAULT | Errno::ENAMETOOLONG) {
        return Resolved::Kernel(None);
    }
    // SAFETY: the kernel has found the end of the string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.is_empty() {
        return Resolved::Empty;
    }
    match whole(directory, path) {
        Some((whole, is_inside)) => walk(&whole, is_inside),
        None => Resolved::Kernel(None),
    }
}

/// The absolute path, and whether it begins in a folder of the machine; `None` for what cannot be the machine's.
fn whole(directory: c_int, path: &[u8]) -> Option<(Vec<u8>, bool)> {
    let is_candidate = has(path, b"nv") || has(path, b"host1x");
    if path.first()? == &b'/' {
        return is_candidate.then(|| (path.to_vec(), false));
    }
    let joined = |folder: &[u8]| [folder, b"/", path].concat();
    if let Some(folder) = folders::path_of(directory) {
        return Some((joined(folder.as_bytes()), true));
    }
    if !is_candidate {
        return None;
    }
    let folder = if directory == AT_FDCWD {
        kernel::working_folder()
    } else {
        kernel::link_of(&format!("/proc/self/fd/{directory}"))
    };
    Some((joined(&folder?), false))
}

/// Returns the path for the kernel: the one that replaces the program's, or the program's own.
pub(crate) fn passed(
    other: &Option<CString>,
    directory: c_int,
    path: *const c_char,
) -> (c_int, *const c_char) {
    other.as_ref().map_or((directory, path), |other| (AT_FDCWD, other.as_ptr()))
}

fn has(path: &[u8], part: &[u8]) -> bool {
    path.windows(part.len()).any(|window| window == part)
}

/// The place that an absolute path names, its components taken one after the other.
fn walk(path: &[u8], mut is_inside: bool) -> Resolved {
    let mut so_far: Vec<u8> = Vec::with_capacity(path.len());
    for component in path.split(|byte| *byte == b'/').skip(1) {
        if matches!(place(&so_far), Some(Place::Node { .. })) {
            // Also after a slash at the end.
            return Resolved::Nothing(Errno::ENOTDIR);
        }
        match component {
            b"" | b"." => (),
            b".." => {
                so_far.truncate(so_far.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
            }
            name => {
                so_far.push(b'/');
                so_far.extend_from_slice(name);
            }
        }
        is_inside |= place(&so_far).is_some();
    }
    let found = place(&so_far);
    if so_far.is_empty() {
        so_far.push(b'/');
    }
    match (found, CString::new(so_far)) {
        (Some(place), Ok(path)) => Resolved::Place(path, place),
        (None, Ok(path)) => Resolved::Kernel(is_inside.then_some(path)),
        (_, Err(_)) => Resolved::Kernel(None),
    }
}

fn place(path: &[u8]) -> Option<Place> {
    if !path.starts_with(b"/dev/") {
        return None;
    }
    machine::place(&CString::new(path).ok()?)
}

/// The path of the node or folder that a descriptor is open on.
pub(crate) fn opened(fd: c_int) -> Option<String> {
    let name = || machine()?.descriptor_name(borrow(fd)?);
    folders::path_of(fd).or_else(name).filter(|name| place(name.as_bytes()).is_some())
}
