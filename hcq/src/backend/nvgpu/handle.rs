//! Descriptors of the driver, closed through the same seam they were opened through.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nvgpu_sys::{Ioctl, Sys, call};

use crate::error::{DriverError, Error};

/// An open descriptor.
#[derive(Debug)]
pub(super) struct Handle {
    fd: ManuallyDrop<OwnedFd>,
    sys: Arc<dyn Sys>,
}

impl Handle {
    /// Takes over an open descriptor.
    pub fn new(sys: &Arc<dyn Sys>, fd: OwnedFd) -> Self {
        Self { fd: ManuallyDrop::new(fd), sys: sys.clone() }
    }

    /// Takes over a descriptor that the request `name` returned.
    pub fn from_answer(sys: &Arc<dyn Sys>, name: &'static str, fd: RawFd) -> Result<Self, Error> {
        if fd < 0 {
            return Err(Error::Driver(DriverError::Answer {
                name,
                value: u64::from(fd.cast_unsigned()),
                expected: "a descriptor",
            }));
        }
        // SAFETY: the driver has just opened this descriptor for the caller of the request, and nobody else
        // knows it.
        let handle = Self::new(sys, unsafe { OwnedFd::from_raw_fd(fd) });
        if fd != 0 {
            return Ok(handle);
        }
        // The driver takes descriptor 0 for "none"; a process without standard input gets it. Cloning avoids
        // 0 to 2.
        let other = handle.as_fd().try_clone_to_owned().map_err(|e| {
            Error::Driver(DriverError::Answer {
                name,
                value: e.raw_os_error().unwrap_or(0).unsigned_abs().into(),
                expected: "a descriptor that can be duplicated",
            })
        })?;
        Ok(Self::new(sys, other))
    }

    /// The number, for requests that take another object's descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The implementation of the system calls.
    pub fn sys(&self) -> &dyn Sys {
        &*self.sys
    }

    /// Sends a request.
    ///
    /// # Safety
    /// As for [`nvgpu_sys::call`].
    pub unsafe fn send<A: Ioctl>(&self, args: &mut A) -> Result<(), Error> {
        // SAFETY: passed on to the caller.
        match unsafe { call(&*self.sys, self.as_fd(), args) }.map_err(Error::ioctl)? {
            0 => Ok(()),
            // The driver returns the number of bytes it could not copy to a pointer inside the arguments.
            left => Err(Error::Driver(DriverError::Answer {
                name: A::NAME,
                value: u64::from(left.cast_unsigned()),
                expected: "0",
            })),
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is going, so the descriptor is not used again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Err(errno) = self.sys.close(fd) {
            tracing::warn!(%errno, "a descriptor of the driver could not be closed");
        }
    }
}
