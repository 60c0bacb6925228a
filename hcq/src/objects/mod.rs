//! Objects of an open device: buffers, programs and arguments, and what all of them share.

pub(crate) mod args;
pub(crate) mod buffer;
pub(crate) mod program;
pub(crate) mod shared;
pub(crate) mod staging;
