//! Descriptors, and the nodes that everything begins with.

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use anyhow::ensure;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::{Ioctl, Sys, call};

/// Control node of the integrated GPU.
const CTRL: &CStr = c"/dev/nvgpu/igpu0/ctrl";
/// The allocator's.
const NVMAP: &CStr = c"/dev/nvmap";

/// A node cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be opened", path.to_string_lossy())]
pub struct Unopened {
    path: &'static CStr,
    /// Why.
    #[source]
    pub errno: Errno,
}

/// An open descriptor, closed through what it was opened through.
#[derive(Debug)]
pub struct Fd {
    fd: ManuallyDrop<OwnedFd>,
    sys: Arc<dyn Sys>,
}

impl Fd {
    fn open(sys: &Arc<dyn Sys>, path: &'static CStr) -> anyhow::Result<Self> {
        let fd = sys.open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC);
        let fd = fd.map_err(|errno| Unopened { path, errno })?;
        Ok(Self { fd: ManuallyDrop::new(fd), sys: sys.clone() })
    }

    /// Takes over the descriptor that request `A` has answered with.
    pub(super) fn answered<A: Ioctl>(sys: &Arc<dyn Sys>, fd: RawFd) -> anyhow::Result<Self> {
        ensure!(fd > 2, "{} answered with descriptor {fd}", A::NAME);
        // SAFETY: the driver has just opened it for this process, and nobody else knows it.
        Ok(Self { fd: ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) }), sys: sys.clone() })
    }

    /// The number, for requests that name another object.
    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// What serves it.
    pub fn sys(&self) -> &Arc<dyn Sys> {
        &self.sys
    }

    /// Sends a request whose struct holds no addresses; its answer is 0.
    pub fn ask<A: Ioctl>(&self, args: &mut A) -> anyhow::Result<()> {
        // SAFETY: none of the requests that this client sends this way holds an address of the process, and
        // the descriptors in them are open.
        let left = unsafe { call(&*self.sys, self.as_fd(), args) }?;
        ensure!(left == 0, "{} answered {left} instead of 0", A::NAME);
        Ok(())
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        // The descriptor is gone whatever this answers, and there is nothing to do about it.
        let _ = self.sys.close(fd);
    }
}

/// The nodes.
#[derive(Debug)]
pub struct Nodes {
    pub ctrl: Fd,
    pub nvmap: Fd,
}

impl Nodes {
    /// Opens both.
    pub fn open(sys: &Arc<dyn Sys>) -> anyhow::Result<Self> {
        Ok(Self { ctrl: Fd::open(sys, CTRL)?, nvmap: Fd::open(sys, NVMAP)? })
    }
}
