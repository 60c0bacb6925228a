//! The machine as a check sees it, and the finding of a check.

use serde::Serialize;

/// A file that is a node, or represents one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether the user may read it.
    pub readable: bool,
    /// Whether the user may read and write it.
    pub usable: bool,
    /// Whether it is a device, or a file that stands for one.
    pub device: bool,
}

/// Why the content of a file is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// There is no such file.
    #[error("is not there")]
    Absent,
    /// This user may not read it.
    #[error("may not be read by this user")]
    Forbidden,
    /// It is there, and why it cannot be read.
    #[error("cannot be read: {0}")]
    Refused(String),
}

/// Access for which a node is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadWrite,
}

impl Access {
    /// The permission bits of a group that may.
    fn of_group(self) -> u32 {
        match self {
            Self::Read => 0o040,
            Self::ReadWrite => 0o060,
        }
    }
}

/// Interface of the checks to the machine. Paths are absolute, as on the machine itself.
pub trait Machine {
    /// A file's text.
    ///
    /// # Errors
    /// Why there is none.
    fn text(&self, path: &str) -> Result<String, Unread>;
    /// A file's text; `None` if it is not there or cannot be read.
    fn read(&self, path: &str) -> Option<String> {
        self.text(path).ok()
    }
    /// Names in a folder; none if it is not there.
    fn list(&self, path: &str) -> Vec<String>;
    /// Returns the node at a path, if it is there.
    fn node(&self, path: &str) -> Option<Node>;
    /// Faults in the kernel log.
    ///
    /// # Errors
    /// Why they are not known.
    fn faults(&self) -> Result<u64, Unread>;
    /// Whether the files are copies of another machine's: one that is absent may be there.
    fn is_copy(&self) -> bool {
        false
    }
    /// Whether it is known which device nodes there are.
    fn has_nodes(&self) -> bool {
        true
    }
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In order.
    Good,
    /// Could not be checked.
    Unknown,
    /// Works, but could be better.
    Warning,
    /// Does not work.
    Bad,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Subject of the check.
    pub name: &'static str,
    /// Outcome.
    pub status: Status,
    /// Finding.
    pub found: String,
    /// Remedy.
    pub remedy: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { name, status, found: printable(found.into()), remedy: None }
    }

    pub(super) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Good, found)
    }

    pub(super) fn unknown(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Unknown, found)
    }

    pub(super) fn warning(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(printable(remedy.into())), ..Self::new(name, Status::Warning, found) }
    }

    pub(super) fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(printable(remedy.into())), ..Self::new(name, Status::Bad, found) }
    }
}

/// Text of a machine's files without escape sequences for a terminal.
fn printable(text: String) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// The device tree's names of the board and the chip, each with a NUL at its end.
pub(super) fn compatible(machine: &dyn Machine) -> Result<String, Unread> {
    match machine.text("/proc/device-tree/compatible") {
        Err(Unread::Absent) => machine.text("/sys/firmware/devicetree/base/compatible"),
        known => known,
    }
}

/// The command that lists the nodes of a machine for a copy of its files.
const LISTED_BY: &str =
    "stat -c '%A %u %g %n' /dev/null /dev/nvmap /dev/nvgpu/igpu0/* /dev/nvidia* >dev.txt 2>/dev/null";

/// Checks that a node is there and may be opened.
pub(super) fn node(
    machine: &dyn Machine,
    name: &'static str,
    path: &str,
    access: Access,
    absent: &str,
) -> Check {
    let Some(node) = machine.node(path) else {
        if !machine.has_nodes() {
            return Check {
                remedy: Some(format!("in the folder of the copy: {LISTED_BY}")),
                ..Check::unknown(name, format!("{path}: dev.txt is missing from the copy, or empty"))
            };
        }
        return Check::bad(name, format!("{path} is not there"), absent);
    };
    if !node.device {
        return Check::bad(name, format!("{path} is there, and is no device"), absent);
    }
    if node.usable || access == Access::Read && node.readable {
        return Check::good(name, format!("{path} can be opened"));
    }
    let rights = format!("mode {:o}, group {}", node.mode & 0o777, group(machine, node.gid));
    if machine.is_copy() && uid(machine).is_none() {
        let found = format!("{path} ({rights}): could not be told whose groups count");
        return Check {
            remedy: Some(
                "proc/self/status is missing from the copy, or empty: cp copies it, tar does not".into(),
            ),
            ..Check::unknown(name, found)
        };
    }
    let found = format!("{path} may not be opened ({rights})");
    if node.mode & access.of_group() != access.of_group() || node.gid == 0 {
        let remedy = format!(
            "its group may not use it either: a udev rule{} such as {}, then sudo udevadm control --reload && sudo \
             udevadm trigger{}",
            if is_container(machine) { " of the host" } else { "" },
            udev_rule(path),
            if is_root(machine) { "" } else { "; or run as root" }
        );
        return Check::bad(name, found, remedy);
    }
    let group = group(machine, node.gid);
    let text = machine.read("/etc/group").unwrap_or_default();
    let members = text.lines().find(|line| line.split(':').next() == Some(group.as_str()));
    let members = members.and_then(|line| line.rsplit(':').next()).unwrap_or("");
    let listed = user(machine).is_some_and(|user| members.split(',').any(|member| member == user));
    let remedy = if is_container(machine) {
        format!("--group-add {} among the options of the container (docker, podman)", node.gid)
    } else if listed {
        format!("the user is in group {group}, but this session is older than that: log in again")
    } else {
        format!("sudo usermod -aG {group} $USER, then log in again")
    };
    Check::bad(name, found, remedy)
}

