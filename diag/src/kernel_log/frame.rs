//! Parts around a message: time, driver, device, function, level.

use crate::kernel_log::lines::Source;

pub use crate::kernel_log::time::Time;
use crate::kernel_log::time::timestamp;

/// A line without its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Time.
    pub time: Option<Time>,
    /// Driver that printed it.
    pub source: Source,
    /// The device: a platform name such as `17000000.gpu`, a PCI address, or a chip.
    pub device: Option<&'a str>,
    /// Function in the driver.
    pub function: Option<&'a str>,
    /// Level in nvgpu's frame: `ERR`, `WRN`, `INFO` or `DBG`.
    pub level: Option<&'a str>,
    /// Number of the error (Xid lines).
    pub xid: Option<u32>,
    /// Process (Xid lines).
    pub pid: Option<u32>,
    /// Its name (Xid lines).
    pub comm: Option<&'a str>,
    /// The message.
    pub message: &'a str,
}

/// Takes the frame off a line; `None` for lines of other sources.
#[must_use]
pub fn unframe(line: &str) -> Option<Frame<'_>> {
    let (time, text) = timestamp(line);
    let framed = nvgpu(text)
        .or_else(|| gk20a(text))
        .or_else(|| dump(text))
        .or_else(|| xid(text))
        .or_else(|| software(text));
    framed.or_else(|| behind(text)).or_else(|| pcie(text)).or_else(|| other(text)).map(|mut frame| {
        frame.time = time;
        frame
    })
}

/// Whether a line carries a frame or a time of its own, so that it cannot be the rest of the line before it.
#[must_use]
pub fn stands_alone(line: &str) -> bool {
    timestamp(line).0.is_some() || unframe(line).is_some()
}

/// Whether a line begins with a time.
#[must_use]
pub fn has_time(line: &str) -> bool {
    timestamp(line).0.is_some()
}

/// The machine that a line of syslog names, before `kernel: `.
pub(super) fn host(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(" kernel: ")?;
    let name = before.rsplit(' ').next()?;
    (!name.contains([':', ']', '>']) && !name.is_empty()).then_some(name)
}

/// Whether a line of syslog is a program's, `name[123]: `.
pub(super) fn is_of_program(line: &str) -> bool {
    line.match_indices("]: ").any(|(at, _)| {
        let digits = line[..at].len() - line[..at].trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let open = at - digits;
        digits > 0 && line[..open].ends_with('[') && line[..open - 1].ends_with(|c: char| c.is_alphanumeric())
    })
}

/// Whether a line of nvgpu ends where its message should begin: wrapped behind the level, or before it.
#[must_use]
pub fn lacks_message(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("nvgpu: ") else { return false };
    let rest = rest.trim_end();
    let is_site = |word: &str| {
        let line = word.rsplit_once(':').map(|(_, line)| line);
        word.ends_with(".gpu") || line.is_some_and(|line| line.parse::<u32>().is_ok())
    };
    let is_head = !rest.contains('[') && rest.split_whitespace().count() <= 2;
    rest.ends_with("[ERR]")
        || rest.ends_with("[WRN]")
        || is_head && rest.split_whitespace().last().is_some_and(is_site)
}

const fn bare(source: Source, message: &str) -> Frame<'_> {
    Frame {
        time: None,
        source,
        device: None,
        function: None,
        level: None,
        xid: None,
        pid: None,
        comm: None,
        message,
    }
}

/// `nvgpu: {device} {function}:{line} [{level}]  {message}`
fn nvgpu(text: &str) -> Option<Frame<'_>> {
    let rest = &text[text.find(NVGPU)? + NVGPU.len()..];
    let (device, rest) = rest.split_once(' ')?;
    let (site, rest) = rest.split_once('[')?;
    let (level, message) = rest.split_once(']')?;
    if !matches!(level, "ERR" | "WRN" | "DBG" | "INFO") {
        return None;
    }
    let function = site.trim().rsplit_once(':').map_or(site.trim(), |(function, _)| function);
    let message = message.trim_start_matches(' ');
    Some(Frame {
        device: Some(device),
        function: Some(function),
        level: Some(level),
        ..bare(Source::Nvgpu, message)
    })
}

