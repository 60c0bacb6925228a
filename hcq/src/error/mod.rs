//! Errors, in the terms of the object and the number they concern.

use std::ffi::CStr;
use std::fmt;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno as Nix;

use crate::cubin::error::CubinError;
use crate::errno::Errno;
use crate::error::report::FaultReport;

mod driver;
mod hint;
mod launch;
mod memory;
mod open;
mod program;
mod queue;
pub(crate) mod report;

pub use driver::DriverError;
pub use launch::LaunchError;
pub use memory::MemoryError;
pub use open::OpenError;
pub use program::ProgramError;
pub use queue::QueueError;

/// An error of an `hcq` call.
///
/// `Debug`, which `unwrap` and a `main` that returns it print, gives what a person needs: the message, its
/// causes, and [`Error::hint`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Why a device, or the settings that it is to be opened with, cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Why a request of the driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Why memory could not be allocated or reached, or a range does not fit.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Why a program could not be loaded, or has no such kernel.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Why a launch, or a node or an argument of a graph, is refused.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Why a queue was not opened, did not take work, or did not complete it.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The object belongs to another device.
    #[error("the {what} belongs to another device")]
    ForeignDevice {
        /// The object.
        what: &'static str,
    },
    /// The device was opened before a fork, by the parent: its rings, memory and timelines are the parent's
    /// alone.
    #[error("the device belongs to process {owner}, and this is process {process}, a fork of it")]
    Forked {
        /// The process that opened the device.
        owner: u32,
        /// The process that made the call.
        process: u32,
    },
    /// The GPU stopped a channel.
    #[error("{0}")]
    Fault(Box<FaultReport>),
    /// The device was lost to an earlier fault.
    #[error("the device was lost to an earlier fault: {0}")]
    Lost(Box<FaultReport>),
}

impl From<CubinError> for Error {
    fn from(error: CubinError) -> Self {
        Self::Program(error.into())
    }
}

/// A message followed by those of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))?;
        match self.hint() {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl Error {
    /// A node that could not be opened.
    pub(crate) fn open(path: &CStr, errno: Nix) -> Self {
        let owner = || {
            let path = std::path::Path::new(path.to_str().ok()?);
            let gid = std::fs::metadata(path).ok()?.gid();
            let known = nix::unistd::Group::from_gid(gid.into()).ok().flatten();
            Some(known.map_or_else(|| gid.to_string(), |group| group.name))
        };
        let group = if matches!(errno, Nix::EACCES | Nix::EPERM) { owner() } else { None };
        Self::Open(OpenError::Node { path: path.into(), group, errno: Errno::of(errno) })
    }

    /// Whether a setting cannot be used: of the environment, or a device's name that a command line has.
    pub fn is_setting(&self) -> bool {
        use OpenError::{Profile, UnknownSelector, UnknownSetting};
        matches!(self, Self::Open(UnknownSelector { .. } | UnknownSetting { .. } | Profile { .. }))
    }

    /// Whether a node is there and this user may not open it.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Open(OpenError::Node { errno, .. }) if matches!(Nix::from_raw(errno.raw()), Nix::EACCES | Nix::EPERM))
    }

    /// A request that the driver refused, or that was given up.
    pub(crate) fn ioctl(e: nvgpu_sys::IoctlError) -> Self {
        let nvgpu_sys::IoctlError { name, request, errno } = e;
        match errno {
            Nix::EINTR => Self::Driver(DriverError::Interrupted { name, request }),
            errno => Self::Driver(DriverError::Ioctl { name, request, errno: Errno::of(errno) }),
        }
    }

    /// Whether a driver answers so to what it does not know or does not offer.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Driver(DriverError::Ioctl { errno, .. }) if matches!(errno.raw(), libc::ENOTTY | libc::EINVAL))
    }

    /// Whether memory or addresses were short.
    pub(crate) fn is_shortage(&self) -> bool {
        match self {
            Self::Driver(DriverError::Ioctl { errno, .. } | DriverError::Mmap { errno, .. }) => {
                Nix::from_raw(errno.raw()) == Nix::ENOMEM
            }
            Self::Driver(DriverError::Status { status, .. }) => {
                matches!(*status, rm_sys::NV_ERR_NO_MEMORY | rm_sys::NV_ERR_INSUFFICIENT_RESOURCES)
            }
            Self::Memory(MemoryError::OutOfAddresses { .. }) => true,
            _ => false,
        }
    }

    /// A desktop driver whose version is not known.
    pub(crate) fn driver(source: rm_sys::VersionError) -> Self {
        Self::Open(OpenError::Driver { source: source.into() })
    }

    /// A launch that the queue metadata cannot express.
    pub(crate) fn qmd(kernel: &str, source: qmd::Error) -> Self {
        Self::Launch(LaunchError::Qmd { kernel: kernel.to_owned(), source: source.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_look_is_told_from_a_wait() {
        let text = |limit| {
            Error::Queue(QueueError::Timeout { limit, wanted: 2, reached: 1, explanation: vec![] })
                .to_string()
        };
        assert!(text(Duration::ZERO).starts_with("the GPU did not finish yet: "));
        assert!(text(Duration::from_secs(3)).starts_with("the GPU did not finish within 3s: "));
    }
}
