//! What kind of machine to model.

use crate::clock::Time;
use crate::gpu::chip::Chip;
use crate::gpu::sm;
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
    /// Which time the machine lives in.
    pub time: Time,
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
            time: Time::Host,
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

    /// The chip of this machine.
    pub(crate) fn chip(&self) -> Chip {
        Chip::new(self.arch, self.sm_count)
    }
}
