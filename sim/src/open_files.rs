//! Services for a library that interposes the C library's functions: properties of descriptors, and tables of
//! them that stay whole over a fork.

use crate::driver::descriptor::FileKey;
use crate::driver::files::Object;
use crate::driver::machine::Driver;
use crate::sim::{Readiness, Sim};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::MutexGuard;

/// The tables of open files at rest, until this is dropped.
pub struct Held<'a>(MutexGuard<'a, Driver>);

/// Readiness of a descriptor for `epoll(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// An event descriptor: readable once for each post, which a wait for edges reports once.
    Event,
    /// The driver has no `poll` operation for it: `EPERM`.
    Refused,
    /// As the kernel has it.
    OfTheKernel,
}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.0.files).finish()
    }
}

impl Sim {
    /// Waits until no thread changes the tables of open files, and keeps them at rest. A program that forks holds
    /// this meanwhile: in the child no other thread is there to release them.
    pub fn hold(&self) -> Held<'_> {
        Held(self.machine.driver())
    }

    /// Access mode and status flags as `fcntl(2)` reports them with `F_GETFL`; `None` for descriptors that are no
    /// files of the driver, and for buffers, whose descriptors have their own.
    pub fn status_flags(&self, fd: BorrowedFd<'_>) -> Option<OFlag> {
        self.machine.driver().files.flags(FileKey::of(fd).ok()?)
    }

    /// Sets the status flags, as `fcntl(2)` does with `F_SETFL`. The access mode stays.
    pub fn set_status_flags(&self, fd: BorrowedFd<'_>, flags: OFlag) {
        let changed =
            OFlag::O_APPEND | OFlag::O_ASYNC | OFlag::O_DIRECT | OFlag::O_NOATIME | OFlag::O_NONBLOCK;
        if let (Some(old), Ok(key)) = (self.status_flags(fd), FileKey::of(fd)) {
            self.machine.driver().files.set_flags(key, (old - changed) | (flags & changed));
        }
    }

    /// `ioctl(2)` with `FIONBIO` and `FIOASYNC`, which set or clear a status flag by the number at `on`. The
    /// driver sends no signals, so that a change of `O_ASYNC` is `ENOTTY`. `None` for files without flags
    /// here.
    pub fn switch_flag(
        &self,
        fd: BorrowedFd<'_>,
        flag: OFlag,
        on: *const libc::c_int,
    ) -> Option<Result<(), Errno>> {
        let flags = self.status_flags(fd)?;
        let number = self.machine.user.read_own(on.expose_provenance() as u64, size_of::<libc::c_int>());
        let wanted =
            number.map(|bytes| if bytes.iter().any(|byte| *byte != 0) { flags | flag } else { flags - flag });
        Some(wanted.and_then(|wanted| match wanted == flags {
            true => Ok(()),
            false if flag == OFlag::O_ASYNC => Err(Errno::ENOTTY),
            false => {
                self.set_status_flags(fd, wanted);
                Ok(())
            }
        }))
    }

    /// `read(2)` and `write(2)`: the driver has no such operation, for buffers neither. `None` for
    /// descriptors that the kernel serves: other programs' files, and nodes of records, where there is
    /// nothing to read.
    pub fn transfer(&self, fd: BorrowedFd<'_>, writes: bool) -> Option<Errno> {
        // Files of other kinds, which are most of those a program reads, need no lock.
        let status = nix::sys::stat::fstat(fd).ok()?;
        let kind = status.st_mode & libc::S_IFMT;
        if kind != libc::S_IFIFO && (kind != libc::S_IFREG || status.st_nlink > 0) {
            return None;
        }
        match self.machine.object(fd) {
            Ok(Some(Object::Sched | Object::ContextSwitchTrace)) | Err(_) => return None,
            Ok(None) => return self.machine.buffer_facts(fd).map(|_| Errno::EINVAL),
            Ok(Some(_)) => (),
        }
        let wrong = if writes { OFlag::O_RDONLY } else { OFlag::O_WRONLY };
        let is_wrong = self.status_flags(fd)? & OFlag::O_ACCMODE == wrong;
        Some(if is_wrong { Errno::EBADF } else { Errno::EINVAL })
    }

    /// `readv(2)` and `writev(2)`: as [`transfer`](Self::transfer), but the kernel reads the pieces first.
    pub fn transfer_pieces(
        &self,
        fd: BorrowedFd<'_>,
        writes: bool,
        pieces: *const libc::iovec,
        count: usize,
    ) -> Option<Errno> {
        let refused = self.transfer(fd, writes)?;
        if count > libc::UIO_MAXIOV as usize {
            return Some(Errno::EINVAL);
        }
        let address = pieces.expose_provenance() as u64;
        let read = self.machine.user.read_own(address, count * size_of::<libc::iovec>());
        Some(read.err().unwrap_or(refused))
    }

    /// Returns how a descriptor becomes ready for `epoll(7)`.
    pub fn waiting(&self, fd: BorrowedFd<'_>) -> Waiting {
        match self.readiness(fd.as_raw_fd()) {
            Readiness::Event => Waiting::Event,
            Readiness::Always => Waiting::Refused,
            Readiness::OfTheKernel => Waiting::OfTheKernel,
        }
    }

    /// Ends what belongs to descriptors that the program closed by other means than `close(2)`.
    pub fn collect_closed(&self) {
        if self.is_here() {
            self.machine.release_closed();
        }
    }
}
