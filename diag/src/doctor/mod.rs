//! Is this machine set up right? Checks over what the kernel tells in files, each with its remedy.
//!
//! Nothing is read here: [`Machine`] is what the checks look at, a real one in the binary and a made-up one in tests.

mod desktop;
mod examine;
mod jetson;
mod machine;
pub(crate) mod surroundings;

pub use examine::{Diagnosis, Platform, examine};
pub use machine::{Check, Machine, Node, Status};
pub use surroundings::Surroundings;
