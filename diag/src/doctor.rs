//! Is this machine set up right? Checks over what the kernel tells in files, each with its remedy.
//!
//! Nothing is read here: [`Machine`] is what the checks look at, a real one in the binary and a made-up one in tests.

mod desktop;
mod jetson;

use std::io::{self, Write};

use serde::Serialize;

use crate::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// A file that is a node, or stands for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether this process may read and write it.
    pub usable: bool,
}

/// What the checks look at. Paths are absolute, as on the machine itself.
pub trait Machine {
    /// A file's text; `None` if it is not there or may not be read.
    fn read(&self, path: &str) -> Option<String>;
    /// Names in a folder; none if it is not there.
    fn list(&self, path: &str) -> Vec<String>;
    /// What a path is, if it is there.
    fn node(&self, path: &str) -> Option<Node>;
    /// Faults in the kernel log and its lines; `None` if it may not be read.
    fn faults(&self) -> Option<u64>;
}

/// What the machine around a Jetson's GPU tells of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// Release of L4T, `R36.4.3`.
    pub release: Option<String>,
    /// Power mode of `nvpmodel`: number and name.
    pub power_mode: Option<String>,
    /// Temperature at the GPU. nvgpu itself does not tell it on ga10b; the kernel's thermal zones do.
    pub gpu_celsius: Option<f64>,
}

impl Surroundings {
    /// Looks.
    #[must_use]
    pub fn of(machine: &dyn Machine) -> Self {
        Self {
            release: jetson::release_of(machine),
            power_mode: jetson::power_mode_of(machine).map(|(id, name)| match name {
                Some(name) => format!("{id} ({name})"),
                None => id.to_string(),
            }),
            gpu_celsius: jetson::gpu_celsius(machine),
        }
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In order.
    Good,
    /// Could not be looked at.
    Unknown,
    /// Works, but could be better.
    Warning,
    /// Does not work.
    Bad,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { name, status, found: found.into(), remedy: None }
    }

    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Good, found)
    }

    fn unknown(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Unknown, found)
    }

    fn warning(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(name, Status::Warning, found) }
    }

    fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(name, Status::Bad, found) }
    }
}

/// What kind of machine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// A Jetson, with nvgpu.
    Jetson,
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

/// Looks at a machine.
#[must_use]
pub fn examine(machine: &dyn Machine) -> Diagnosis {
    let tegra = compatible(machine).is_some_and(|c| c.contains("tegra"));
    let platform =
        if tegra || machine.node("/dev/nvgpu").is_some() || machine.node("/dev/nvhost-gpu").is_some() {
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
        checks.extend(kernel_log(machine));
    }
    Diagnosis { platform, checks }
}

/// The device tree's names of the board and the chip.
fn compatible(machine: &dyn Machine) -> Option<String> {
    let paths = ["/proc/device-tree/compatible", "/sys/firmware/devicetree/base/compatible"];
    paths.iter().find_map(|path| machine.read(path)).map(|text| text.replace('\0', " ").trim().to_owned())
}

/// Checks that a node is there and may be opened.
fn node(machine: &dyn Machine, name: &'static str, path: &str, absent: &str) -> Check {
    let Some(node) = machine.node(path) else {
        return Check::bad(name, format!("{path} is not there"), absent);
    };
    if node.usable {
        return Check::good(name, format!("{path} can be opened"));
    }
    let found = format!(
        "{path} may not be opened (mode {:o}, group {})",
        node.mode & 0o777,
        group(machine, node.gid)
    );
    if node.mode & 0o060 != 0o060 || node.gid == 0 {
        let remedy = format!(
            "its group may not use it either: a udev rule such as KERNEL==\"{}\", GROUP=\"video\", MODE=\"0660\", or run as root",
            path.trim_start_matches("/dev/")
        );
        return Check::bad(name, found, remedy);
    }
    let group = group(machine, node.gid);
    let text = machine.read("/etc/group").unwrap_or_default();
    let members = text.lines().find(|line| line.split(':').next() == Some(group.as_str()));
    let members = members.and_then(|line| line.rsplit(':').next()).unwrap_or("");
    let listed = user(machine).is_some_and(|user| members.split(',').any(|member| member == user));
    let remedy = match listed {
        true => format!("the user is in group {group}, but this session is older than that: log in again"),
        false => format!("sudo usermod -aG {group} $USER, then log in again"),
    };
    Check::bad(name, found, remedy)
}

/// Name of a group, or its number.
fn group(machine: &dyn Machine, gid: u32) -> String {
    let text = machine.read("/etc/group").unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').nth(2).and_then(|id| id.parse().ok()) == Some(gid));
    line.and_then(|line| line.split(':').next()).map_or(gid.to_string(), str::to_owned)
}

/// Name of the user that runs this.
fn user(machine: &dyn Machine) -> Option<String> {
    let status = machine.read("/proc/self/status")?;
    let uid =
        status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.to_owned();
    let users = machine.read("/etc/passwd")?;
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(uid.as_str()))?;
    line.split(':').next().map(str::to_owned)
}

/// A value of /proc/meminfo, in bytes.
fn meminfo(machine: &dyn Machine, key: &str) -> Option<u64> {
    let text = machine.read("/proc/meminfo")?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    number.checked_mul(if words.next() == Some("kB") { 1024 } else { 1 })
}

fn huge_pages(machine: &dyn Machine) -> Check {
    const NAME: &str = "huge pages";
    let Some(text) = machine.read("/sys/kernel/mm/transparent_hugepage/enabled") else {
        return Check::unknown(NAME, "the kernel does not tell about transparent huge pages");
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
