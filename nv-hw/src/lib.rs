#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! tables  class fault                  # methods of classes, codes of faults
//! chips   cubin_target qmd_version sm  # SM versions and what follows from them
//! names   field names shown            # fields of words, tables of names, names of others
//! ```

#![no_std]
#![forbid(unsafe_code)]

pub mod class;
mod cubin_target;
pub mod fault;
mod field;
mod names;
mod qmd_version;
mod shown;
mod sm;

pub use cubin_target::CubinTarget;
pub use field::Field;
pub use names::{Names, bit_names, name, number};
pub use qmd_version::{QMD_ALIGN, QmdVersion};
pub use shown::{Shown, is_obeyed};
pub use sm::{Encoding, Sm};
