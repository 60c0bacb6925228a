//! Cubins as files: sections, functions, and what the compiler says of each kernel.
//!
//! ELF objects of machine 190. The format is not documented by NVIDIA; what is read here is what loaders of
//! public projects agree on and what ptxas 11 to 13 writes.
//!
//! ```
//! let bytes = std::fs::read("tests/data/01_vecadd.sm_87.cubin")?;
//! let file = hcq::cubin::File::parse(&bytes)?;
//! let kernel = file.kernels().next().expect("a kernel");
//! let needs = file.resources(&kernel)?;
//! println!("sm_{}: {} takes {:?} registers", file.sm(), kernel.name, needs.registers);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod attributes;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod image;
pub(crate) mod lines;
pub(crate) mod loader;
pub(crate) mod reference;
pub(crate) mod relocated;
pub(crate) mod resources;
#[cfg(feature = "sim")]
pub(crate) mod shared;
pub(crate) mod stack;

pub use error::CubinError;
pub use file::{File, Function, Section};
pub use image::{Compression, Image, ImageKind, images};
pub use lines::{Lines, SourceLine};
pub use reference::{Part, Reference};
pub use resources::{Bank, Parameter, Resources};
