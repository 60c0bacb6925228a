//! All checks, in order.

use std::io::{self, Write};

use serde::Serialize;

use crate::doctor::machine::{Check, Machine, Status, Unread, compatible, excerpt, free_of, is_root, stated};
use crate::doctor::{desktop, driver, jetson, release};
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};

/// Kind of machine.
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
    /// Kind of machine.
    pub platform: Platform,
    /// The checks.
    pub checks: Vec<Check>,
}

/// Whether nvgpu's nodes are those of `libnvgpu_sim.so`, which answers for them inside this process.
#[must_use]
pub fn is_software(machine: &dyn Machine) -> bool {
    machine.read("/proc/self/maps").is_some_and(|maps| maps.contains("libnvgpu_sim.so"))
}

/// Whether the machine is a Jetson. A container hides the device tree, and may have no nodes; a copy may be
/// incomplete: then the file of the release decides, or the name of the kernel, which NVIDIA ends in `-tegra`,
/// and OE4T builds with `-l4t-` in it.
fn is_tegra(machine: &dyn Machine) -> bool {
    let has_nodes = ["/dev/nvgpu", "/dev/nvhost-gpu"].iter().any(|node| machine.node(node).is_some());
    let kernel = || machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    has_nodes
        || match compatible(machine).as_deref() {
            Ok(names) if names.contains(',') => names.contains("nvidia,tegra"),
            _ => {
                machine.node(release::FILE).is_some()
                    || ["-tegra", "-l4t-"].iter().any(|part| kernel().contains(part))
            }
        }
}

/// The board that a device tree of another maker names.
fn other_board(machine: &dyn Machine) -> String {
    let names = compatible(machine).unwrap_or_default();
    let board = names.split('\0').next().filter(|name| name.contains(','));
    board.map_or(String::new(), |name| format!("; the device tree names {name}"))
}

/// The check of a machine that has no GPU, or of a copy that does not tell.
fn no_gpu(machine: &dyn Machine) -> Check {
    const NAME: &str = "GPU";
    let board = other_board(machine);
    if !machine.has_nodes() && board.is_empty() {
        let found = "the copy is incomplete: neither the device nodes (dev.txt) nor a file that names the machine \
                     are in it";
        let remedy = Some("docs/nvdiag-doctor.md has the commands that copy a machine's files".to_owned());
        return Check { remedy, ..Check::unknown(NAME, found) };
    }
    Check::bad(
        NAME,
        format!(
            "neither a Jetson (/dev/nvgpu, a Tegra device tree) nor the desktop driver (/dev/nvidiactl, \
             /sys/module/nvidia/version) is here{board}"
        ),
        "HCQ_DEVICE=sim runs everything on the software ga10b; in a container, pass the device nodes through",
    )
}

/// Checks a machine.
#[must_use]
pub fn examine(machine: &dyn Machine) -> Diagnosis {
    let platform = if is_software(machine) {
        Platform::Software
    } else if is_tegra(machine) {
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
        Platform::Software => driver::software(machine),
        Platform::Desktop => desktop::checks(machine),
        Platform::Neither => vec![no_gpu(machine)],
    };
    if platform != Platform::Neither {
        checks.push(huge_pages(machine));
        checks.push(memory(machine));
    }
    // The driver of a software GPU has no lines in a kernel's log.
    if matches!(platform, Platform::Jetson | Platform::Desktop) {
        checks.extend(kernel_log(machine));
    }
    Diagnosis { platform, checks }
}

fn huge_pages(machine: &dyn Machine) -> Check {
    const NAME: &str = "huge pages";
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = match machine.text(PATH) {
        Ok(text) => text,
        Err(Unread::Absent) => {
            return Check::unknown(NAME, "the kernel does not report transparent huge pages");
        }
        Err(unread) => return Check::unknown(NAME, format!("{PATH} {unread}")),
    };
    let Some(chosen) = text.split(['[', ']']).nth(1) else {
        return Check::unknown(NAME, format!("{PATH} names no choice: {}", excerpt(&text)));
    };
    let reserved = match stated(machine, "HugePages_Total") {
        Ok(pages) => format!("{} reserved", pages.unwrap_or(0)),
        Err(_) => "how many are reserved is not known".to_owned(),
    };
    let found = format!("transparent huge pages: {chosen}; {reserved}");
    match chosen {
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
    match free_of(machine, "MemAvailable", "MemTotal") {
        Ok(Some((free, total))) => {
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
        Ok(None) => Check::unknown(NAME, "/proc/meminfo does not state it"),
        Err(why) => Check::unknown(NAME, why),
    }
}

/// Whether the kernel log may be read, and its faults.
fn kernel_log(machine: &dyn Machine) -> Vec<Check> {
    const NAME: &str = "kernel log";
    match machine.faults() {
        Err(Unread::Refused(why)) => {
            vec![Check::unknown(NAME, format!("/dev/kmsg cannot be read: {why}"))]
        }
        Err(Unread::Absent | Unread::Forbidden) => {
            let restrict = machine.read("/proc/sys/kernel/dmesg_restrict").unwrap_or_default();
            let (is_restricted, is_root) = (restrict.trim() == "1", is_root(machine));
            if machine.is_copy() && (is_root || !is_restricted) {
                let found = "dev/kmsg is missing from the copy";
                let remedy = Some("on the machine: sudo dmesg >kmsg, as dev/kmsg of the folder".to_owned());
                return vec![Check { remedy, ..Check::unknown(NAME, found) }];
            }
            let why = match is_restricted {
                true => " (kernel.dmesg_restrict=1 asks for CAP_SYSLOG, which no group gives)",
                false => "",
            };
            let found = format!("may not be read{why}: faults are explained without their address");
            if is_root {
                let remedy = "this root lacks CAP_SYSLOG, as in a container: --cap-add SYSLOG (docker, podman), or \
                              sudo sysctl kernel.dmesg_restrict=0 outside of it";
                return vec![Check::warning(NAME, found, remedy)];
            }
            vec![Check::warning(
                NAME,
                found,
                "sudo sysctl kernel.dmesg_restrict=0, or run as root; who is in group adm reads what the journal \
                 has: journalctl -k | nvdiag esr --log -",
            )]
        }
        Ok(0) => vec![Check::good(NAME, "holds no GPU fault")],
        Ok(count) => vec![Check::warning(
            NAME,
            format!("holds {} since boot", counted(count, "GPU fault")),
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
            Platform::Neither if self.has_problem() => "a machine without an NVIDIA GPU",
            Platform::Neither => "a copy that does not identify its machine",
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
        let unknown = match count(Status::Unknown) {
            0 => String::new(),
            unknown => format!(", {unknown} could not be checked"),
        };
        match (bad, warnings) {
            (0, 0) if unknown.is_empty() => writeln!(out, "all in order"),
            (0, 0) => writeln!(out, "nothing wrong found{unknown}"),
            _ => writeln!(out, "{bad} bad, {warnings} that could be better{unknown}"),
        }
    }
}
