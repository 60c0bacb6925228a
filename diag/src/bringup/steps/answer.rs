//! Errnos of a driver's answers.

use nix::errno::Errno;

/// Returns the driver's errno, where it refused a request or a mapping.
pub fn refused(error: &anyhow::Error) -> Option<Errno> {
    error.chain().find_map(|cause| match cause.downcast_ref::<hcq::Error>() {
        Some(hcq::Error::Driver(hcq::DriverError::Ioctl { errno, .. })) => Some(Errno::from_raw(errno.raw())),
        _ => cause.downcast_ref().copied(),
    })
}
