#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! files   reader writer    # a dump from its bytes, and back
//! parts   error rows       # the rows of the tables, and what is wrong with a file
//! values  exception model  # a dump as data
//! ```

#![forbid(unsafe_code)]

mod error;
mod exception;
mod model;
mod reader;
mod rows;
mod writer;

pub use error::Error;
pub use exception::Exception;
pub use model::{
    Block, Call, Context, CoreDump, Device, Generator, Grid, Lane, LocalMemory, MemoryRange, Module, Sm, Warp,
};
