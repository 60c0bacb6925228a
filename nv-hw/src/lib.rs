#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A module names only modules of smaller numbers.
//!
//! ```text
//! 0 names qmd_version
//! 1 field sm class::number fault::driver fault::front_end fault::host fault::mmu fault::sm
//! 2 cubin_target class::method fault::hww_esr
//! 3 class::c76f class::c7b5 class::c7c0 class::c86f class::c8b5 class::cbc0 fault
//! 4 class
//! ```

#![no_std]
#![forbid(unsafe_code)]

pub mod class;
mod cubin_target;
pub mod fault;
mod field;
mod names;
mod qmd_version;
mod sm;

pub use cubin_target::CubinTarget;
pub use field::Field;
pub use names::{Names, bit_names, name, number};
pub use qmd_version::{QMD_ALIGN, QmdVersion};
pub use sm::{Encoding, Sm};
