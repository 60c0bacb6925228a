//! The SM interpreter through its public interface.

mod asm;
mod cubin;
mod faults;
mod golden;
mod guest;
mod kernels;
mod waiting;
