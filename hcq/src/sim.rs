//! The software ga10b: devices on one that the program has configured, and the one that a device is.
//!
//! The types of `ga10b_sim` are that crate's own: this module is for tests and tools that measure or steer
//! the model.
//!
//! ```
//! use ga10b_sim::{Sim, SimConfig};
//! use hcq::DeviceOptions;
//!
//! let sim = Sim::new(SimConfig::default());
//! let device = hcq::sim::open(sim.clone(), DeviceOptions::default())?;
//! device.alloc(4096)?;
//! assert!(sim.violations().is_empty());
//! # Ok::<(), hcq::Error>(())
//! ```

use std::sync::Arc;

use ga10b_sim::Sim;

use crate::device::Device;
use crate::error::Error;
use crate::options::DeviceOptions;

/// Opens a device on `sim`.
///
/// # Errors
/// As [`Device::open`].
pub fn open(sim: Arc<Sim>, options: DeviceOptions) -> Result<Device, Error> {
    Device::over_sim(sim, options)
}

/// The software ga10b that `device` is on; `None` for a device of another kind.
pub fn of(device: &Device) -> Option<Arc<Sim>> {
    device.software().cloned()
}
