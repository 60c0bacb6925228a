//! The kernels of the steps, `diag/kernels/bringup.ptx`.

use anyhow::Context;
use hcq::{Device, Kernel, Program};
use sass::Arch;

/// The cubin for an SM. The code for sm_80 also serves the later ones of its major version.
fn cubin(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::Sm87 => include_bytes!("../../kernels/bringup.sm_87.cubin"),
        Arch::Sm90 => include_bytes!("../../kernels/bringup.sm_90.cubin"),
        _ => include_bytes!("../../kernels/bringup.sm_80.cubin"),
    }
}

/// The instruction set of a device.
pub fn arch(device: &Device) -> anyhow::Result<Arch> {
    let sm = device.info().sm_number();
    Arch::from_sm(sm).with_context(|| format!("no code for sm_{sm}"))
}

/// The kernels on a device.
#[derive(Debug)]
pub struct Kernels(Program);

impl Kernels {
    /// Loads them.
    pub fn load(device: &Device) -> anyhow::Result<Self> {
        Ok(Self(device.load(cubin(arch(device)?)).context("the kernels cannot be loaded")?))
    }

    /// One of them.
    pub fn get(&self, name: &str) -> anyhow::Result<Kernel> {
        Ok(self.0.kernel(name)?)
    }
}
