#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! requests  layer overlay query requests  # requests with their types, and what one asks of a device
//! calls     ioctl sys                     # system calls
//! data      bindings                      # structs and numbers
//! ```

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_offset_with_cast,
    reason = "generated"
)]
#[rustfmt::skip]
mod bindings;
mod ioctl;
mod layer;
mod overlay;
mod query;
mod requests;
mod sys;

/// The kernel headers of `NVGPU_UAPI_DIR`, as they are: with unions and pointers, and without the `Ioctl`
/// traits.
#[cfg(nvgpu_uapi)]
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
pub mod host {
    include!(concat!(env!("OUT_DIR"), "/host.rs"));
}

pub use bindings::*;
pub use ioctl::{Ioctl, IoctlError, call};
pub use layer::Layer;
pub use overlay::{OVERLAYS, Overlay};
pub use query::{characteristics, sm_error_state};
pub use requests::*;
pub use sys::{BY_VALUE, Linux, MEMORY_NODE, Sys, open_nvmap};
