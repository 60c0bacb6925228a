//! Wrappings of log lines by tools: colours, JSON records, CSV, HTML, logcat, container runtimes.
//!
//! Each physical line becomes the lines that the kernel printed, with the time in a form that
//! [`unframe`](crate::kernel_log::frame::unframe) reads. A line without any of this stays as it is.

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value};

use crate::kernel_log::frame::has_time;

/// Bytes of a message that are kept.
const MAX_MESSAGE: usize = 2048;
/// Bytes of a record on several lines that are collected.
const MAX_RECORD: usize = 1 << 16;
/// A driver's message begins with one of these.
const DRIVERS: [&str; 6] = ["nvgpu: ", "NVRM: ", "__ga10b__", "arm-smmu ", "tegra-mc ", "nvmap"];

/// Takes the messages out of what surrounds them.
#[derive(Debug, Default)]
pub(super) struct Unpacker {
    /// A JSON object that began on an earlier line, and the number of that line.
    record: Option<(u64, String)>,
    /// The time of the entry of `journalctl -o verbose` that is being read.
    entry: Option<String>,
}

impl Unpacker {
    /// Whether no record is being collected.
    pub(super) fn is_between_records(&self) -> bool {
        self.record.is_none()
    }

    /// Hands out the lines of the kernel that a line of the file holds, each with its number.
    pub(super) fn take(&mut self, number: u64, line: &str, out: &mut dyn FnMut(u64, &str)) {
        let trimmed = line.trim().trim_start_matches([',', '[']);
        if trimmed == "{" || trimmed.ends_with("},{") || trimmed.ends_with("}, {") {
            self.end(out);
            self.record = Some((number, "{".to_owned()));
            return;
        }
        if let Some((_, record)) = &mut self.record {
            if trimmed.starts_with('}') {
                self.end(out);
                return;
            }
            if is_field(trimmed) && record.len() + trimmed.len() < MAX_RECORD {
                record.push_str(trimmed);
                return;
            }
            self.record = None;
        }
        // `journalctl -o verbose`: a line with time and cursor, then one for each field.
        if let Some((time, _)) = trimmed.split_once(" [s=") {
            self.entry = Some(time.to_owned());
            return;
        }
        if let Some(time) = self.entry.as_ref().filter(|_| line.starts_with("    ")) {
            if let Some(message) = line.trim_start().strip_prefix("MESSAGE=") {
                let of_message = if has_time(message) { String::new() } else { format!("[{time}] ") };
                give(number, &(of_message + message), out);
            }
            return;
        }
        self.entry = None;
        if let Some(value) = json(trimmed) {
            return messages(&value, &mut |text| give(number, text, out));
        }
        match is_plain(line) {
            true => out(number, line),
            false => give(number, line, out),
        }
    }

    /// Takes the end of a record, or of the log.
    pub(super) fn end(&mut self, out: &mut dyn FnMut(u64, &str)) {
        let Some((number, mut record)) = self.record.take() else { return };
        // The last field of a record that was cut short has a comma behind it.
        record.truncate(record.trim_end_matches(',').len());
        record.push('}');
        if let Some(value) = json(&record) {
            messages(&value, &mut |text| give(number, text, out));
        }
    }
}

fn give(number: u64, text: &str, out: &mut dyn FnMut(u64, &str)) {
    for line in text.lines() {
        let line = bare(line);
        out(number, &line[..line.floor_char_boundary(MAX_MESSAGE)]);
    }
}

/// Whether nothing of a line has to be taken off; most lines end here.
fn is_plain(line: &str) -> bool {
    /// Signs that only lines have that a tool changed.
    const SIGNS: [&str; 8] = ["0m", "^[[", " F ", " P ", "nvgpu ", "nvgpu(", " MMU FAULT ", "</"];
    static WORDS: LazyLock<Option<AhoCorasick>> =
        LazyLock::new(|| AhoCorasick::new(SIGNS.iter().chain(&DRIVERS)).ok());
    if line.len() > MAX_MESSAGE || line.bytes().any(|b| b < b' ' || matches!(b, 0x7f | b'"' | b'&')) {
        return false;
    }
    let Some(words) = WORDS.as_ref() else { return false };
    let mut driver = None;
    for hit in words.find_overlapping_iter(line) {
        match hit.pattern().as_usize() < SIGNS.len() {
            true => return false,
            false => driver = driver.or(Some(hit.start())),
        }
    }
    match driver {
        None => true,
        Some(0) => line.contains("[ERR]") || !line.starts_with("nvgpu: "),
        Some(at) => {
            let framed = line.contains("[ERR]") || !line[at..].starts_with("nvgpu: ");
            framed && !line[..at].contains('>') && has_time(line)
        }
    }
}

/// Whether a line has a time or the name of a driver, so that it is not the rest of the line before it.
pub(super) fn is_of_driver(line: &str) -> bool {
    has_time(line) || DRIVERS.iter().any(|driver| line.contains(driver))
}

