//! Holds the software ga10b to a real GPU: the same programs with the same inputs on both, every output word
//! compared.
//!
//! [`Case`]s are [`random`] programs, for which the CPU also says what is right, and the kernels of the
//! [`corpus`] that the disassembler is tested with, and the approximations of the special-function unit
//! ([`mufu`]): only where these are used may results differ, by a stated bound. Others are the device
//! suite's kernels ([`suite`]), [`exchange`] between warps and blocks, and [`links`] between launches.
//! `hcq-conform` runs them; those of the language model are `llm-conform`'s.

mod case;
pub mod convergence;
pub mod corpus;
mod cubins;
pub mod drive;
pub mod edges;
pub mod exchange;
pub mod links;
pub mod matrix;
mod model_kernels;
pub mod mufu;
pub(crate) mod noise;
pub mod program;
mod programs;
pub mod random;
pub(crate) mod report;
pub(crate) mod runner;
pub mod suite;
pub mod sweep;
mod tolerance;
pub mod warpgroup;

pub use case::{Arg, BufferNumber, Case, Link, Place, Slack, Work};
pub use noise::Noise;
pub use programs::{cases, check, regenerate};
pub use report::{Comparison, Difference, Totals};
pub use runner::Runner;
pub use tolerance::{Tolerance, Verdict};
