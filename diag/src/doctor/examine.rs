//! All checks, in order.

use std::io::{self, Write};

use serde::Serialize;

use crate::doctor::machine::{Check, Machine, Status, compatible, meminfo};
use crate::doctor::{desktop, jetson};
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// What kind of machine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// A Jetson, with nvgpu.
    Jetson,
    /// A machine whose nvgpu is the software ga10b of `libnvgpu_sim.so`, in this process.
    Software,
    /// A machine with NVIDIA's desktop driver.
    Desktop,
    /// Neither.
    Neither,
}

/// All checks of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What kind of machine it is.
    pub platform: Platform,
    /// The checks.
    pub checks: Vec<Check>,
}

/// Whether nvgpu's nodes are those of `libnvgpu_sim.so`, which answers for them inside this process.
#[must_use]
pub fn is_software(machine: &dyn Machine) -> bool {
    machine.read("/proc/self/maps").is_some_and(|maps| maps.contains("libnvgpu_sim.so"))
}

/// Checks a machine.
#[must_use]
pub fn examine(machine: &dyn Machine) -> Diagnosis {
    let tegra = compatible(machine).is_some_and(|c| c.contains("tegra"));
    let platform = if is_software(machine) {
        Platform::Software
    } else if tegra || machine.node("/dev/nvgpu").is_some() || machine.node("/dev/nvhost-gpu").is_some() {
        Platform::Jetson
    } else if machine.node("/dev/nvidiactl").is_some()
        || machine.read(rm_sys::VERSION_FILE).is_some()
        || machine.read(rm_sys::VERSION_TEXT_FILE).is_some()
    {
        Platform::Desktop
    } else {
        Platform::Neither
    };
    let mut checks = match platform {
        Platform::Jetson => jetson::checks(machine),
        Platform::Software => jetson::software(machine),
        Platform::Desktop => desktop::checks(machine),
        Platform::Neither => vec![Check::bad(
            "GPU",
            "neither a Jetson (/dev/nvgpu, a Tegra device tree) nor the desktop driver (/dev/nvidiactl, \
             /sys/module/nvidia/version) is here",
            "HCQ_DEVICE=sim runs everything on the software ga10b; in a container, pass the device nodes through",
        )],
    };
    if platform != Platform::Neither {
        checks.push(huge_pages(machine));
        checks.push(memory(machine));
    }
    // What the driver of a software GPU says is in no kernel's log.
    if matches!(platform, Platform::Jetson | Platform::Desktop) {
        checks.extend(kernel_log(machine));
    }
    Diagnosis { platform, checks }
}

fn huge_pages(machine: &dyn Machine) -> Check {
    const NAME: &str = "huge pages";
    let Some(text) = machine.read("/sys/kernel/mm/transparent_hugepage/enabled") else {
        return Check::unknown(NAME, "the kernel does not report transparent huge pages");
    };
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let reserved = meminfo(machine, "HugePages_Total").unwrap_or(0);
    let found = format!("transparent huge pages: {chosen}; {reserved} reserved");
    match chosen.as_str() {
        "never" => Check::warning(
            NAME,
            found,
            "large host buffers (model files) load faster with them: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        _ => Check::good(NAME, found),
    }
}

fn memory(machine: &dyn Machine) -> Check {
    const NAME: &str = "memory";
    match (meminfo(machine, "MemAvailable"), meminfo(machine, "MemTotal")) {
        (Some(free), Some(total)) => {
            let found = format!("{} of {} available", crate::size::size(free), crate::size::size(total));
            match free < total / 20 {
                true => Check::warning(
                    NAME,
                    found,
                    "end programs that hold memory: the GPU of a Jetson shares it with the CPU",
                ),
                false => Check::good(NAME, found),
            }
        }
        _ => Check::unknown(NAME, "/proc/meminfo cannot be read"),
    }
}

/// Whether the kernel log may be read, and what it holds.
fn kernel_log(machine: &dyn Machine) -> Vec<Check> {
    const NAME: &str = "kernel log";
    match machine.faults() {
        None => vec![Check::warning(
            NAME,
            "may not be read, so faults are explained without their address",
            "sudo sysctl kernel.dmesg_restrict=0, or run `nvdiag esr` as root",
        )],
        Some(0) => vec![Check::good(NAME, "holds no GPU fault")],
        Some(count) => vec![Check::warning(
            NAME,
            format!("holds {count} GPU faults since boot"),
            "`nvdiag esr` explains them",
        )],
    }
}

impl Report for Diagnosis {
    const SCHEMA: &'static str = "nvdiag.doctor/1";

    fn has_problem(&self) -> bool {
        self.checks.iter().any(|check| check.status == Status::Bad)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let platform = match self.platform {
            Platform::Jetson => "a Jetson",
            Platform::Software => "a software ga10b: libnvgpu_sim.so is part of this process",
            Platform::Desktop => "a machine with NVIDIA's desktop driver",
            Platform::Neither => "a machine without an NVIDIA GPU",
        };
        writeln!(out, "{HEADING}{platform}{HEADING:#}")?;
        for check in &self.checks {
            let (style, mark) = match check.status {
                Status::Good => (NAME, "ok"),
                Status::Unknown => (ASIDE, "?"),
                Status::Warning => (HEADING, "warn"),
                Status::Bad => (PROBLEM, "BAD"),
            };
            writeln!(out, "  {style}{mark:<5}{style:#} {:<16} {}", check.name, check.found)?;
            if let Some(remedy) = &check.remedy {
                writeln!(out, "        {:<16} -> {remedy}", "")?;
            }
        }
        let count = |status| self.checks.iter().filter(|c| c.status == status).count();
        let (bad, warnings) = (count(Status::Bad), count(Status::Warning));
        match (bad, warnings) {
            (0, 0) => writeln!(out, "all in order"),
            _ => writeln!(out, "{bad} bad, {warnings} that could be better"),
        }
    }
}
