//! Why a request of the driver failed.

use crate::address::Bytes;
use crate::errno::Errno;

/// Why a request of the driver failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The driver refused a request.
    #[error("{name} ({request:#010x}) failed")]
    Ioctl {
        /// The request as the kernel headers spell it.
        name: &'static str,
        /// Its number.
        request: u32,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// The driver answered a request with something that cannot be used.
    #[error("{name} returned {value:#x}, expected {expected}")]
    Answer {
        /// The request.
        name: &'static str,
        /// What came back.
        value: u64,
        /// What would have been right.
        expected: &'static str,
    },
    /// A CPU mapping could not be made.
    #[error("cannot map {} of {what} into the process", Bytes(*len))]
    Mmap {
        /// What was to be mapped.
        what: &'static str,
        /// How many bytes of it.
        len: u64,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// A call into the desktop driver came back with a status other than success.
    #[error("the driver refused {call}: {}", rm_sys::Status(*status))]
    Status {
        /// The class, control or call as the driver's headers spell it.
        call: &'static str,
        /// `NV_STATUS`.
        status: u32,
    },
    /// Signals interrupted a request again and again, for as long as the device's patience.
    #[error("{name} ({request:#010x}) was interrupted by signals for as long as the device's patience")]
    Interrupted {
        /// The request as the kernel headers spell it.
        name: &'static str,
        /// Its number.
        request: u32,
    },
}
