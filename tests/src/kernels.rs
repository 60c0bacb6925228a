//! The suite's own kernels: `tests/kernels/suite.ptx`, compiled for each instruction set and committed.

use anyhow::{Context, Result};
use hcq::{Device, Kernel, Program};
use sass::{Arch, Encoding};

/// The suite's cubin for an instruction set.
pub fn cubin(arch: Arch) -> &'static [u8] {
    match arch.encoding() {
        Encoding::Sm8x => include_bytes!("../kernels/suite.sm_87.cubin"),
        Encoding::Sm9x => include_bytes!("../kernels/suite.sm_90.cubin"),
    }
}

/// The suite's kernels, loaded on a device.
pub struct Kernels {
    program: Program,
}

impl Kernels {
    pub fn load(device: &Device) -> Result<Self> {
        Ok(Self { program: device.load(cubin(device.info().arch)).context("loading the suite's kernels")? })
    }

    pub fn get(&self, name: &str) -> Result<Kernel> {
        Ok(self.program.kernel(name)?)
    }
}
