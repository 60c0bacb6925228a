//! Parts around a message: time, driver, device, function, level.

use std::fmt;

use crate::kernel_log::lines::Source;

/// Time of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Microseconds since boot, or since midnight where only the time of day is known.
    pub micros: u64,
    /// Resolution, in microseconds.
    pub grain: u64,
}

impl Time {
    /// Whether another line is close enough to belong to the same fault: 50 ms, or the grain of the clock.
    #[must_use]
    pub fn is_near(self, other: Self) -> bool {
        const GAP: u64 = 50_000;
        self.micros.abs_diff(other.micros) <= GAP.max(self.grain).max(other.grain)
    }
}

/// `812.004113 s` since boot, `16:42:53` of a day of which the date is all that is known.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.micros / 1_000_000;
        if self.grain == 1 {
            return write!(f, "{seconds}.{:06} s", self.micros % 1_000_000);
        }
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        write!(f, "{:02}:{:02}:{:02}", hours % 24, minutes % 60, seconds % 60)?;
        match hours / 24 {
            0 => Ok(()),
            day => write!(f, " of day {day}"),
        }
    }
}

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
    let framed = nvgpu(text).or_else(|| dump(text)).or_else(|| xid(text)).or_else(|| software(text));
    framed.or_else(|| other(text)).map(|mut frame| {
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
const BEGINNINGS: [&str; 10] = [
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
];
/// Beginnings of the other frames.
const NVGPU: &str = "nvgpu: ";
const DUMP: &str = "__g";
const XID: &str = "NVRM: Xid (";
const SOFTWARE: &str = "ga10b: ";

/// No frame is without one of these.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    [NVGPU, DUMP, XID, SOFTWARE].into_iter().chain(BEGINNINGS)
}

/// Lines whose shape begins with the name of their driver.
fn other(text: &str) -> Option<Frame<'_>> {
    let at = BEGINNINGS.iter().filter_map(|beginning| text.find(beginning)).min()?;
    // Only a log's own prefix may stand in front of a message: `host kernel: `.
    (at == 0 || text[..at].ends_with([' ', ':', ',', '"', '>', '|', ']', '\t']))
        .then(|| bare(Source::Other, &text[at..]))
}

/// Takes the time off the start of a line: `[  812.004113] `, `[Wed Jun 24 15:44:20 2026] `, syslog's
/// `Feb 15 17:37:45 host kernel: ` with or without the first form behind it, `/dev/kmsg`'s
/// `6,1234,812004113,-;`, a priority `<3>`, the level of `dmesg -x`, and the times of `dmesg -e` and
/// `--time-format iso`.
fn timestamp(line: &str) -> (Option<Time>, &str) {
    let line = line.trim_start();
    if let Some((header, text)) = line.split_once(';') {
        let mut fields = header.split(',');
        let number = |field: Option<&str>| field.filter(|f| f.len() <= 20)?.parse::<u64>().ok();
        if let (Some(_), Some(_), Some(micros)) =
            (number(fields.next()), number(fields.next()), number(fields.next()))
        {
            return (Some(Time { micros, grain: 1 }), text);
        }
    }
    let line = match line.strip_prefix('<').and_then(|l| l.split_once('>')) {
        Some((priority, text)) if priority.len() <= 3 && priority.bytes().all(|b| b.is_ascii_digit()) => text,
        _ => line,
    };
    let line = without_level(line);
    let bracketed = |text: &str| -> Option<Time> {
        let inner = text.strip_prefix('[')?.split_once(']')?.0.trim();
        match inner.split_once('.') {
            Some((seconds, fraction)) if fraction.len() == 6 => {
                let seconds: u64 = seconds.parse().ok()?;
                let micros = seconds.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?)?;
                Some(Time { micros, grain: 1 })
            }
            Some(_) => None,
            None => time_of_day(inner),
        }
    };
    // `dmesg -e` and `-H` give most lines the time since the one before alone.
    if let Some((since, text)) = line.strip_prefix("[").and_then(|l| l.split_once(']'))
        && since.trim_start().starts_with('+')
    {
        return (None, text.trim_start());
    }
    if let Some((first, text)) = line.split_once(' ')
        && first.len() >= 19
        && first.as_bytes().get(10) == Some(&b'T')
        && !line.contains(" kernel: ")
    {
        return (time_of_day(first), text);
    }
    if let Some(time) = bracketed(line) {
        return (Some(time), line.split_once(']').map_or("", |(_, rest)| rest.trim_start()));
    }
    if let Some((before, after)) = line.split_once(" kernel: ") {
        let time = bracketed(after).or_else(|| time_of_day(before));
        return (time, after);
    }
    (None, line)
}

/// A line without the facility and level that `dmesg -x` puts in front, `kern  :err   : `.
fn without_level(line: &str) -> &str {
    const FACILITIES: [&str; 5] = ["kern", "user", "daemon", "syslog", "local0"];
    let rest = |facility: &&str| {
        let (level, text) = line.strip_prefix(*facility)?.trim_start().strip_prefix(':')?.split_once(':')?;
        let is_level = level.trim().bytes().all(|b| b.is_ascii_lowercase()) && level.len() <= 8;
        is_level.then(|| text.trim_start())
    };
    FACILITIES.iter().find_map(rest).unwrap_or(line)
}

/// The first `hh:mm:ss` in `text`, as time since midnight of a day that its date numbers.
fn time_of_day(text: &str) -> Option<Time> {
    let mut parts = text.split([' ', 'T']).filter(|part| !part.is_empty());
    let mut day = 0;
    let clock = parts.find(|part| {
        if let Ok(number) = part.parse::<u64>()
            && number <= 31
        {
            day = number;
        }
        part.split(':').count() >= 3
    })?;
    let mut fields = clock.split(':').map(|field| field.get(..2)?.parse::<u64>().ok());
    let (hours, minutes, seconds) = (fields.next()??, fields.next()??, fields.next()??);
    let micros = (((day * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000;
    Some(Time { micros, grain: 1_000_000 })
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
            ("Feb 01 00:00:45 host kernel: nvgpu: d f:1 [ERR]  x", Some((24 * 3600 + 45) * 1_000_000)),
            ("[Wed Jun 01 00:00:20 2026] nvgpu: d f:1 [ERR]  x", Some((24 * 3600 + 20) * 1_000_000)),
            ("kern  :err   : [  812.004113] nvgpu: d f:1 [ERR]  x", Some(812_004_113)),
            ("2026-11-01T00:00:20,123456+00:00 nvgpu: d f:1 [ERR]  x", Some(20_000_000)),
            ("2026-11-01T00:00:20.123456+00:00 host kernel: nvgpu: d f:1 [ERR]  x", Some(20_000_000)),
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
        for line in
            ["", "hello", "[   1.000000] usb 1-1: new device", "nvgpu: ", "__ga10b", "NVRM: Xid (PCI:1): x, "]
        {
            assert_eq!(unframe(line), None, "{line}");
        }
    }
}
