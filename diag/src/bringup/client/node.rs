//! Descriptors, and the nodes that every client opens.

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use anyhow::ensure;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::{Ioctl, IoctlError, MEMORY_NODE, Sys, call, open_nvmap};

/// Control node of the integrated GPU.
const CTRL: &CStr = c"/dev/nvgpu/igpu0/ctrl";

/// The one node that is there before the GPU has started. Opening it changes nothing, writing to it powers the
/// GPU up or down (source: os/linux/power_ops.c, r36.4.3).
const POWER: &CStr = c"/dev/nvgpu/igpu0/power";

/// A node cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be opened{}", path.to_string_lossy(), if *only_power { ALONE } else { "" })]
pub struct Unopened {
    path: &'static CStr,
    /// Whether the driver is there and has made no node but `power`: the GPU did not start.
    pub only_power: bool,
    /// Why.
    #[source]
    pub errno: Errno,
}

/// Cause where `power` is the only node.
const ALONE: &str = ", and /dev/nvgpu/igpu0/power is there: the driver is loaded, and the GPU's firmware did not \
                     start";

/// Whether a node is there, also for users without the right to open it.
fn is_there(sys: &Arc<dyn Sys>, path: &CStr) -> bool {
    match sys.open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC) {
        Ok(fd) => sys.close(fd).is_ok(),
        Err(errno) => matches!(errno, Errno::EACCES | Errno::EPERM),
    }
}

/// An open descriptor, closed through the interface that opened it.
#[derive(Debug)]
pub struct Fd {
    fd: ManuallyDrop<OwnedFd>,
    sys: Arc<dyn Sys>,
}

impl Fd {
    fn opened(sys: &Arc<dyn Sys>, path: &'static CStr, fd: Result<OwnedFd, Errno>) -> anyhow::Result<Self> {
        let fd = fd.map_err(|errno| Unopened {
            path,
            only_power: errno == Errno::ENOENT && path == CTRL && is_there(sys, POWER),
            errno,
        })?;
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

    /// Returns the system calls that serve it.
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

/// The request that the driver does not have, or not in this form, if that is why it was refused: one that work
/// can do without costs no step.
pub fn lacking(error: &anyhow::Error) -> Option<&'static str> {
    let refused = error.downcast_ref::<IoctlError>()?;
    matches!(refused.errno, Errno::ENOTTY | Errno::EINVAL).then_some(refused.name)
}

/// The answer of a request that work can do without; `None` where the driver does not have it.
pub fn unless_lacking<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Err(error) if lacking(&error).is_some() => Ok(None),
        other => other.map(Some),
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
        Ok(Self {
            ctrl: Fd::opened(sys, CTRL, sys.open(CTRL, OFlag::O_RDWR | OFlag::O_CLOEXEC))?,
            nvmap: Fd::opened(sys, MEMORY_NODE, open_nvmap(&**sys))?,
        })
    }
}
