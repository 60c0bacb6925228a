//! What else is worth knowing of a machine.

use serde::Serialize;

use crate::doctor::jetson;
use crate::doctor::machine::Machine;

/// What the machine around a Jetson's GPU tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// Release of L4T, `R36.4.3`.
    pub release: Option<String>,
    /// Power mode of `nvpmodel`: number and name.
    pub power_mode: Option<String>,
    /// Temperature at the GPU. nvgpu itself does not tell it on ga10b; the kernel's thermal zones do.
    pub gpu_celsius: Option<f64>,
}

impl Surroundings {
    /// Looks.
    #[must_use]
    pub fn of(machine: &dyn Machine) -> Self {
        Self {
            release: jetson::release_of(machine),
            power_mode: jetson::power_mode_of(machine).map(|(id, name)| match name {
                Some(name) => format!("{id} ({name})"),
                None => id.to_string(),
            }),
            gpu_celsius: jetson::gpu_celsius(machine),
        }
    }
}
