//! The software ga10b: a GPU model behind the nvgpu driver's system calls.

pub mod sm;
