//! `hcq` for C and C++: the functions of `include/hcq.h`, which a test generates from this crate.
//!
//! Handles are numbers in the guise of pointers. A registry for each kind maps them to objects, so that one that is
//! null, freed or of another kind is an error with a name. Every function is a closure in `call::call`, which
//! makes codes of errors and of panics, and keeps the text for `hcq_last_error`.
//!
//! # Safety
//! What pointers to data must be is said once, at the head of `hcq.h`: each points to as many values as the call
//! takes, which nothing else changes meanwhile; where the call writes, nothing else reads either. A launch, and
//! a patch of arguments, promises what [`hcq::Queue::launch`] asks for. Handles need no promise.
//!
//! # Layers
//!
//! ```text
//! work    graph queue           # recorded and submitted work
//! parts   args launch point program buffer device  # what work is made of
//! border  errors handle call    # from C to Rust and back
//! facts   failure registry forks status  # why a call fails, handles, codes
//! ```

#![allow(clippy::missing_safety_doc, reason = "said above for all functions at once")]

mod args;
mod buffer;
mod call;
mod device;
mod errors;
mod failure;
mod forks;
mod graph;
mod handle;
mod launch;
mod point;
mod program;
mod queue;
mod registry;
mod status;

pub use args::*;
pub use buffer::*;
pub use device::*;
pub use errors::*;
pub use graph::*;
pub use launch::*;
pub use point::*;
pub use program::*;
pub use queue::*;
pub use status::hcq_status;
