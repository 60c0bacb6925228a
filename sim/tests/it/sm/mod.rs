//! The SM interpreter through its public interface.

pub mod asm;
mod bulk;
mod checks;
mod cubin;
mod faults;
mod golden;
mod guest;
mod kernels;
mod races;
mod refused;
mod unwritten;
mod waiting;
mod warpgroup;
