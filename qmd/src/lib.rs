#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! launch  decode launch occupancy problem  # a launch to a QMD, and back
//! parts   cache constant_buffer dependent display latch release  # groups of fields
//! image   image                            # the bytes of a QMD
//! table   error table                      # fields of each version, and errors
//! values  reduction sked target version    # versions and codes
//! ```

#![forbid(unsafe_code)]

mod cache;
mod constant_buffer;
mod decode;
mod dependent;
mod display;
mod error;
mod image;
mod latch;
mod launch;
mod occupancy;
mod problem;
mod reduction;
mod release;
mod sked;
mod table;
mod target;
mod version;

pub use cache::{Invalidate, Membar, SamplerIndex};
pub use constant_buffer::{
    CONSTANT_BUFFER_ALIGN, CONSTANT_BUFFER_MAX, CONSTANT_BUFFERS, ConstantBuffer, ConstantPrefetch,
};
pub use decode::CarveOuts;
pub use dependent::{Dependent, DependentAction};
pub use display::{Entry, Unnamed};
pub use error::{Axis, Error};
pub use image::{Qmd, field, fields};
pub use launch::{
    LOCAL_UNIT, LOCAL_WINDOW, Launch, MAX_BARRIERS, MAX_BLOCK, MAX_GRID, MAX_REGISTERS, MAX_THREADS,
    PROGRAM_ALIGN, SHARED_UNIT, SharedMemory,
};
pub use occupancy::{Limit, Occupancy, occupancy};
pub use problem::{CarveOutField, Effect, Problem};
pub use reduction::{Reduction, ReductionOp};
pub use release::{RELEASES, Release, Structure, Trap};
pub use sked::SkedCheck;
pub use table::field::{Field, Values};
pub use table::{v03, v04};
pub use target::{RESERVED_SHARED_BYTES, Target};
pub use version::{ALIGN, Version};
