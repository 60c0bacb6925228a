//! Why memory could not be allocated or reached.

use crate::address::{Bytes, GpuVa};
use crate::error::Error;

/// Why memory could not be allocated or reached, or a range does not fit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Memory is used up, or there is less in all than was asked for.
    #[error("cannot allocate {} for a {what}{}", Bytes(*len), room(*free, *total))]
    OutOfMemory {
        /// Its purpose: "buffer", "program", "command ring", ...
        what: &'static str,
        /// The bytes that the driver was asked for: for small objects that of the memory they share.
        len: u64,
        /// The bytes that could be allocated when the call failed, where the driver says.
        free: Option<u64>,
        /// All bytes of that kind, where the driver says.
        total: Option<u64>,
        /// The call that failed.
        source: Box<Error>,
    },
    /// The process may not map so much into its own address space, whatever memory the GPU has.
    #[error(
        "cannot map {} for a {what} into the process, which may map {} (RLIMIT_AS) and has mapped {}",
        Bytes(*len),
        round(*limit),
        round(*used)
    )]
    ProcessLimit {
        /// Its purpose, as that of [`OutOfMemory`](Self::OutOfMemory).
        what: &'static str,
        /// The bytes that the driver was asked for.
        len: u64,
        /// Bytes that the process may map.
        limit: u64,
        /// Bytes that it had mapped when the call failed.
        used: u64,
        /// The call that failed.
        source: Box<Error>,
    },
    /// No free range of addresses is long enough.
    #[error("no {} of GPU addresses left", Bytes(*len))]
    OutOfAddresses {
        /// The length asked for, in bytes.
        len: u64,
    },
    /// A mapping would overlap a window the hardware claims for itself.
    #[error("{} at {va} overlaps the {window} window", Bytes(*len))]
    InWindow {
        /// The address asked for.
        va: GpuVa,
        /// The length asked for, in bytes.
        len: u64,
        /// Which window.
        window: &'static str,
    },
    /// A fixed address range is not free, not aligned or outside the address space.
    #[error(
        "{} at {va} cannot be reserved: the range must be free, page-aligned and inside the address space",
        Bytes(*len)
    )]
    AddressTaken {
        /// The address asked for.
        va: GpuVa,
        /// The length asked for, in bytes.
        len: u64,
    },
    /// A length or offset does not fit the object it is used on.
    #[error("{what}: {len} bytes at offset {offset} do not fit {}", Bytes(*size))]
    OutOfBounds {
        /// The object.
        what: &'static str,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the object in bytes.
        size: u64,
    },
    /// The CPU cannot reach memory it was to read or write.
    #[error("the memory at {va} has no CPU mapping")]
    NotMapped {
        /// Where it is.
        va: GpuVa,
    },
    /// A buffer of no bytes was asked for.
    #[error("a buffer needs at least one byte")]
    EmptyBuffer,
    /// A copy would read what it writes.
    #[error("{len} bytes at offset {from} and at offset {to} of one buffer overlap")]
    Overlap {
        /// First byte to read.
        from: u64,
        /// First byte to write.
        to: u64,
        /// Bytes to copy.
        len: u64,
    },
}

/// How much memory there is.
fn room(free: Option<u64>, total: Option<u64>) -> String {
    match (free, total) {
        (Some(free), Some(total)) => format!(": {} of {} are free", round(free), round(total)),
        (None, Some(total)) => format!(": the device has {}", round(total)),
        _ => String::new(),
    }
}

/// In MiB, unless there is less.
fn round(bytes: u64) -> Bytes {
    const MIB: u64 = 1 << 20;
    Bytes(if bytes < MIB { bytes } else { bytes / MIB * MIB })
}
