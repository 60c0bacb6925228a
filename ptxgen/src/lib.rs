#![doc = include_str!("../README.md")]
//!
//! # Layers
//! ```text
//! compiler    cache manifest ptxas  # kernels compiled, and kept
//! operations  address async_copy bulk_copy matrix mbarrier memory ops params policy warp warpgroup  # instructions
//! builder     builder module        # kernels and modules as they grow
//! values      alignment error layout pointer reg target ty  # registers, types, targets
//! ```
#![forbid(unsafe_code)]

mod address;
mod alignment;
mod async_copy;
mod builder;
mod bulk_copy;
mod cache;
mod error;
mod layout;
mod manifest;
mod matrix;
mod mbarrier;
mod memory;
mod module;
mod ops;
mod params;
mod pointer;
mod policy;
mod ptxas;
mod reg;
mod target;
mod ty;
mod warp;
mod warpgroup;

pub use alignment::Alignment;
pub use builder::{Contract, Kernel, Label, Loop, Param, Special};
pub use bulk_copy::BulkLength;
pub use cache::KernelCache;
pub use error::Error;
pub use layout::{Access, Layout};
pub use manifest::{Cubin, Manifest, Mismatch, Named, sha256};
pub use matrix::{Accumulator, ByteA, ByteB, IntAccumulator, TileA, TileB, Transpose};
pub use mbarrier::{Mbarrier, Poll};
pub use memory::{Atomic, Cache};
pub use module::Module;
pub use ops::{Permute, Round};
pub use params::{Argument, Declared, Late, Nullable, ParamType, Params, Ptr};
pub use pointer::{Global, Multiple, Pointer, Shared, Space};
pub use policy::{Evict, Policy};
pub use ptxas::Ptxas;
pub use reg::{Operand, Pred, Reg};
pub use target::{Target, Version};
pub use ty::{Bool, Class, Element, F16x2, Float, Int, Kind, Number, Ordered, Ty, Word};
pub use warp::{Reduce, Shuffle};
pub use warpgroup::{SharedRows, WarpgroupSums};
