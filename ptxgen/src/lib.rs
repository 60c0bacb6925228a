#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod async_copy;
mod builder;
mod cache;
mod error;
mod manifest;
mod matrix;
mod memory;
mod module;
mod ops;
mod pointer;
mod ptxas;
mod reg;
mod ty;
mod warp;

pub use builder::{Contract, Kernel, Label, Loop, Param, Special};
pub use cache::KernelCache;
pub use error::Error;
pub use manifest::{Cubin, Manifest, Mismatch, Named, sha256};
pub use matrix::{Accumulator, TileA, TileB, Transpose};
pub use memory::{Access, Atomic, Cache, Layout};
pub use module::{Module, Target, Version};
pub use ops::Round;
pub use pointer::{Alignment, Global, Multiple, Pointer, Shared, Space};
pub use ptxas::Ptxas;
pub use reg::{Operand, Pred, Reg};
pub use ty::{Bool, Class, Element, F16x2, Float, Int, Kind, Number, Ordered, Ty, Word};
pub use warp::{Reduce, Shuffle};
