//! The GPU: what happens from the doorbell on. Nothing in here knows of the driver.
//!
//! # Layers
//! ```text
//! host      device engine host_scheduler pbdma  # fetches and schedules the work of channels
//! methods   compute_scheduler methods           # launches, copies, semaphores
//! channels  context flight front interrupts stops submissions units  # state of channels, units that they share
//! memory    gmmu instance memory semaphore syncpoint userd usermode  # address spaces, words in memory
//! words     chip classes counters exception pushbuffer session  # facts and formats
//! sm        sm                                  # streaming multiprocessors, usable alone
//! ```

pub(crate) mod chip;
pub(crate) mod classes;
pub(crate) mod compute_scheduler;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod exception;
pub(crate) mod flight;
pub(crate) mod front;
pub(crate) mod gmmu;
pub(crate) mod host_scheduler;
pub(crate) mod instance;
pub(crate) mod interrupts;
pub(crate) mod memory;
pub(crate) mod methods;
pub(crate) mod pbdma;
pub(crate) mod pushbuffer;
pub(crate) mod semaphore;
pub(crate) mod session;
pub mod sm;
pub(crate) mod stops;
pub(crate) mod submissions;
pub(crate) mod syncpoint;
pub(crate) mod units;
pub(crate) mod userd;
pub(crate) mod usermode;
