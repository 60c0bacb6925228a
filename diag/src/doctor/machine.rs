//! The machine as a check sees it, and what a check finds.

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
    /// Whether this process may read and write it.
    pub usable: bool,
}

/// What the checks read. Paths are absolute, as on the machine itself.
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

/// How a check ended.
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
    /// What was checked.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Check {
    pub(super) fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { name, status, found: found.into(), remedy: None }
    }

    pub(super) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Good, found)
    }

    pub(super) fn unknown(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Unknown, found)
    }

    pub(super) fn warning(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(name, Status::Warning, found) }
    }

    pub(super) fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(name, Status::Bad, found) }
    }
}

/// The device tree's names of the board and the chip.
pub(super) fn compatible(machine: &dyn Machine) -> Option<String> {
    let paths = ["/proc/device-tree/compatible", "/sys/firmware/devicetree/base/compatible"];
    paths.iter().find_map(|path| machine.read(path)).map(|text| text.replace('\0', " ").trim().to_owned())
}

/// Checks that a node is there and may be opened.
pub(super) fn node(machine: &dyn Machine, name: &'static str, path: &str, absent: &str) -> Check {
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
pub(crate) fn meminfo(machine: &dyn Machine, key: &str) -> Option<u64> {
    let text = machine.read("/proc/meminfo")?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    number.checked_mul(if words.next() == Some("kB") { 1024 } else { 1 })
}
