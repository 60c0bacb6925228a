//! A batch step: tokens of any sequences that read the weights together.
//!
//! `buffers` holds what a step computes with, `lower` makes its launches, `steps` records them.

mod buffers;
mod lower;
mod steps;

pub use lower::Launches;
pub use steps::{Column, LEAST_CHUNK, MOST_COLUMNS, Steps, To};
