//! ABI of the Tegra nvgpu and nvmap kernel drivers, and the one seam through which it is called.
//!
//! Facts, nothing else: the structs and numbers of the L4T r36.4 headers, [`Ioctl`] that ties each request number to
//! its argument, and [`Sys`], the trait through which every system call on a GPU node goes ([`Linux`] is the real one).
//!
//! ```no_run
//! use nix::fcntl::OFlag;
//! use nvgpu_sys::{Linux, Sys, call, nvgpu_gpu_get_characteristics, nvgpu_gpu_characteristics};
//! use std::os::fd::AsFd;
//!
//! let ctrl = Linux.open(c"/dev/nvgpu/igpu0/ctrl", OFlag::O_RDWR)?;
//! let mut gpu = nvgpu_gpu_characteristics::default();
//! let mut args = nvgpu_gpu_get_characteristics {
//!     gpu_characteristics_buf_size: size_of_val(&gpu) as u64,
//!     gpu_characteristics_buf_addr: (&raw mut gpu).expose_provenance() as u64,
//! };
//! // SAFETY: the address is that of `gpu`, which outlives the call and is as long as stated.
//! unsafe { call(&Linux, ctrl.as_fd(), &mut args) }?;
//! println!("architecture {:#x}, SM version {:#x}", gpu.arch, gpu.sm_arch_sm_version);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The bindings are generated from `include/*.h`, which this project wrote, and committed: a plain build needs no libclang. The
//! feature `bindgen` generates them anew; with `NVGPU_UAPI_DIR` naming a folder of kernel headers it generates the
//! module `host` from those instead.

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
mod mark;
mod overlay;
mod query;
mod requests;
mod sys;

/// The kernel headers of `NVGPU_UAPI_DIR`, as they are: with unions and pointers, and without the `Ioctl` traits.
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
pub use mark::{TRACE_MARK, TraceMark};
pub use overlay::{OVERLAYS, Overlay};
pub use query::{characteristics, sm_error_state};
pub use requests::*;
pub use sys::{BY_VALUE, Linux, Sys};
