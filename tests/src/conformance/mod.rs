//! Holds the software ga10b to a real GPU: the same programs with the same inputs on both, every output word
//! compared.
//!
//! [`Case`]s are [`random`] programs, for which the CPU also says what is right, and the kernels of the
//! [`corpus`] that the disassembler is tested with, and the approximations of the special-function unit
//! ([`mufu`]): only where these are used may results differ, by a stated bound. Others are the repository's own
//! kernels ([`built_in`]), [`exchange`] between warps and blocks, [`links`] between launches, and whole
//! [`decode`] steps of small models, of several sequences too ([`columns`]). `hcq-conform` runs them.

mod architectures;
mod attentions;
pub mod built_in;
mod caches;
mod case;
mod column_kernels;
mod column_steps;
pub mod columns;
pub mod convergence;
pub mod corpus;
mod cubins;
pub mod decode;
mod drive;
pub mod edges;
pub mod exchange;
pub mod links;
pub mod matrix;
mod mixtures;
mod model_kernels;
pub mod mufu;
pub(crate) mod noise;
mod products;
mod programs;
pub mod random;
pub(crate) mod report;
pub(crate) mod runner;
mod steps;
pub mod sweep;
mod tolerance;
pub mod warpgroup;
mod weights;

pub use case::{Arg, Case, Link, Modelled, Place, Slack};
pub use column_steps::ColumnSteps;
pub use noise::Noise;
pub use programs::{cases, check, regenerate};
pub use report::{Comparison, Difference, Totals};
pub use runner::Runner;
pub use steps::Steps;
pub use tolerance::{Tolerance, Verdict};
