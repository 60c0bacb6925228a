//! A driver of which one call fails.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{
    Ioctl, Layer, NvmapIocGetFd, Request, Sys, nvgpu_alloc_as_args, nvgpu_gpu_open_channel_args,
    nvgpu_gpu_open_tsg_args,
};
use zerocopy::FromBytes;

/// The way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing is done: the process has too many descriptors (`open`: `EMFILE`), or no memory is left (`ioctl`,
    /// `mmap`, `munmap`: `ENOMEM`).
    Refused,
    /// A signal comes before anything is done: `EINTR` from `open` and `ioctl`.
    Interrupted,
    /// The driver serves an `ioctl`, and the answer does not reach the program: `EFAULT`.
    AnswerLost,
}

impl Manner {
    pub(crate) const ALL: [Self; 3] = [Self::Refused, Self::Interrupted, Self::AnswerLost];
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::AnswerLost => "served without an answer",
        })
    }
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// Its name, for people.
    pub name: String,
    /// A part of the message of an error that names it.
    pub named_by: String,
}

/// Passes all calls on but one. In whatever manner `close` fails, the descriptor is closed: the kernel's says
/// `EINTR` or `EIO` after that.
#[derive(Debug)]
pub(crate) struct Injector {
    sys: Arc<dyn Sys>,
    manner: Manner,
    /// Number of the call that fails, from 1 on.
    at: usize,
    count: AtomicUsize,
    failed: Mutex<Option<Failed>>,
    /// Mappings that the process could not remove.
    left: Mutex<Vec<(usize, usize)>>,
}

impl Injector {
    /// Fails the call number `at`; none for 0.
    pub fn new(sys: Arc<dyn Sys>, manner: Manner, at: usize) -> Arc<Self> {
        let (count, failed, left) = (AtomicUsize::new(0), Mutex::default(), Mutex::default());
        Arc::new(Self { sys, manner, at, count, failed, left })
    }

    /// Calls so far that can fail in this manner.
    pub fn calls(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The call that failed.
    pub fn failed(&self) -> Option<Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fails(&self, name: &str, named_by: impl FnOnce() -> String) -> bool {
        let fails = self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.at;
        if fails {
            let failed = Failed { name: name.to_owned(), named_by: named_by() };
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failed);
        }
        fails
    }
}

/// The descriptor in nvgpu's or nvmap's answer to a request.
fn descriptor(request: u32, answer: &[u8]) -> Option<i32> {
    let first = |answer: &[u8]| answer.first_chunk().map(|word| i32::from_ne_bytes(*word));
    match request {
        nvgpu_alloc_as_args::REQUEST => nvgpu_alloc_as_args::read_from_bytes(answer).ok().map(|a| a.as_fd),
        nvgpu_gpu_open_channel_args::REQUEST | nvgpu_gpu_open_tsg_args::REQUEST | NvmapIocGetFd::REQUEST => {
            first(answer)
        }
        _ => None,
    }
}

// SAFETY: every call is passed on to an implementation, or refused.
unsafe impl Layer for Injector {
    fn below(&self) -> &dyn Sys {
        &*self.sys
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let path_text = || path.to_string_lossy().into_owned();
        match self.manner {
            Manner::Refused if self.fails("open", path_text) => Err(Errno::EMFILE),
            Manner::Interrupted if self.fails("open", path_text) => Err(Errno::EINTR),
            _ => self.sys.open(path, flags),
        }
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let name = Request::find(request).map_or("ioctl", |request| request.name);
        if !self.fails(name, || format!("{request:#010x}")) {
            // SAFETY: passed on from the caller.
            return unsafe { self.sys.ioctl(fd, request, arg) };
        }
        match self.manner {
            Manner::Refused => Err(Errno::ENOMEM),
            Manner::Interrupted => Err(Errno::EINTR),
            Manner::AnswerLost => {
                let mut answer = arg.to_vec();
                // SAFETY: passed on from the caller.
                unsafe { self.sys.ioctl(fd, request, &mut answer) }?;
                if let Some(fd) = descriptor(request, &answer).filter(|fd| *fd >= 0) {
                    // SAFETY: the driver has just opened it, and only its answer, which is lost, names it.
                    self.sys.close(unsafe { OwnedFd::from_raw_fd(fd) })?;
                }
                Err(Errno::EFAULT)
            }
        }
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        if self.manner == Manner::Refused && self.fails("mmap", || "cannot map".to_owned()) {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sys.mmap(len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        if self.manner == Manner::Refused && self.fails("munmap", String::new) {
            let left = (addr.as_ptr().expose_provenance(), len);
            self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
            return Err(Errno::ENOMEM);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sys.munmap(addr, len) }
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        let fails = self.fails("close", String::new);
        self.sys.close(fd)?;
        match self.manner {
            Manner::Refused if fails => Err(Errno::EIO),
            Manner::Interrupted if fails => Err(Errno::EINTR),
            _ => Ok(()),
        }
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        for (at, len) in self.left.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let at = NonNull::new(std::ptr::with_exposed_provenance_mut(at));
            // SAFETY: one mapping, whose owner gave it up.
            let gone = at.map(|at| unsafe { self.sys.munmap(at, len) });
            tracing::debug!(?gone, "a mapping was removed that the process could not remove");
        }
    }
}
