//! Builds PTX from typed registers and pointers that carry their proven alignment, compiles it with `ptxas`
//! and caches the result.
//!
//! The types to know: [`Kernel`] writes one kernel's body, [`Pointer`] is an address with alignment facts (a
//! vector access is emitted only where they prove it safe, and split otherwise), [`Module`] is the text for
//! one [`Target`], and [`Ptxas`] compiles it.
//!
//! ```
//! use ptxgen::{Kernel, Module, Special, Target};
//!
//! let k = Kernel::new("scale");
//! let x = k.param_ptr::<f32>("x", 16);
//! let count = k.param::<u32>("count");
//! let factor = k.param::<f32>("factor");
//! let i = k.mad(k.special(Special::CtaidX), k.special(Special::NtidX), k.special(Special::TidX));
//! k.if_(k.lt(i, count), || {
//!     let at = k.at(x, i);
//!     k.store(at, k.mul(k.load(at), factor));
//! });
//! let mut module = Module::new(Target::Sm87);
//! module.add(k);
//! assert!(module.text().contains("mul.rn.f32"));
//! ```
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
