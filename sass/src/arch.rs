//! The instruction sets this crate knows.

pub use nv_hw::{Encoding, Sm as Arch};
