//! The release of L4T that a Jetson runs: a fact, and refused only where its driver is known to lack something.

use crate::doctor::machine::{Check, Machine, Status, Unread};

const NAME: &str = "L4T release";
/// File in which NVIDIA's own distribution states it.
pub(super) const FILE: &str = "/etc/nv_tegra_release";

/// A release of L4T, as `/etc/nv_tegra_release` states it: `# R36 (release), REVISION: 4.3, GCID: ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Release<'a> {
    /// 36.
    major: u32,
    /// `4.3`.
    revision: &'a str,
}

impl<'a> Release<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let line = text.lines().next()?;
        let major = line.split([' ', ',', '#']).find_map(|word| word.strip_prefix('R')?.parse().ok())?;
        let revision = line.split_once("REVISION:").map_or("", |(_, rest)| rest);
        let revision = revision.split(',').next().unwrap_or("").trim();
        let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u32>().is_ok();
        (revision.is_empty() || revision.split('.').all(is_number)).then_some(Self { major, revision })
    }

    fn name(self) -> String {
        match self.revision {
            "" => format!("R{}", self.major),
            revision => format!("R{}.{revision}", self.major),
        }
    }

    /// Returns the facts known of it.
    fn known(self) -> Known {
        let mut numbers = self.revision.split('.').map_while(|number| number.parse::<u32>().ok());
        let (minor, patch) = (numbers.next(), numbers.next().unwrap_or(0));
        match (self.major, minor, patch) {
            _ if numbers.next().is_some() => Known::Nothing,
            // OE4T/linux-nvgpu, branches l4t-r36.2 to l4t-r36.4.2; woosy/nvgpu-jetson-linux-36.4.3.
            (36, Some(2), 0) | (36, Some(3), 0..=1) | (36, Some(4), 0..=3) => Known::Source,
            // rbonghi/jetson_stats 864, 867, 889; developer guide of r39.2.
            (36, Some(5), 0) | (39, Some(2), 0) => Known::Pages,
            // OE4T/linux-nvgpu, branches l4t-r35.1 to l4t-35.6.0.
            (35, Some(1..=5), _) | (35, Some(6), 0) => Known::Lacking,
            (..=35, ..) => Known::Older,
            _ => Known::Nothing,
        }
    }
}

/// Origin of the knowledge of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The source of its driver was read.
    Source,
    /// Public pages alone.
    Pages,
    /// The source of its driver was read, and lacks requests that are sent.
    Lacking,
    /// Beside the releases that were read and before those that have the requests.
    Older,
    /// It came later, or is not one of Orin's.
    Nothing,
}

/// Requests that nvgpu before R36 lacks. Source: include/uapi of OE4T/linux-nvgpu, branches l4t-r35.1 to
/// l4t-35.6.0 against l4t-r36.2: two structs grew, and with them the numbers of their requests; the third has
/// been added.
const OLDER: &str = "its nvgpu has no NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT, and NVGPU_GPU_IOCTL_OPEN_TSG and \
                     NVGPU_IOCTL_CHANNEL_SETUP_BIND under other numbers";
const NEWER: &str = "install JetPack 6 (R36) or 7.2 (R39)";

pub(super) fn check(machine: &dyn Machine) -> Check {
    let kernel = kernel(machine);
    let text = match machine.text(FILE) {
        Ok(text) => text,
        Err(Unread::Absent) => return by_kernel(&format!("no {FILE}"), &kernel),
        Err(unread) => return doubted(by_kernel(&format!("{FILE} {unread}"), &kernel)),
    };
    let Some(release) = Release::of(&text) else {
        return doubted(by_kernel(&format!("{FILE} is there, and names no release"), &kernel));
    };
    let found = format!("{}, {kernel}", release.name());
    match release.known() {
        Known::Source => Check::good(NAME, format!("{found} (examined: the source of its driver)")),
        Known::Pages => Check::good(NAME, format!("{found} (examined: public pages alone)")),
        Known::Lacking => Check::bad(NAME, format!("{found}: {OLDER}"), NEWER),
        Known::Older => {
            let pack = if (28..=32).contains(&release.major) { ", of JetPack 4 or before" } else { "" };
            let found = format!(
                "{found}{pack}: not among those that were compared, r35.1 to r35.6.0 and r36.2 to r36.4.3, and \
                 older than any that has what is needed"
            );
            Check::bad(NAME, found, NEWER)
        }
        Known::Nothing => Check::unknown(NAME, format!("{found} (not examined, and used as it is)")),
    }
}

