//! Queue metadata (QMD): the structure that describes one kernel launch to the compute scheduler of an NVIDIA GPU.
//!
//! Versions 3.0 (Ampere, 256 bytes) and 4.0 (Hopper, 384 bytes). The types to know:
//!
//! - [`Launch`] takes a launch in the caller's units, refuses what the hardware would refuse or hang on, and builds a
//! - [`Qmd`], the bytes for GPU memory, which reads every parameter back ([`Qmd::grid`], [`Qmd::constant_buffer`],
//!   [`Qmd::release`], ...), prints itself field by field, and lists its [`problems`](Qmd::problems);
//! - [`Field`], one bit range; the tables are in [`v03`] and [`v04`].
//!
//! ```
//! use qmd::{ConstantBuffer, Invalidate, Launch, Membar, Qmd, Release, Target};
//!
//! let qmd = Launch::new(Target::Sm87)
//!     .program(0x12_3450_0080, 512)
//!     .grid([1000, 1, 1])
//!     .block([256, 1, 1])
//!     .registers(40)
//!     .constant_buffer(0, ConstantBuffer::new(0x12_3456_7000, 0x190).invalidated())
//!     .invalidate(Invalidate::SHADER_DATA)
//!     .membar(Membar::System)
//!     .release(0, Release::new_u64(0x10_0000_1000, 6).with_timestamp())
//!     .build()?;
//! assert_eq!(qmd.as_bytes().len(), 256);
//!
//! let read = Qmd::from_bytes(qmd.as_bytes())?;
//! assert_eq!(read.grid(), [1000, 1, 1]);
//! assert_eq!(read.constant_buffer(0).unwrap().len, 0x190);
//! # Ok::<(), qmd::Error>(())
//! ```
//!
//! Sources: the public class headers `clc7c0qmd.h` and `clcbc0qmd.h` of NVIDIA's open-gpu-doc for the fields; what
//! their values must be is said where it is enforced.

#![forbid(unsafe_code)]

mod cache;
mod constant_buffer;
mod decode;
mod dependent;
mod display;
mod error;
mod field;
mod image;
mod launch;
mod layout;
mod occupancy;
mod problem;
mod release;
mod sked;
mod target;
pub mod v03;
pub mod v04;
mod values;

pub use cache::{Invalidate, Membar, SamplerIndex};
pub use constant_buffer::{
    CONSTANT_BUFFER_ALIGN, CONSTANT_BUFFER_MAX, CONSTANT_BUFFERS, ConstantBuffer, ConstantPrefetch,
};
pub use decode::CarveOuts;
pub use dependent::{Dependent, DependentAction};
pub use display::{Entry, Unnamed};
pub use error::{Axis, Error};
pub use field::{Field, Values};
pub use image::{ALIGN, Qmd, Version};
pub use launch::{
    LOCAL_UNIT, LOCAL_WINDOW, Launch, MAX_BARRIERS, MAX_BLOCK, MAX_GRID, MAX_REGISTERS, MAX_THREADS,
    PROGRAM_ALIGN, SHARED_UNIT, SharedMemory,
};
pub use occupancy::{Limit, Occupancy, occupancy};
pub use problem::{CarveOutField, Effect, Problem};
pub use release::{RELEASES, Reduction, ReductionOp, Release, Structure, Trap};
pub use sked::SkedCheck;
pub use target::{RESERVED_SHARED_BYTES, Target};
