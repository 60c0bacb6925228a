//! The machine's places that the program has open by their paths alone: folders, and nodes with `O_PATH`.

use crate::kernel;
use crate::machine::is_inside;
use libc::{DIR, c_int, dirent64};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An open folder. The program has its address as a `DIR`.
pub(crate) struct Folder {
    /// Stands for the folder in calls that take a descriptor of one.
    pub fd: OwnedFd,
    /// The entries that `readdir` returns, in order.
    pub entries: Box<[dirent64]>,
    /// The entry that is next.
    pub next: usize,
}

/// A file of the kernel's that stands for a place: its descriptors are known by its inode.
struct Anchor {
    path: String,
    file: OwnedFd,
    inode: (u64, u64),
}

/// Open directory streams.
#[derive(Default)]
pub(crate) struct Open {
    streams: HashMap<usize, Box<Folder>>,
    anchors: Vec<Anchor>,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);
/// Whether there is an anchor: without one, no descriptor is asked for its inode.
static ANY: AtomicBool = AtomicBool::new(false);

/// The table, for as long as its result lives.
pub(crate) fn lock() -> MutexGuard<'static, Option<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a folder until [`remove`].
pub(crate) fn insert(folder: Folder) -> *mut DIR {
    let mut folder = Box::new(folder);
    let key: *mut Folder = &raw mut *folder;
    lock().get_or_insert_default().streams.insert(key as usize, folder);
    key.cast()
}

/// Calls `f` for an open folder; `None` for a `DIR` of the C library's, as all are that the machine reads. It
/// may hold its own lock, which a fork takes after the table's.
pub(crate) fn with<R>(key: *mut DIR, f: impl FnOnce(&mut Folder) -> R) -> Option<R> {
    if is_inside() {
        return None;
    }
    lock().as_mut()?.streams.get_mut(&(key as usize)).map(|folder| f(folder))
}

/// Forgets a folder, and says whether there was one; `false` for those that the machine reads.
pub(crate) fn remove(key: *mut DIR) -> bool {
    if is_inside() {
        return false;
    }
    // Dropped without the lock: its descriptor is closed by a function that takes the machine's.
    let folder = lock().as_mut().and_then(|open| open.streams.remove(&(key as usize)));
    folder.is_some()
}

fn inode(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all fields are numbers.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a structure of that type.
    let filled = unsafe { kernel::fstatat(fd, c"".as_ptr(), &raw mut status, libc::AT_EMPTY_PATH) };
    (filled == 0).then_some((status.st_dev, status.st_ino))
}

/// A new descriptor of a place, for calls that take one as a folder or as a path.
///
/// # Errors
/// Those of `open(2)`.
pub(crate) fn open(path: &str, flags: c_int) -> Result<OwnedFd, Errno> {
    let mut table = lock();
    let anchors = &mut table.get_or_insert_default().anchors;
    if !anchors.iter().any(|anchor| anchor.path == path) {
        let file = memfd_create(c"place", MFdFlags::MFD_CLOEXEC)?;
        let inode = inode(file.as_raw_fd()).ok_or_else(Errno::last)?;
        anchors.push(Anchor { path: path.to_owned(), file, inode });
        ANY.store(true, Ordering::Release);
    }
    let anchor = anchors.iter().find(|anchor| anchor.path == path).ok_or(Errno::ENOENT)?;
    let link =
        CString::new(format!("/proc/self/fd/{}", anchor.file.as_raw_fd())).map_err(|_| Errno::EINVAL)?;
    let flags = libc::O_RDONLY | flags & (libc::O_PATH | libc::O_CLOEXEC);
    // SAFETY: a C string.
    let fd = Errno::result(unsafe { kernel::openat(libc::AT_FDCWD, link.as_ptr(), flags, 0) })?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The path of the place that a descriptor was opened for.
pub(crate) fn path_of(fd: c_int) -> Option<String> {
    if fd < 0 || !ANY.load(Ordering::Acquire) {
        return None;
    }
    let inode = inode(fd)?;
    let table = lock();
    table.as_ref()?.anchors.iter().find(|anchor| anchor.inode == inode).map(|anchor| anchor.path.clone())
}

/// An entry of a folder. Names are shorter than an entry's buffer.
pub(crate) fn entry(name: &CStr, number: usize, kind: u8) -> dirent64 {
    // SAFETY: all fields are numbers.
    let mut entry: dirent64 = unsafe { std::mem::zeroed() };
    entry.d_ino = number as u64 + 1;
    entry.d_off = number as i64 + 1;
    entry.d_reclen = size_of::<dirent64>() as u16;
    entry.d_type = kind;
    for (to, from) in entry.d_name.iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    entry
}
