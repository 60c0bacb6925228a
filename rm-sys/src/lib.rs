//! The part of the desktop GPU driver's ABI that hcq needs.
//!
//! Facts, nothing else: structs and numbers of the driver's resource manager (`/dev/nvidiactl`, `/dev/nvidiaN`) and of
//! its memory module (`/dev/nvidia-uvm`), [`Escape`], [`Control`] and [`Uvm`] that tie each number to its struct,
//! [`Status`] that says in words what the driver answered, and [`Release`], because layouts differ between releases.
//!
//! ```
//! use rm_sys::{Control, Escape, NVOS54_PARAMETERS, NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, Release, Status};
//!
//! let release = Release::of("580.159.04".parse()?)?;
//! assert_eq!(release, Release::R580);
//! assert_eq!(NVOS54_PARAMETERS::REQUEST, 0xc020_462a);
//! assert_eq!(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS::COMMAND, 0xa06c_0101);
//! assert_eq!(Status(0x51).to_string(), "no memory (NV_ERR_NO_MEMORY, 0x51)");
//! # Ok::<(), rm_sys::VersionError>(())
//! ```
//!
//! The bindings are generated from `include/*.h`, which this project wrote, and committed: a plain build needs no libclang. The
//! feature `bindgen` generates them anew.

/// Defaults of structs whose arrays are too long for `derive(Default)`: all zero.
macro_rules! zeroed {
    ($($ty:ident),* $(,)?) => { $(
        impl Default for $ty {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )* };
}

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
#[rustfmt::skip]
mod bindings;
mod bits;
mod requests;
mod status;
mod version;

pub use bindings::*;
pub use bits::*;
pub use requests::*;
pub use status::{STATUSES, Status};
pub use version::{Release, VERSION_FILE, VERSION_TEXT_FILE, Version, VersionError};
