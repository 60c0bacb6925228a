//! Committed cubins, and the code in them.

use hcq::cubin::File;
use sass::Arch;

macro_rules! cubins {
    ($($path:literal),* $(,)?) => { &[ $( include_bytes!(concat!("../../", $path)) ),* ] };
}

/// The inputs that cases are made from.
pub(crate) const CUBINS: &[&[u8]] = cubins![
    "kernels/suite.sm_80.cubin",
    "kernels/suite.sm_87.cubin",
    "kernels/suite.sm_90.cubin",
    "kernels/barriers.sm_87.cubin",
    "kernels/conformance/atomic.sm_87.cubin",
    "kernels/conformance/conversion.sm_87.cubin",
    "kernels/conformance/float.sm_87.cubin",
    "kernels/conformance/integer.sm_87.cubin",
    "kernels/conformance/shared.sm_87.cubin",
    "kernels/conformance/warp.sm_87.cubin",
    "kernels/conformance/warp.sm_90.cubin",
    "../sass/tests/data/cubin/07_flash_decode.sm_87.cubin",
    "../sass/tests/data/cubin/09_mma_gemm.sm_87.cubin",
    "../sass/tests/data/cubin/10_atomics.sm_87.cubin",
    "../sass/tests/data/cubin/11_grid_barrier.sm_87.cubin",
    "../sass/tests/data/cubin/12_local_stack.sm_87.cubin",
    "../sass/tests/data/cubin/13_control_flow.sm_87.cubin",
    "../sass/tests/data/cubin/14_warp_ops.sm_87.cubin",
    "../sass/tests/data/cubin/17_fp64.sm_87.cubin",
    "../sass/tests/data/cubin/18_memory.sm_87.cubin",
    "../sass/tests/data/cubin/18_memory.sm_90.cubin",
    "../sass/tests/data/cubin/19_sregs.sm_87.cubin",
    "../sass/tests/data/cubin/20_mbarrier_async.sm_87.cubin",
    "../sass/tests/data/cubin/20_mbarrier_async.sm_90.cubin",
    "../sass/tests/data/cubin/21_half.sm_87.cubin",
];

/// The code of one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub arch: Arch,
    pub words: Vec<u128>,
    /// Registers of a thread.
    pub registers: u32,
}

/// The code of all kernels.
pub(crate) fn code() -> Vec<Code> {
    let mut all = Vec::new();
    for bytes in CUBINS {
        let file = File::parse(bytes).expect("a committed cubin");
        let arch = Arch::from_sm(file.sm()).expect("a version that is known");
        for kernel in file.kernels() {
            let content = file.content(&kernel.section).expect("a whole cubin");
            let words = content.as_chunks::<16>().0.iter().map(|word| u128::from_le_bytes(*word)).collect();
            all.push(Code { arch, words, registers: kernel.section.info >> 24 });
        }
    }
    all
}
