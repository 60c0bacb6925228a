//! The suite's own kernels: `tests/kernels/suite.ptx`, compiled for each SM and committed
//! (`tools/suite-kernels.py`).

use anyhow::{Context, Result};
use hcq::{Device, Images, Kernel, Program};
use sass::Arch;

/// The suite's cubins.
pub const SUITE: Images<'_> = hcq::images!("../kernels/suite", sm_80, sm_86, sm_87, sm_89, sm_90);

/// The cubins of `hcq-bench`'s kernels.
pub const BENCH: Images<'_> = hcq::images!("../kernels/bench", sm_80, sm_86, sm_87, sm_89, sm_90);

/// The cubins of the kernels of graphs with branches.
pub(crate) const LINKS: Images<'_> = hcq::images!("../kernels/links", sm_80, sm_86, sm_87, sm_89, sm_90);

/// The cubin of the kernels that wait for the grids before them, for an instruction set that can.
pub fn early_cubin(arch: Arch) -> Option<&'static [u8]> {
    (arch == Arch::Sm90).then_some(include_bytes!("../kernels/early.sm_90.cubin"))
}

/// The instruction set of a device.
///
/// # Errors
/// If it is none that there are cubins for.
pub fn arch(device: &Device) -> Result<Arch> {
    let sm = device.info().sm_number();
    Arch::from_sm(sm).with_context(|| format!("no code for sm_{sm}"))
}

/// The suite's kernels, loaded on a device.
pub struct Kernels {
    program: Program,
}

impl Kernels {
    pub fn load(device: &Device) -> Result<Self> {
        Ok(Self { program: device.load(SUITE).context("loading the suite's kernels")? })
    }

    pub fn get(&self, name: &str) -> Result<Kernel> {
        Ok(self.program.kernel(name)?)
    }
}