/// `gk20a {device}: {function}: {message}`, as releases up to r28 print it.
fn gk20a(text: &str) -> Option<Frame<'_>> {
    let rest = &text[text.find(GK20A)? + GK20A.len()..];
    let (device, rest) = rest.split_once(": ")?;
    let (function, message) = rest.split_once(": ").filter(|(function, _)| !function.contains(' '))?;
    let level = Some("ERR");
    let frame = bare(Source::Nvgpu, message.trim_start());
    device.contains('.').then_some(Frame { device: Some(device), function: Some(function), level, ..frame })
}

/// `__{chip}__ {text}`
fn dump(text: &str) -> Option<Frame<'_>> {
    let rest = &text[text.find(DUMP)? + 2..];
    let (chip, message) = rest.split_once("__")?;
    let is_chip = chip.len() <= 8 && chip.bytes().all(|b| b.is_ascii_alphanumeric());
    is_chip.then(|| Frame { device: Some(chip), ..bare(Source::Dump, message.trim_start_matches(' ')) })
}

/// `ga10b: warp error {message}`: the software ga10b's own report, before its driver's.
fn software(text: &str) -> Option<Frame<'_>> {
    let message = text.strip_prefix(SOFTWARE).filter(|message| message.starts_with("warp error "))?;
    Some(Frame { device: Some("17000000.gpu"), ..bare(Source::Nvgpu, message) })
}

/// `NVRM: Xid (PCI:{address}): {number}, pid={pid}, name={comm}, {message}`
fn xid(text: &str) -> Option<Frame<'_>> {
    let rest = &text[text.find(XID)? + XID.len()..];
    let (device, rest) = rest.split_once("): ")?;
    let (number, mut message) = rest.split_once(", ")?;
    let number = number.trim().parse().ok()?;
    let (mut pid, mut comm) = (None, None);
    if let Some((value, rest)) = message.strip_prefix("pid=").and_then(|m| m.split_once(", ")) {
        pid = value.parse().ok();
        message = rest;
        // A name may contain a comma; a message begins with a capital, or with the word channel.
        if let Some(named) = message.strip_prefix("name=") {
            let ends = |at: &usize| {
                let next = &named[at + 2..];
                next.starts_with("channel ")
                    || next.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
            };
            let cut = named.match_indices(", ").map(|(at, _)| at).find(ends);
            let cut = cut.or_else(|| named.find(", "));
            (comm, message) = match cut {
                Some(at) => (Some(&named[..at]), &named[at + 2..]),
                None => (Some(named), ""),
            };
        }
    }
    let device = device.strip_prefix("PCI:").unwrap_or(device);
    let comm = comm.filter(|name| *name != "<unknown>");
    Some(Frame { device: Some(device), xid: Some(number), pid, comm, ..bare(Source::Xid, message) })
}

/// Beginnings of lines whose shape begins with the name of their driver.
const BEGINNINGS: [&str; 22] = [
    "arm-smmu ",
    "tegra-mc ",
    "nvmap: ",
    "nvmap_",
    "NvMap: ",
    "Unknown NVMAP_IOC",
    "nvgpu_error_notifier",
    "INFO: task ",
    "nouveau ",
    "SM ",
    "NVRM: ",
    "Loading of module with unavailable key",
    "Failed to insert module '",
    "could not insert '",
    "host1x ",
    "mc-err: ",
    "SXid (",
    "Out of memory: Kill",
    "Memory cgroup out of memory: Kill",
    "soctherm: ",
    "thermal thermal_zone",
    "reboot: HARDWARE PROTECTION",
];
/// Messages behind the name of a module or a device.
const BEHIND: [&str; 4] = [
    ": disagrees about version of symbol ",
    ": version magic ",
    ": Direct firmware load for ",
    ": Loading of module with unavailable key",
];
/// Drivers of a PCIe port and of a GPU behind one.
const PCIE: [&str; 2] = ["pcieport ", "nvidia "];
/// Beginnings of the other frames.
const NVGPU: &str = "nvgpu: ";
const GK20A: &str = "gk20a ";
const DUMP: &str = "__g";
const XID: &str = "NVRM: Xid (";
const SOFTWARE: &str = "ga10b: ";

/// No frame is without one of these.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    [NVGPU, GK20A, DUMP, XID, SOFTWARE].into_iter().chain(BEGINNINGS).chain(BEHIND).chain(PCIE)
}

