//! What kind of machine to model.

use crate::gpu::sm;
use qmd::Target;
use sass::Arch;

/// Settings of a [`Sim`](crate::Sim). The default is an Orin AGX 64 GB with all its SMs.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// DRAM in bytes. Memory is only taken from the host when it is touched.
    pub memory: u64,
    /// Streaming multiprocessors: 2 per TPC, at most 16. A real Orin AGX shows 8 in its lower power modes.
    pub sm_count: u32,
    /// Instruction set of the SMs. A ga10b has sm_87; with sm_90 it is a machine that does not exist, whose SMs and launch
    /// descriptors are Hopper's: the code for both can be run side by side.
    pub arch: Arch,
    /// How kernels are executed: worker threads, schedule, arithmetic.
    pub executor: sm::Config,
    /// Print the driver's kernel-log lines to stderr as they appear.
    pub verbose: bool,
    /// Time that the first `ALLOC_OBJ_CTX` takes, in milliseconds. A real machine needs about 1000, which few tests want to wait for.
    pub first_context_ms: u32,
    /// Lets other processes of the same user look at the machine, as a debugger looks at a real one:
    /// [`Remote`](crate::Remote). One machine of a process can be visible at a time.
    pub visible: bool,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            memory: 64 << 30,
            sm_count: 16,
            arch: Arch::Sm87,
            executor: sm::Config::default(),
            verbose: false,
            first_context_ms: 0,
            visible: false,
        }
    }
}

impl SimConfig {
    /// The environment variable that makes the machine of a program visible, unless its value is `0`.
    pub const VISIBLE: &str = "NVGPU_SIM_VISIBLE";

    /// The default, with what the environment says.
    #[must_use]
    pub fn from_env() -> Self {
        Self { visible: std::env::var_os(Self::VISIBLE).is_some_and(|value| value != "0"), ..Self::default() }
    }

    /// SMs as the hardware can have them: whole TPCs, at least one, at most eight.
    pub(crate) fn sms(&self) -> u32 {
        (self.sm_count.div_ceil(2) * 2).clamp(2, 16)
    }

    /// What launch descriptors are checked against.
    pub(crate) fn target(&self) -> Target {
        match self.arch {
            Arch::Sm80 => Target::Sm80,
            Arch::Sm86 => Target::Sm86,
            Arch::Sm87 => Target::Sm87,
            Arch::Sm89 => Target::Sm89,
            Arch::Sm90 => Target::Sm90,
        }
    }

    /// TPCs: two SMs each.
    pub(crate) fn tpcs(&self) -> u32 {
        self.sms() / 2
    }

    /// GPCs: four TPCs each.
    pub(crate) fn gpcs(&self) -> u32 {
        self.tpcs().div_ceil(4)
    }
}
