//! The GPU.

pub(crate) mod compute_scheduler;
pub(crate) mod device;
pub(crate) mod exception;
pub(crate) mod gmmu;
pub(crate) mod memory;
pub(crate) mod methods;
pub(crate) mod pbdma;
pub(crate) mod semaphore;
pub mod sm;
pub(crate) mod syncpoint;
