//! The folders of nodes that the program has open.

use libc::{DIR, c_int, dirent64};
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An open folder. The program has its address as a `DIR`.
pub(crate) struct Folder {
    /// Stands for the folder in calls that take a descriptor of one.
    pub fd: OwnedFd,
    /// Its path.
    pub path: String,
    /// What `readdir` returns, one after the other.
    pub entries: Box<[dirent64]>,
    /// The entry that is next.
    pub next: usize,
}

static OPEN: Mutex<Option<HashMap<usize, Box<Folder>>>> = Mutex::new(None);

fn open() -> MutexGuard<'static, Option<HashMap<usize, Box<Folder>>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a folder until [`remove`].
pub(crate) fn insert(folder: Folder) -> *mut DIR {
    let mut folder = Box::new(folder);
    let key: *mut Folder = &raw mut *folder;
    open().get_or_insert_default().insert(key as usize, folder);
    key.cast()
}

/// Calls `f` for an open folder; `None` for a `DIR` of the C library's.
pub(crate) fn with<R>(key: *mut DIR, f: impl FnOnce(&mut Folder) -> R) -> Option<R> {
    open().as_mut()?.get_mut(&(key as usize)).map(|folder| f(folder))
}

/// Forgets a folder, and says whether there was one.
pub(crate) fn remove(key: *mut DIR) -> bool {
    open().as_mut().is_some_and(|open| open.remove(&(key as usize)).is_some())
}

/// The path of the folder that a descriptor stands for.
pub(crate) fn path_of(fd: c_int) -> Option<String> {
    let open = open();
    open.as_ref()?.values().find(|folder| folder.fd.as_raw_fd() == fd).map(|folder| folder.path.clone())
}

/// An entry of a folder. Names are shorter than an entry's room.
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
