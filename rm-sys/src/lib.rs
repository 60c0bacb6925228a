#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! requests  requests status        # requests with their types, and their answers
//! data      bindings bits version  # structs, numbers, releases
//! ```

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