/// Whether a line can be a field of a record, or of an array in one.
fn is_field(line: &str) -> bool {
    let item = line.trim_end_matches(',');
    line.starts_with('"') || item == "]" || item.ends_with('[') || item.parse::<f64>().is_ok()
}

fn json(text: &str) -> Option<Value> {
    let text = text.trim_end_matches([',', ']']);
    text.starts_with('{').then(|| serde_json::from_str(text).ok())?
}

/// The messages of a record: journald's, a container runtime's, `dmesg --json`'s, or an array of them.
fn messages(value: &Value, out: &mut dyn FnMut(&str)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| messages(item, out)),
        Value::Object(fields) => {
            let named =
                ["MESSAGE", "message", "msg", "log"].iter().find_map(|name| text_of(fields.get(*name)?));
            match named {
                Some(text) if has_time(&text) => out(&text),
                Some(text) => out(&(time_of(fields).unwrap_or_default() + &text)),
                None => {
                    fields.values().filter(|v| v.is_array() || v.is_object()).for_each(|v| messages(v, out))
                }
            }
        }
        _ => {}
    }
}

/// A text; journald stores one with control characters as an array of bytes.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let bytes: Option<Vec<u8>> = items.iter().map(|b| u8::try_from(b.as_u64()?).ok()).collect();
            Some(String::from_utf8_lossy(&bytes?).into_owned())
        }
        _ => None,
    }
}

/// The time of a record, in front of a message.
fn time_of(fields: &Map<String, Value>) -> Option<String> {
    let micros = |name: &str| fields.get(name)?.as_str()?.parse::<u64>().ok();
    if let Some(micros) = micros("_SOURCE_MONOTONIC_TIMESTAMP")
        .or_else(|| micros("__MONOTONIC_TIMESTAMP"))
        .or_else(|| micros("__REALTIME_TIMESTAMP"))
    {
        return Some(format!("[{}.{:06}] ", micros / 1_000_000, micros % 1_000_000));
    }
    match ["time", "timestamp", "@timestamp", "date"].iter().find_map(|name| fields.get(*name))? {
        Value::Number(seconds) => Some(format!("[{:.6}] ", seconds.as_f64()?)),
        Value::String(text) => Some(format!("{text} ")),
        _ => None,
    }
}

/// A line without what surrounds it.
fn bare(line: &str) -> String {
    let line = anstream::adapter::strip_str(line).to_string();
    let line = without_codes(&line);
    let line: String = line.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    let line = without_markup(&line);
    let line = of_runtime(&line).unwrap_or(line);
    let line = of_logcat(&line).unwrap_or(line);
    let line = of_table(&line).unwrap_or(line);
    brackets(&line).unwrap_or(line)
}

/// Without colours whose escape character was lost or shown as `^[`.
fn without_codes(line: &str) -> Cow<'_, str> {
    if !line.contains("0m") && !line.contains("^[[") {
        return Cow::Borrowed(line);
    }
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('[') {
        let code = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        let len = rest.len() - code.len();
        text.push_str(&rest[..at]);
        let is_shown = text.ends_with("^[");
        if code.starts_with(['m', 'K']) && (is_shown || len > at + 1) {
            text.truncate(text.len() - if is_shown { 2 } else { 0 });
            rest = &rest[len + 1..];
        } else {
            text.push('[');
            rest = &rest[at + 1..];
        }
    }
    Cow::Owned(text + rest)
}

/// Without the elements of a web page, and with its entities as characters.
fn without_markup(line: &str) -> String {
    const ELEMENTS: [&str; 15] =
        ["a", "b", "br", "code", "div", "em", "font", "i", "li", "p", "pre", "span", "strong", "td", "tr"];
    const ENTITIES: [(&str, &str); 10] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&nbsp;", " "),
        ("&#39;", "'"),
        ("&#34;", "\""),
        ("&#91;", "["),
        ("&#93;", "]"),
        ("&apos;", "'"),
        // Last, so that the text behind it is not read twice.
        ("&amp;", "&"),
    ];
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('<') {
        let inside = rest[at + 1..].split_once('>').map(|(inside, _)| inside);
        let name = inside.map(|inside| inside.trim_matches('/').split([' ', '/']).next().unwrap_or_default());
        let is_element = name.is_some_and(|name| ELEMENTS.contains(&name.to_ascii_lowercase().as_str()));
        text.push_str(&rest[..at]);
        match inside.filter(|_| is_element) {
            Some(inside) => rest = &rest[at + inside.len() + 2..],
            None => {
                text.push('<');
                rest = &rest[at + 1..];
            }
        }
    }
    text.push_str(rest);
    if text.contains('&') {
        ENTITIES.iter().for_each(|(entity, character)| text = text.replace(entity, character));
    }
    text
}

