//! Surroundings of a step: the driver, ways to open a device on it, and the machine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hcq::{Device, DeviceOptions, Error, Selector};
use nvgpu_sys::{Linux, Sys};

use crate::bringup::llm_demo::LlmDemo;
use crate::doctor::{Machine, is_software};

/// The kind of driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// nvgpu, a Jetson's, or the software ga10b, which has the same.
    Nvgpu,
    /// NVIDIA's desktop driver.
    Desktop,
}

/// The lines that the driver has logged since boot, or since as far back as the kernel keeps them; `None`
/// where they may not be read.
pub type LogSource = Box<dyn Fn() -> Option<Vec<String>> + Send + Sync>;

type Opener = Box<dyn Fn(DeviceOptions) -> Result<Device, Error> + Send + Sync>;

/// Surroundings of a step.
pub struct Rig<'a> {
    /// The kind of driver.
    pub platform: Platform,
    /// Whether the GPU is software: then a step does less of the same.
    pub software: bool,
    /// The machine's files.
    pub machine: &'a (dyn Machine + Sync),
    /// Duration of the last step's load.
    pub soak: Duration,
    /// The program for the steps with a language model; `None` where it is not installed.
    pub llm_demo: Option<LlmDemo>,
    /// The driver, as a program of the steps names it.
    pub(super) selector: Selector,
    pub(super) sys: Arc<dyn Sys>,
    /// Remedy where the driver's lines cannot be read.
    pub(super) log_remedy: &'static str,
    open: Opener,
    log: LogSource,
}

/// Ways to read the kernel log. Members of group adm may read the journal, and not `/dev/kmsg` (source:
/// `check_syslog_permissions` of the kernel's printk.c).
const KERNEL_LOG: &str = "/dev/kmsg and dmesg are for root where kernel.dmesg_restrict is 1 (CAP_SYSLOG): run \
                          with sudo, or allow it with `sudo sysctl kernel.dmesg_restrict=0`; group adm reads \
                          what the journal has: journalctl -k";
/// Explanation where no kernel has logged anything.
const NO_LOG: &str = "the driver of libnvgpu_sim.so has no lines in the kernel log, whoever reads it; --device sim \
                      runs the same steps with the lines of its driver";

impl fmt::Debug for Rig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig")
            .field("platform", &self.platform)
            .field("software", &self.software)
            .finish_non_exhaustive()
    }
}

/// Default duration of the last step on a software GPU.
const SHORT_SOAK: Duration = Duration::from_secs(3);
/// Default duration of the last step on a GPU.
const SOAK: Duration = Duration::from_secs(60);

/// Time that a device waits for a GPU without progress: less than a step may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl<'a> Rig<'a> {
    /// This machine's own driver: a Jetson's or a desktop GPU's, or the software ga10b of `libnvgpu_sim.so`,
    /// whose lines are in no kernel log.
    #[must_use]
    pub fn own(platform: Platform, machine: &'a (dyn Machine + Sync), log: LogSource) -> Self {
        let selector = match platform {
            Platform::Nvgpu => Selector::Nvgpu,
            Platform::Desktop => Selector::Rm,
        };
        let open = Box::new(move |options| Device::open_with(selector, options));
        let software = platform == Platform::Nvgpu && is_software(machine);
        let soak = if software { SHORT_SOAK } else { SOAK };
        let (log, log_remedy): (LogSource, _) =
            if software { (Box::new(|| None), NO_LOG) } else { (log, KERNEL_LOG) };
        let sys = Arc::new(Linux);
        Self { platform, software, machine, soak, llm_demo: None, selector, sys, log_remedy, open, log }
    }

    /// A software ga10b. A program of the steps has another one, of its own.
    #[must_use]
    pub fn software(sim: Arc<ga10b_sim::Sim>, machine: &'a (dyn Machine + Sync)) -> Self {
        let log = sim.clone();
        let log = Box::new(move || log.readable_kernel_log());
        let sys = sim.clone();
        let open = Box::new(move |options| hcq::sim::open(sim.clone(), options));
        Self::in_software(sys, machine, open, log)
    }

    /// A software ga10b whose system calls go through `sys`, such as a fault injector; those of a program of the
    /// steps do not.
    #[must_use]
    pub fn through(sys: Arc<dyn Sys>, machine: &'a (dyn Machine + Sync), log: LogSource) -> Self {
        let own = sys.clone();
        let open = Box::new(move |options| hcq::sys::open_nvgpu(own.clone(), options));
        Self::in_software(sys, machine, open, log)
    }

    fn in_software(
        sys: Arc<dyn Sys>,
        machine: &'a (dyn Machine + Sync),
        open: Opener,
        log: LogSource,
    ) -> Self {
        Self {
            platform: Platform::Nvgpu,
            software: true,
            machine,
            soak: SHORT_SOAK,
            llm_demo: None,
            selector: Selector::Sim,
            sys,
            log_remedy: KERNEL_LOG,
            open,
            log,
        }
    }

    /// Opens a device.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn device(&self) -> Result<Device, Error> {
        self.device_with(|_| ())
    }

    /// Opens a device with options.
    ///
    /// # Errors
    /// Those of [`Device::open_with`].
    pub fn device_with(&self, change: impl FnOnce(&mut DeviceOptions)) -> Result<Device, Error> {
        let mut options = DeviceOptions::default();
        options.patience = PATIENCE;
        change(&mut options);
        (self.open)(options)
    }

    /// The lines that the driver has logged so far.
    #[must_use]
    pub fn logged(&self) -> Option<Vec<String>> {
        (self.log)()
    }

    /// The lines that were logged after `before`, which is an earlier answer of [`logged`](Self::logged).
    #[must_use]
    pub fn logged_since(&self, before: &Option<Vec<String>>) -> Vec<String> {
        let Some(mut now) = self.logged() else { return Vec::new() };
        // The kernel drops the oldest lines: the last known one is searched for, from the end.
        let last = before.as_ref().and_then(|lines| lines.last());
        let known = last.and_then(|last| now.iter().rposition(|line| line == last));
        match (known, before) {
            (Some(at), _) => now.split_off(at + 1),
            (None, _) => now,
        }
    }

    /// `on_a_gpu`, or fewer where software executes each instruction.
    pub(super) fn scaled(&self, on_a_gpu: u32, in_software: u32) -> u32 {
        if self.software { in_software } else { on_a_gpu }
    }
}
