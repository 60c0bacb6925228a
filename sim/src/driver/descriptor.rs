//! Descriptors: numbers in arguments, and the identity of what they are open on.

use nix::errno::Errno;
use std::os::fd::BorrowedFd;

/// Identity of an open file: copies of a descriptor have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
}

impl FileKey {
    /// The identity of what a descriptor is open on.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stat = nix::sys::stat::fstat(fd)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// A descriptor number from an argument; `None` for negative ones.
pub(crate) fn borrow<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: only used for calls that check the number and fail with EBADF when it is not open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
