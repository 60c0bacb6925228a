#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A module names only modules of smaller numbers.
//!
//! ```text
//! 0 version reduction sked
//! 1 target table::field
//! 2 error table::layout
//! 3 table::v03::fields table::v04::fields
//! 4 table::v03 table::v04
//! 5 table
//! 6 image
//! 7 cache constant_buffer dependent latch release display
//! 8 decode launch
//! 9 problem occupancy
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
