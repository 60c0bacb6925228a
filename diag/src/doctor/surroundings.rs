//! Further facts about a machine.

use serde::Serialize;

use crate::doctor::machine::Machine;
use crate::doctor::{release, speed};

/// Facts about a Jetson's GPU from the machine instead of the driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// Release of L4T, `R36.4.3`.
    pub release: Option<String>,
    /// Power mode of `nvpmodel`: number and name.
    pub power_mode: Option<String>,
    /// Temperature at the GPU. nvgpu itself does not report it on ga10b; the kernel's thermal zones do.
    pub gpu_celsius: Option<f64>,
}

impl Surroundings {
    /// Reads the machine's files.
    #[must_use]
    pub fn of(machine: &dyn Machine) -> Self {
        Self {
            release: release::name(machine),
            power_mode: speed::power_mode_of(machine).map(|(id, name)| match name {
                Some(name) => format!("{id} ({name})"),
                None => id.to_string(),
            }),
            gpu_celsius: speed::gpu_celsius(machine),
        }
    }
}
