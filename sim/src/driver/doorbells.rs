//! Mappings of the doorbell page in the program: withdrawn while the GPU is without power, as the driver
//! withdraws them (`nvgpu_hide_usermode_for_poweroff`), so that an access is a SIGBUS, and made again when it
//! has power.

use crate::driver::session::control::CtrlFile;
use crate::violations::Violations;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap};
use std::collections::HashMap;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Text of the violation for a mapping made while others are withdrawn: `alter_usermode_mappings`
/// (os/linux/ioctl_ctrl.c, r36.4.3) tries for the lock that `mmap` holds.
const LIVELOCK: &str = "the GPU is off, and the process has another mapping of the doorbell page: the driver turns the \
    GPU on, and waits to restore that mapping until this call lets go of the process's memory map, which is never; map \
    the page once in a process, or make a request that powers the GPU on first";

/// One mapping.
#[derive(Debug)]
struct Doorbell {
    len: NonZeroUsize,
    prot: ProtFlags,
    flags: MapFlags,
    /// The open file whose only mapping it is.
    file: Arc<CtrlFile>,
}

/// Mappings of the page by address, and whether they are withdrawn.
#[derive(Debug, Default)]
struct State {
    mappings: HashMap<usize, Doorbell>,
    hidden: bool,
}

/// The program's mappings of the doorbell page.
#[derive(Debug)]
pub(crate) struct Doorbells {
    /// A file without content: an access to a mapping of it is a SIGBUS.
    nothing: OwnedFd,
    state: Mutex<State>,
}

impl Doorbells {
    /// None so far.
    ///
    /// # Errors
    /// The host has no descriptors left.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { nothing: memfd_create(c"no power", MFdFlags::MFD_CLOEXEC)?, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program has mapped `page` at an address.
    pub(crate) fn add(
        &self,
        at: NonNull<c_void>,
        len: NonZeroUsize,
        (prot, flags): (ProtFlags, MapFlags),
        file: Arc<CtrlFile>,
    ) {
        let doorbell = Doorbell { len, prot, flags, file };
        self.state().mappings.insert(at.as_ptr() as usize, doorbell);
    }

    /// The program unmaps the mapping there, or replaces it.
    pub(crate) fn remove(&self, at: NonNull<c_void>, len: usize) {
        let gone = at.addr().get()..at.addr().get().saturating_add(len);
        for (_, doorbell) in self.state().mappings.extract_if(|at, _| gone.contains(at)) {
            doorbell.file.return_mapping();
        }
    }

    /// The driver's checks of a mapping that the program makes by `file`, which takes it; `is_page` when its
    /// arguments are those of the page.
    ///
    /// # Errors
    /// `EBUSY` when `file` has one; `EINVAL` for other arguments; `EIO` for a call that a real machine does not
    /// survive.
    pub(crate) fn take(&self, file: &CtrlFile, is_page: bool, violations: &Violations) -> Result<(), Errno> {
        if !file.take_mapping() {
            return Err(Errno::EBUSY);
        }
        if !is_page {
            file.return_mapping();
            return Err(Errno::EINVAL);
        }
        let restores = {
            let state = self.state();
            state.hidden && !state.mappings.is_empty()
        };
        match restores {
            true => violations.freeze("mmap", LIVELOCK).inspect_err(|_| file.return_mapping()),
            false => Ok(()),
        }
    }

    /// The GPU loses its power.
    pub(crate) fn hide(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.hidden, true) {
            state.replace(self.nothing.as_fd());
        }
    }

    /// The GPU has power, and `page` behind its mappings.
    pub(crate) fn show(&self, page: BorrowedFd<'_>) {
        let mut state = self.state();
        if std::mem::replace(&mut state.hidden, false) {
            state.replace(page);
        }
    }
}

impl State {
    /// Puts other memory at the addresses of all mappings.
    fn replace(&self, by: BorrowedFd<'_>) {
        for (at, Doorbell { len, prot, flags, .. }) in &self.mappings {
            let flags = *flags | MapFlags::MAP_FIXED;
            // SAFETY: the range is the program's mapping of this page, which it has not unmapped, since its
            // unmapping takes the same lock first; nothing but that page was there.
            let replaced = unsafe { mmap(NonZeroUsize::new(*at), *len, *prot, flags, by, 0) };
            // SAFETY: the range is the one just mapped; a fork had no mapping of it either.
            let kept = replaced.and_then(|at| unsafe { madvise(at, len.get(), MmapAdvise::MADV_DONTFORK) });
            if let Err(errno) = kept {
                tracing::error!(%errno, "a mapping of the doorbell page could not be replaced");
            }
        }
    }
}