/// Rule of udev that opens a node to group video. A device of nvgpu is named without the folder of its node
/// (`nvgpu_devnode_v2` of its `os/linux/ioctl.c`).
fn udev_rule(path: &str) -> String {
    let (subsystem, name) = match path.strip_prefix("/dev/nvgpu/") {
        Some(node) => ("SUBSYSTEM==\"nvidia-gpu-v2\", ", node.rsplit('/').next().unwrap_or(node)),
        None => ("", path.trim_start_matches("/dev/")),
    };
    format!("{subsystem}KERNEL==\"{name}\", GROUP=\"video\", MODE=\"0660\"")
}

/// Whether the machine is a container of docker or podman.
pub(super) fn is_container(machine: &dyn Machine) -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| machine.node(mark).is_some())
}

/// Name of a group, or its number.
fn group(machine: &dyn Machine, gid: u32) -> String {
    let text = machine.read("/etc/group").unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').nth(2).and_then(|id| id.parse().ok()) == Some(gid));
    line.and_then(|line| line.split(':').next()).map_or(gid.to_string(), str::to_owned)
}

/// Number of the user that runs this, as text.
fn uid(machine: &dyn Machine) -> Option<String> {
    let status = machine.read("/proc/self/status")?;
    Some(status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.to_owned())
}

/// Whether root runs this.
pub(super) fn is_root(machine: &dyn Machine) -> bool {
    uid(machine).as_deref() == Some("0")
}

/// Name of the user that runs this.
fn user(machine: &dyn Machine) -> Option<String> {
    let uid = uid(machine)?;
    let users = machine.read("/etc/passwd")?;
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(uid.as_str()))?;
    line.split(':').next().map(str::to_owned)
}

/// A value of /proc/meminfo, in bytes.
pub(crate) fn meminfo(machine: &dyn Machine, key: &str) -> Option<u64> {
    stated(machine, key).ok().flatten()
}

/// A value of /proc/meminfo, in bytes; none without such a line.
///
/// # Errors
/// Why it is not known.
pub(super) fn stated(machine: &dyn Machine, key: &str) -> Result<Option<u64>, String> {
    const PATH: &str = "/proc/meminfo";
    let text = machine.text(PATH).map_err(|unread| format!("{PATH} {unread}"))?;
    let value = |key| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let Some(value) = value(key) else {
        // The kernel states the total always.
        return match value("MemTotal") {
            Some(_) => Ok(None),
            None => Err(format!("{PATH} is empty or damaged: it states no MemTotal")),
        };
    };
    let mut words = value.split_whitespace();
    let number = words.next().and_then(|number| number.parse::<u64>().ok());
    let unit = if words.next() == Some("kB") { 1024 } else { 1 };
    let bytes = number.and_then(|number| number.checked_mul(unit));
    bytes.map(Some).ok_or_else(|| format!("/proc/meminfo states no size of {key}: {}", excerpt(value)))
}

/// Returns the free amount and the total, by two lines of /proc/meminfo; `None` without such lines.
///
/// # Errors
/// Why it is not known.
pub(super) fn free_of(machine: &dyn Machine, free: &str, all: &str) -> Result<Option<(u64, u64)>, String> {
    match (stated(machine, free)?, stated(machine, all)?) {
        (Some(some), Some(most)) if some > most => {
            Err(format!("/proc/meminfo states more {free} than {all}"))
        }
        (some, most) => Ok(some.zip(most)),
    }
}

/// The beginning of a file's content, in quotes.
pub(super) fn excerpt(text: &str) -> String {
    format!("{:?}", text.trim().chars().take(40).collect::<String>())
}
