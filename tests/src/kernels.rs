//! The suite's own kernels: `tests/kernels/suite.ptx`, compiled for each SM and committed
//! (`tools/suite-kernels.py`).

use anyhow::{Context, Result};
use hcq::{Device, Kernel, Program};
use sass::Arch;

/// The suite's cubin for an instruction set.
pub fn cubin(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::Sm86 => include_bytes!("../kernels/suite.sm_86.cubin"),
        Arch::Sm87 => include_bytes!("../kernels/suite.sm_87.cubin"),
        Arch::Sm89 => include_bytes!("../kernels/suite.sm_89.cubin"),
        Arch::Sm90 => include_bytes!("../kernels/suite.sm_90.cubin"),
        _ => include_bytes!("../kernels/suite.sm_80.cubin"),
    }
}

/// The cubin of `hcq-bench`'s kernels for an instruction set.
pub fn bench_cubin(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::Sm86 => include_bytes!("../kernels/bench.sm_86.cubin"),
        Arch::Sm87 => include_bytes!("../kernels/bench.sm_87.cubin"),
        Arch::Sm89 => include_bytes!("../kernels/bench.sm_89.cubin"),
        Arch::Sm90 => include_bytes!("../kernels/bench.sm_90.cubin"),
        _ => include_bytes!("../kernels/bench.sm_80.cubin"),
    }
}

/// The cubin of the kernels of graphs with branches, for an instruction set.
pub(crate) fn links_cubin(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::Sm86 => include_bytes!("../kernels/links.sm_86.cubin"),
        Arch::Sm87 => include_bytes!("../kernels/links.sm_87.cubin"),
        Arch::Sm89 => include_bytes!("../kernels/links.sm_89.cubin"),
        Arch::Sm90 => include_bytes!("../kernels/links.sm_90.cubin"),
        _ => include_bytes!("../kernels/links.sm_80.cubin"),
    }
}

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
        Ok(Self { program: device.load(cubin(arch(device)?)).context("loading the suite's kernels")? })
    }

    pub fn get(&self, name: &str) -> Result<Kernel> {
        Ok(self.program.kernel(name)?)
    }
}