/// `{driver} {address}: {message}`, with the part of the kernel in front of the message.
fn pcie(text: &str) -> Option<Frame<'_>> {
    let (_, rest) = PCIE.iter().find_map(|driver| text.split_once(driver))?;
    let (device, message) = rest.split_once(": ")?;
    let is_address = device.len() == 12 && device.split([':', '.']).count() == 4;
    let parts = ["AER: ", "DPC: ", "pciehp: "];
    let message = parts.iter().find_map(|part| message.strip_prefix(part)).unwrap_or(message);
    is_address.then(|| Frame { device: Some(device), ..bare(Source::Pcie, message) })
}

/// The address of the GPU in a line of nouveau or of the desktop driver.
fn pci(text: &str) -> Option<&str> {
    let text = text.strip_prefix("nouveau ").or_else(|| text.strip_prefix("NVRM: GPU "))?;
    text.split_once(": ").map(|(address, _)| address).filter(|address| address.len() == 12)
}

/// Messages behind the name of a module or a device.
fn behind(text: &str) -> Option<Frame<'_>> {
    let at = BEHIND.iter().find_map(|message| text.find(message))?;
    let word = |end: usize| text[..end].rfind(' ').map_or(0, |blank| blank + 1);
    let start = word(at);
    // A driver's name stands before that of its device.
    let before = word(start.saturating_sub(1));
    let is_name =
        text[before..start].bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b' '));
    let start = if is_name { before } else { start };
    Some(bare(Source::Other, &text[start..]))
}

/// Lines whose shape begins with the name of their driver.
fn other(text: &str) -> Option<Frame<'_>> {
    let at = BEGINNINGS.iter().filter_map(|beginning| text.find(beginning)).min()?;
    // Only a log's own prefix may stand in front of a message: `host kernel: `.
    (at == 0 || text[..at].ends_with([' ', ':', ',', '"', '>', '|', ']', '\t', '-']))
        .then(|| Frame { device: pci(&text[at..]), ..bare(Source::Other, &text[at..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_time_is_taken_off() {
        for (line, micros) in [
            ("[  812.004113] nvgpu: d f:1 [ERR]  x", Some(812_004_113)),
            ("<3>[  812.004113] nvgpu: d f:1 [ERR]  x", Some(812_004_113)),
            ("3,12,812004113,-;nvgpu: d f:1 [ERR]  x", Some(812_004_113)),
            ("Feb 15 17:37:45 host kernel: [  812.004113] nvgpu: d f:1 [ERR]  x", Some(812_004_113)),
            ("Feb 01 00:00:45 host kernel: nvgpu: d f:1 [ERR]  x", Some((32 * 24 * 3600 + 45) * 1_000_000)),
            ("[Wed Jun 01 00:00:20 2026] nvgpu: d f:1 [ERR]  x", Some(1_780_272_020_000_000)),
            ("kern  :err   : [  812.004113] nvgpu: d f:1 [ERR]  x", Some(812_004_113)),
            ("2026-11-01T00:00:20,123456+00:00 nvgpu: d f:1 [ERR]  x", Some(1_793_491_220_123_456)),
            (
                "2026-11-01T00:00:20.123456+00:00 host kernel: nvgpu: d f:1 [ERR]  x",
                Some(1_793_491_220_123_456),
            ),
            ("[  +0.000012] nvgpu: d f:1 [ERR]  x", None),
            ("nvgpu: d f:1 [ERR]  x", None),
        ] {
            let frame = unframe(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((frame.time.map(|t| t.micros), frame.message), (micros, "x"), "{line}");
            assert_eq!((frame.device, frame.function), (Some("d"), Some("f")));
        }
    }

    #[test]
    fn xid_frames_name_the_process() {
        let line = "NVRM: Xid (PCI:0000:c1:00 GPU-I:05 GPU-CI:00): 13, pid=4242, name=a, b, Graphics x";
        let frame = unframe(line).expect("a frame");
        assert_eq!((frame.xid, frame.pid, frame.comm), (Some(13), Some(4242), Some("a, b")));
        assert_eq!((frame.device, frame.message), (Some("0000:c1:00 GPU-I:05 GPU-CI:00"), "Graphics x"));
        let line = "NVRM: Xid (PCI:0000:c1:00): 45, pid='<unknown>', name=<unknown>, Ch 00000008";
        let frame = unframe(line).expect("a frame");
        assert_eq!((frame.pid, frame.comm, frame.message), (None, None, "Ch 00000008"));
    }

    #[test]
    fn lines_of_nobody_we_know_are_left() {
        for line in ["", "hello", "[   1.000000] usb 1-1: new device", "nvgpu: ", "__ga10b"] {
            assert_eq!(unframe(line), None, "{line}");
        }
    }
}
