//! The system calls of one device: how long those are repeated that signals interrupt, and which process
//! makes them.
//!
//! A fork has the parent's descriptors, but the parent's device: in a fork every call but `close` is refused,
//! and nothing is unmapped, since mappings of GPU memory do not come along (`MADV_DONTFORK`).

use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags};
use nvgpu_sys::Sys;

use crate::process::Process;
use crate::sync::lock;

/// A fork's answer to a call: the device is another process's.
const FORKED: Errno = Errno::EPERM;

/// The calls of a device.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Never dropped in a fork: what it holds is the parent's.
    sys: ManuallyDrop<Arc<dyn Sys>>,
    patience: Duration,
    process: Process,
    /// Since when every request was interrupted.
    interrupted: Mutex<Option<Instant>>,
}

impl Calls {
    /// Calls through `sys`, by this process; one that signals keep interrupting is repeated for `patience`.
    pub fn new(sys: Arc<dyn Sys>, patience: Duration) -> Self {
        let (sys, interrupted) = (ManuallyDrop::new(sys), Mutex::default());
        Self { sys, patience, process: Process::current(), interrupted }
    }

    /// Whether the caller is in the process that opened the device.
    pub fn is_open_here(&self) -> bool {
        self.process.is_current()
    }

    fn here(&self) -> Result<&dyn Sys, Errno> {
        if self.is_open_here() { Ok(&**self.sys) } else { Err(FORKED) }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if self.is_open_here() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.sys) };
        }
    }
}

// SAFETY: every call is passed on to an implementation or refused; a fork unmaps nothing, because it has no
// mapping there, and closes descriptors that it owns.
unsafe impl Sys for Calls {
    /// Nothing once it was used up: requests that follow each other while none goes through share one
    /// patience.
    fn patience(&self) -> Duration {
        let used_up = lock(&self.interrupted).is_some_and(|since| since.elapsed() >= self.patience);
        if used_up { Duration::ZERO } else { self.patience }
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let (sys, began) = (self.here()?, Instant::now());
        loop {
            // The driver may power the GPU on, which signals interrupt.
            match sys.open(path, flags) {
                Err(Errno::EINTR) if began.elapsed() < self.patience => std::thread::yield_now(),
                opened => return opened,
            }
        }
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        // SAFETY: the caller's promise.
        let result = unsafe { self.here()?.ioctl(fd, request, arg) };
        let mut interrupted = lock(&self.interrupted);
        match result {
            Err(Errno::EINTR) => drop(interrupted.get_or_insert_with(Instant::now)),
            _ => *interrupted = None,
        }
        result
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        // SAFETY: the caller's promise.
        let at = unsafe { self.here()?.mmap(len, prot, flags, fd, offset) }?;
        // SAFETY: the range is one mapping; what changes is that a fork has none there.
        if let Err(errno) = unsafe { nix::sys::mman::madvise(at, len.get(), MmapAdvise::MADV_DONTFORK) } {
            tracing::debug!(%errno, "a fork of this process will have a mapping of GPU memory");
        }
        Ok(at)
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        match self.here() {
            // SAFETY: the caller's promise.
            Ok(sys) => unsafe { sys.munmap(addr, len) },
            Err(_) => Ok(()),
        }
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        self.here()?.poll(fds, timeout)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        match self.here() {
            Ok(sys) => sys.close(fd),
            Err(_) => {
                drop(fd);
                Ok(())
            }
        }
    }
}
