#![doc = include_str!("../README.md")]
//!
//! # Layers
//! ```text
//! 0  alignment error target ty
//! 1  layout ptxas reg
//! 2  pointer
//! 3  builder
//! 4  address async_copy matrix memory module ops warp
//! 5  manifest
//! 6  cache
//! ```
#![forbid(unsafe_code)]

mod address;
mod alignment;
mod async_copy;
mod builder;
mod cache;
mod error;
mod layout;
mod manifest;
mod matrix;
mod memory;
mod module;
mod ops;
mod pointer;
mod ptxas;
mod reg;
mod target;
mod ty;
mod warp;

pub use alignment::Alignment;
pub use builder::{Contract, Kernel, Label, Loop, Param, Special};
pub use cache::KernelCache;
pub use error::Error;
pub use layout::{Access, Layout};
pub use manifest::{Cubin, Manifest, Mismatch, Named, sha256};
pub use matrix::{Accumulator, TileA, TileB, Transpose};
pub use memory::{Atomic, Cache};
pub use module::Module;
pub use ops::Round;
pub use pointer::{Global, Multiple, Pointer, Shared, Space};
pub use ptxas::Ptxas;
pub use reg::{Operand, Pred, Reg};
pub use target::{Target, Version};
pub use ty::{Bool, Class, Element, F16x2, Float, Int, Kind, Number, Ordered, Ty, Word};
pub use warp::{Reduce, Shuffle};
