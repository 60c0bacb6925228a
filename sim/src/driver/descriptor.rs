//! Descriptors: numbers in arguments, and the identity of their files.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::os::fd::BorrowedFd;

/// Identity of an open file: copies of a descriptor have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
    /// A buffer that may only be read is another file than the buffer.
    read_only: bool,
}

impl FileKey {
    /// The identity of a descriptor's file.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stat = nix::sys::stat::fstat(fd)?;
        let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
        let read_only = flags & OFlag::O_ACCMODE == OFlag::O_RDONLY;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, read_only })
    }
}

/// A descriptor number from an argument; `None` for negative ones.
pub(crate) fn borrow<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: only used for calls that check the number and fail with EBADF when it is not open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