/// Lowers a good check to unknown: it rests on the kernel alone, since a file that should state the release
/// does not.
fn doubted(check: Check) -> Check {
    match check.status {
        Status::Good => Check { status: Status::Unknown, ..check },
        _ => check,
    }
}

/// Distributions other than NVIDIA's (OE4T's, NixOS) have no such file: the kernel's version identifies the
/// release its driver was made for, if it is one that NVIDIA ships.
fn by_kernel(file: &str, kernel: &str) -> Check {
    let found = format!("{file}; {kernel}");
    let version = kernel.strip_prefix("kernel ").unwrap_or_default();
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(5)), Some(Ok(15))) => Check::good(NAME, format!("{found}, as R36 has it")),
        (Some(Ok(6)), Some(Ok(8))) => Check::good(NAME, format!("{found}, as R39 has it")),
        (Some(Ok(5)), Some(Ok(10))) => {
            Check::warning(NAME, format!("{found}, as R35 has it: if so, {OLDER}"), NEWER)
        }
        _ => Check::unknown(NAME, format!("{found}: nvgpu's release is not stated, and used as it is")),
    }
}

/// The release and the kernel of a Jetson whose GPU is not driven.
pub(super) fn fact(machine: &dyn Machine) -> Check {
    let release = name(machine).unwrap_or_else(|| "not stated".to_owned());
    Check::good(NAME, format!("{release}, {}", kernel(machine)))
}

/// `kernel 5.15.148-tegra`, or why that is not known.
fn kernel(machine: &dyn Machine) -> String {
    const PATH: &str = "/proc/sys/kernel/osrelease";
    match machine.text(PATH) {
        Ok(text) if text.trim().is_empty() => format!("{PATH} is empty"),
        Ok(text) => format!("kernel {}", text.lines().next().unwrap_or_default().trim()),
        Err(unread) => format!("{PATH} {unread}"),
    }
}

/// The release as NVIDIA's own distribution states it, `R36.4.3`.
pub(super) fn name(machine: &dyn Machine) -> Option<String> {
    Release::of(&machine.read(FILE)?).map(Release::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_their_first_line() {
        let of = |line| Release::of(line).map(|r| (r.name(), r.known()));
        for (line, name, known) in [
            ("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n# x", "R36.4.3", Known::Source),
            ("# R36 (release), REVISION: 4.4", "R36.4.4", Known::Nothing),
            ("# R36 (release), REVISION: 4.3.1", "R36.4.3.1", Known::Nothing),
            ("# R36 (release), REVISION: 5.0, GCID: 43688277", "R36.5.0", Known::Pages),
            ("# R36 (release), REVISION: 6.0", "R36.6.0", Known::Nothing),
            ("# R39 (release), REVISION: 2.1", "R39.2.1", Known::Nothing),
            ("# R39 (release), REVISION: 2.0", "R39.2.0", Known::Pages),
            ("# R36 (release), REVISION: 5.1", "R36.5.1", Known::Nothing),
            ("# R39 (release), REVISION: 3.0", "R39.3.0", Known::Nothing),
            ("# R40 (release), REVISION: 1", "R40.1", Known::Nothing),
            ("# R35 (release), REVISION: 4.1, GCID: 1", "R35.4.1", Known::Lacking),
            ("# R35 (release), REVISION: 6.1", "R35.6.1", Known::Older),
            ("# R32 (release), REVISION: 7.1", "R32.7.1", Known::Older),
            ("R32 (release)", "R32", Known::Older),
        ] {
            assert_eq!(of(line), Some((name.to_owned(), known)), "{line}");
        }
        for none in [
            "",
            "# Release 36",
            "R-36 (release), REVISION: 4.3",
            "R99999999999999999999 (release), REVISION: 1.0",
            "# R36 (release), REVISION: -1",
            "# R36 (release), REVISION: 4.",
            "# R36 (release), REVISION: 4.999999999999999999999999",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