/// A line of a container runtime (CRI): `TIME stdout F MESSAGE`.
fn of_runtime(line: &str) -> Option<String> {
    let mut parts = line.splitn(4, ' ');
    let (time, stream, part, message) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let fits = matches!(stream, "stdout" | "stderr") && matches!(part, "F" | "P");
    fits.then(|| if has_time(message) { message.to_owned() } else { format!("{time} {message}") })
}

/// A line of Android's logcat: `MM-DD TIME PID TID E TAG : MESSAGE`, or `E/TAG( PID): MESSAGE`.
fn of_logcat(line: &str) -> Option<String> {
    let is_level = |text: &str| matches!(text, "V" | "D" | "I" | "W" | "E" | "F");
    if let Some((_, rest)) = line.split_once('/').filter(|(level, _)| is_level(level)) {
        let (tag, rest) = rest.split_once('(')?;
        let (_, message) = rest.split_once("): ").filter(|(pid, _)| pid.trim().parse::<u32>().is_ok())?;
        return Some(format!("{}: {message}", tag.trim()));
    }
    let (head, message) = line.split_once(": ")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let [_, clock, pid, tid, level, tag @ ..] = words.as_slice() else { return None };
    if !is_level(level) || pid.parse::<u32>().is_err() || tid.parse::<u32>().is_err() || tag.is_empty() {
        return None;
    }
    let clock = clock.split_once('.').map_or(*clock, |(seconds, _)| seconds);
    Some(format!("[{clock}] {}: {message}", tag.join(" ")))
}

/// A row of a table (CSV): the field that holds the message, and the time of another one.
fn of_table(line: &str) -> Option<String> {
    let at = DRIVERS.iter().filter_map(|driver| line.find(driver)).min()?;
    let (before, from) = line.split_at(at);
    let is_quoted = before.matches('"').count() % 2 == 1;
    if !is_quoted && (!before.contains(',') || has_time(line)) {
        return None;
    }
    let start = if is_quoted { before.rfind('"')? + 1 } else { at };
    let end = if is_quoted { closing_quote(from).map_or(line.len(), |end| at + end) } else { line.len() };
    let message = line[start..end].replace("\"\"", "\"");
    if has_time(&message) {
        return Some(message);
    }
    let is_seconds = |field: &&str| {
        let parts = field.split_once('.');
        parts.is_some_and(|(s, f)| f.len() == 6 && (s.to_owned() + f).bytes().all(|b| b.is_ascii_digit()))
    };
    let mut fields = before.split([',', '"', '|']).map(str::trim);
    let time = fields.clone().find(is_seconds).map(|seconds| format!("[{seconds}] "));
    let time = time.or_else(|| fields.find(|f| has_time(&format!("{f} x"))).map(|f| format!("{f} ")));
    Some(time.unwrap_or_default() + &message)
}

/// Returns the end of a quoted field: a quote that is neither doubled nor escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += text.get(at..)?.find('"')?;
        match (bytes.get(at + 1), at.checked_sub(1).and_then(|before| bytes.get(before))) {
            (Some(b'"'), _) => at += 2,
            (_, Some(b'\\')) => at += 1,
            _ => return Some(at),
        }
    }
}

/// With the brackets that a forum's markup removes: of the time, the level, and the MMU's lines.
fn brackets(line: &str) -> Option<String> {
    let trimmed = line.trim_start_matches(['>', '|', '`', '"', ' ']);
    let at = trimmed.find("nvgpu: ")?;
    let (before, from) = trimmed.split_at(at);
    let seconds = before.trim().trim_matches(['(', ')']);
    let is_seconds = seconds
        .split_once('.')
        .is_some_and(|(s, f)| s.parse::<u64>().is_ok() && f.len() == 6 && f.parse::<u32>().is_ok());
    let before = if is_seconds { format!("[{seconds}] ") } else { before.to_owned() };
    let mut from = from.to_owned();
    let level = ["ERR", "WRN", "INFO", "DBG"].into_iter().find(|l| from.contains(&format!("[{l}]")));
    if level.is_none() {
        // `nvgpu: DEVICE FUNCTION:LINE ERR MESSAGE`
        let words: Vec<&str> = from.split_whitespace().take(4).collect();
        if let [_, _, site, level] = words.as_slice()
            && site.rsplit_once(':').is_some_and(|(_, line)| line.parse::<u32>().is_ok())
            && let Some(name) =
                ["ERR", "WRN", "INFO", "DBG"].iter().find(|n| level.trim_matches(['(', ')', '*', ':']) == **n)
        {
            from = from.replacen(level, &format!("[{name}]"), 1);
        }
    }
    for line in ["mmu engine id:", "protected mode:"] {
        from = from.replace(&format!(" MMU FAULT {line}"), &format!(" [MMU FAULT] {line}"));
    }
    Some(before + &from)
}
