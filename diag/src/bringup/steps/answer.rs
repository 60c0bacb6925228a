//! What a driver answered.

use nix::errno::Errno;

/// What the driver answered, where it refused a request or a mapping.
pub fn refused(error: &anyhow::Error) -> Option<Errno> {
    error.chain().find_map(|cause| match cause.downcast_ref::<hcq::Error>() {
        Some(hcq::Error::Driver(hcq::DriverError::Ioctl { errno, .. })) => Some(Errno::from_raw(errno.raw())),
        _ => cause.downcast_ref().copied(),
    })
}
