//! The SM interpreter through its public interface.

mod asm;
mod golden;
mod guest;
