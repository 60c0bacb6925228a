//! The seam below this crate: devices whose system calls go through an implementation of [`Sys`] that the
//! caller brings, such as a tracer or a fault injector.
//!
//! [`Sys`] belongs to `nvgpu-sys` and follows the driver's ABI; it may change in any release of this crate.

use std::sync::Arc;

use nvgpu_sys::Sys;

use crate::backend::kernel_log::NoLog;
use crate::device::Device;
use crate::error::Error;
use crate::info::BackendKind;
use crate::options::DeviceOptions;

/// Opens a Jetson's GPU through `sys`.
///
/// # Errors
/// As [`Device::open`].
pub fn open_nvgpu(sys: Arc<dyn Sys>, options: DeviceOptions) -> Result<Device, Error> {
    Device::over(sys, BackendKind::Nvgpu, Box::new(NoLog), options)
}

/// Opens a desktop GPU through `sys`.
///
/// # Errors
/// As [`Device::open`].
pub fn open_rm(sys: Arc<dyn Sys>, options: DeviceOptions) -> Result<Device, Error> {
    Device::over_rm(sys, Box::new(NoLog), options)
}

/// Makes all earlier stores, write-combined ones included, visible to the GPU before any later store: what a
/// client of its own does between ring entry, `GP_PUT` and doorbell.
pub fn store_barrier() {
    crate::sync::store_barrier();
}
