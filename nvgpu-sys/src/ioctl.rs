//! Ties each request number to its argument struct, and sends it.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::sys::Sys;

/// One ioctl: its name, its request number and its argument struct, tied together once.
///
/// # Safety
/// The driver must serve `REQUEST` with exactly this struct.
pub unsafe trait Ioctl: FromBytes + IntoBytes + Immutable {
    /// As the kernel headers spell it; errors and traces print it.
    const NAME: &'static str;
    /// The 32-bit request number: direction, size, magic and number.
    const REQUEST: u32;
}

/// The driver refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} ({request:#010x}) failed")]
pub struct IoctlError {
    /// As the kernel headers spell it.
    pub name: &'static str,
    /// The request number.
    pub request: u32,
    /// The driver's answer.
    #[source]
    pub errno: Errno,
}

/// Sends the request that `A` is the argument of; the driver's answers are in `args` afterwards.
///
/// Calls that a signal interrupted are sent again, for as long as [`Sys::patience`] says.
///
/// # Errors
/// [`IoctlError`] with the name, the number and the errno; `EINTR` after the patience.
///
/// # Safety
/// Addresses and descriptors in `args` must be valid for the driver's use of them, for as long as it lasts.
pub unsafe fn call<A: Ioctl>(sys: &dyn Sys, fd: BorrowedFd<'_>, args: &mut A) -> Result<i32, IoctlError> {
    let mut interrupted = None;
    loop {
        // SAFETY: `Ioctl` ties the struct to the request; the caller vouches for what its fields name.
        match unsafe { sys.ioctl(fd, A::REQUEST, args.as_mut_bytes()) } {
            Err(Errno::EINTR) if interrupted.get_or_insert_with(Instant::now).elapsed() < sys.patience() => {
                std::thread::yield_now();
            }
            Ok(value) => return Ok(value),
            Err(errno) => return Err(IoctlError { name: A::NAME, request: A::REQUEST, errno }),
        }
    }
}
