//! Is this machine set up right? Checks of files in which the kernel reports its state, each with its remedy.
//!
//! Nothing is read here: the checks read a [`Machine`]: a real one in the binary, a written one in tests.

mod desktop;
mod driver;
mod examine;
mod jetson;
mod machine;
mod release;
mod speed;
pub(crate) mod surroundings;

pub use examine::{Diagnosis, Platform, examine, is_software};
pub(crate) use machine::meminfo;
pub use machine::{Check, Machine, Node, Status, Unread};
pub use surroundings::Surroundings;
