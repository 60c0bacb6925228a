//! The kernels of the steps, `diag/kernels/bringup.ptx`.

use anyhow::Context;
use hcq::{Device, Images, Kernel, Program};

/// Their code. That for sm_80 also serves the later ones of its major version.
const IMAGES: Images<'_> = hcq::images!("../../kernels/bringup", sm_80, sm_87, sm_90);

/// The kernels on a device.
#[derive(Debug)]
pub struct Kernels(Program);

impl Kernels {
    /// Loads them.
    pub fn load(device: &Device) -> anyhow::Result<Self> {
        Ok(Self(device.load(IMAGES).context("the kernels cannot be loaded")?))
    }

    /// One of them.
    pub fn get(&self, name: &str) -> anyhow::Result<Kernel> {
        Ok(self.0.kernel(name)?)
    }
}
