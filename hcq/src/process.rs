//! The process that an object belongs to.
//!
//! A fork copies a program's objects, but not what they stand for: rings, memory and timelines are shared
//! with the parent, whose threads go on to use them, and the mappings of GPU memory are the parent's alone.
//! Every call that reaches the driver or mapped memory therefore asks first whether it runs in the process
//! that opened the device. `getpid` would be a system call for each; a page that the kernel wipes in a forked
//! child (`MADV_WIPEONFORK`, `madvise(2)`) answers with a load.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use crate::error::Error;

/// A process, and whether the caller is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pid: u32,
    /// The mark's value in this process, not 0.
    number: u64,
    mark: Option<&'static AtomicU64>,
}

impl Process {
    /// The process that calls.
    pub fn current() -> Self {
        // A child continues the count of its parent, so it has a number that no object it was born with has.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mark = mark();
        let number = mark.map_or(1, |mark| {
            let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
            match mark.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(present) => present,
            }
        });
        Self { pid: std::process::id(), number, mark }
    }

    /// Whether the caller is in this process, and not in a fork of it.
    pub fn is_current(&self) -> bool {
        match self.mark {
            Some(mark) => mark.load(Ordering::Relaxed) == self.number,
            None => std::process::id() == self.pid,
        }
    }

    /// Refuses callers in a fork of this process.
    pub fn check(&self) -> Result<(), Error> {
        match self.is_current() {
            true => Ok(()),
            false => Err(Error::Forked { owner: self.pid, process: std::process::id() }),
        }
    }
}

/// The word of this process, once a device was opened.
static MARK: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();

/// A word that is 0 in a process that was forked until it is given a number; `None` where the kernel has no
/// such memory.
fn mark() -> Option<&'static AtomicU64> {
    *MARK.get_or_init(|| {
        wiped_on_fork().inspect_err(|errno| tracing::debug!(%errno, "forks are noticed by getpid")).ok()
    })
}

/// Wipes the word where the kernel accepts the advice and does nothing, as user-mode qemu does.
unsafe extern "C" fn wipe() {
    if let Some(Some(mark)) = MARK.get() {
        mark.store(0, Ordering::Relaxed);
    }
}

fn wiped_on_fork() -> Result<&'static AtomicU64, Errno> {
    const LEN: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
    if cfg!(miri) {
        return Err(Errno::ENOSYS);
    }
    // SAFETY: fresh private memory at an address that the kernel chooses.
    let page = unsafe {
        mmap_anonymous(None, LEN, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
    }?;
    // SAFETY: the page was mapped above, and holds nothing yet.
    let advised = unsafe { libc::madvise(page.as_ptr(), LEN.get(), libc::MADV_WIPEONFORK) };
    // SAFETY: the handler makes no call: it reads a static and stores a word.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    if let Err(errno) = Errno::result(advised).and(match registered {
        0 => Ok(0),
        error => Err(Errno::from_raw(error)),
    }) {
        // SAFETY: the page was mapped above, and nothing refers to it.
        let _ = unsafe { nix::sys::mman::munmap(page, LEN.get()) };
        return Err(errno);
    }
    // SAFETY: the page is aligned, reads as zero, and is never unmapped; a fork has a page of its own there.
    Ok(unsafe { AtomicU64::from_ptr(page.as_ptr().cast()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_process_are_in_it() {
        let process = Process::current();
        assert!(process.is_current() && process.check().is_ok());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(process.is_current() && Process::current().number == process.number));
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri does not fork")]
    fn a_fork_is_another_process_and_so_is_a_fork_of_it() {
        let process = Process::current();
        // The answers of a process: bit 0 for the parent's object, bit 1 for one of its own.
        let say = || i32::from(process.is_current()) | i32::from(Process::current().is_current()) << 1;
        let in_fork = |run: &dyn Fn() -> i32| {
            // SAFETY: the child calls nothing that another thread of the parent may hold a lock of.
            match unsafe { libc::fork() } {
                // SAFETY: ends the child without the parent's exit handlers.
                0 => unsafe { libc::_exit(run()) },
                child => {
                    let mut status = 0;
                    // SAFETY: `status` is this function's own.
                    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                    libc::WEXITSTATUS(status)
                }
            }
        };
        assert_eq!(say(), 3);
        assert_eq!(in_fork(&say), 2);
        assert_eq!(in_fork(&|| in_fork(&say)), 2);
        assert_eq!(
            in_fork(&|| {
                let own = Process::current();
                in_fork(&|| say() | i32::from(own.is_current()) << 2)
            }),
            2
        );
        assert_eq!(say(), 3);
    }
}
