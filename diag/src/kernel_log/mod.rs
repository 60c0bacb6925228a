//! The kernel log: bytes in, entries out. Streaming, with a bound on every line, so that any file will do.

mod container;
mod dull;
pub(crate) mod frame;
pub(crate) mod lines;
pub(crate) mod shape;
mod stray;
pub(crate) mod time;

use container::Unpacker;
use serde::Serialize;

pub use frame::{Frame, Time, unframe};
pub use lines::{Kind, Role, Source, read};
pub(crate) use stray::says_failure;

pub use shape::{Fields, Reading, Shape, Value};

/// Bytes of a line that are read. A message of the kernel has 1024 at most; collectors of logs store it in a
/// record with labels.
pub const MAX_LINE: usize = 16 << 10;

/// A line that was understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Number of the line, from 1.
    pub line: u64,
    /// Time, in µs, as exact as the log has it.
    #[serde(skip)]
    pub time: Option<Time>,
    /// Kind of the line.
    pub kind: Kind,
    /// The device it names.
    pub device: Option<String>,
    /// The machine that syslog names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Number of the error (Xid lines).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// Process (Xid lines).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name (Xid lines).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Values in the message.
    pub fields: Fields,
    /// Fields lost because the line is cut short.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<&'static str>,
    /// The message as printed.
    pub text: String,
}

/// Result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// An entry.
    Entry(Entry),
    /// A line of a GPU driver, or one about a GPU's error, whose shape is not known.
    Unknown(Unread),
}

/// A line without a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Number of the line, from 1.
    pub line: u64,
    /// Time.
    pub time: Option<Time>,
    /// Origin; [`Source::Other`] without the frame of a GPU driver.
    pub source: Source,
    /// Whether it reports a failure: by its level, or for lines without one by its words.
    pub is_error: bool,
    /// The whole line.
    pub text: String,
}

/// Reads a line; `None` for lines of other sources.
#[must_use]
pub fn parse(number: u64, line: &str) -> Option<Parsed> {
    let frame = unframe(line);
    let reading = frame.as_ref().and_then(|frame| read(frame.source, frame.message));
    let level = frame.as_ref().and_then(|frame| frame.level);
    let reading = reading.filter(|(kind, _)| may_have_level(*kind, level));
    let (Some(frame), Some((kind, reading))) = (&frame, reading) else {
        return unread(number, line, frame.as_ref()).map(Parsed::Unknown);
    };
    Some(Parsed::Entry(Entry {
        line: number,
        time: frame.time,
        kind,
        device: frame.device.map(str::to_owned),
        host: frame::host(line).map(str::to_owned),
        xid: frame.xid,
        pid: frame.pid,
        comm: frame.comm.map(str::to_owned),
        fields: reading.fields,
        missing: reading.missing,
        text: frame.message.trim_end().to_owned(),
    }))
}

/// Whether a line of that level can be of that kind: what a driver prints for information is no fault,
/// whatever it reads like. A failed allocation is one, in all releases.
fn may_have_level(kind: Kind, level: Option<&str>) -> bool {
    match (kind.role(), level) {
        (Role::Trace | Role::Dump | Role::Harmless, _) => true,
        (Role::Detail, Some("INFO")) => false,
        (Role::Detail, _) => true,
        (_, Some("INFO" | "DBG")) => kind == Kind::AllocationFailed,
        _ => true,
    }
}

/// A line without a shape; `None` if it has no frame of a GPU driver and is not about a GPU either.
fn unread(number: u64, line: &str, frame: Option<&Frame<'_>>) -> Option<Unread> {
    let (source, is_error) = match frame {
        Some(frame) if frame.source == Source::Pcie => return None,
        Some(frame) if frame.source != Source::Other => {
            (frame.source, frame.source == Source::Xid || frame.level == Some("ERR"))
        }
        _ if frame::is_of_program(line) => return None,
        _ => (Source::Other, stray::of_gpu(line)? == stray::Says::Error),
    };
    let time = frame.and_then(|frame| frame.time);
    Some(Unread { line: number, time, source, is_error, text: line.trim().to_owned() })
}

/// Cuts a stream of bytes into lines and reads them. Holds one line at most.
#[derive(Debug, Default)]
pub struct Reader {
    /// The line being collected, at most [`MAX_LINE`] bytes of it.
    pending: Vec<u8>,
    /// A cut line of a driver, until it is known whether the next one is its rest.
    held: Option<(u64, String)>,
    unpacker: Unpacker,
    number: u64,
}

impl Reader {
    /// A reader at the start of a log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes, and passes on the entries of the lines they end.
    pub fn feed(&mut self, bytes: &[u8], out: &mut dyn FnMut(Parsed)) {
        let mut rest = bytes;
        loop {
            if self.pending.is_empty() && self.held.is_none() && self.unpacker.is_between_records() {
                let (dull, lines) = dull::prefix(rest);
                self.number += lines;
                rest = &rest[dull..];
            }
            let Some(end) = memchr::memchr(b'\n', rest) else { break };
            self.collect(&rest[..end]);
            self.line(out);
            rest = &rest[end + 1..];
        }
        self.collect(rest);
    }

    /// Takes the end of the log.
    pub fn finish(&mut self, out: &mut dyn FnMut(Parsed)) {
        if !self.pending.is_empty() {
            self.line(out);
        }
        self.unpack(out, Unpacker::end);
        self.release(out);
    }

    /// Lines seen so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.number
    }

    fn collect(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.pending.len();
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line(&mut self, out: &mut dyn FnMut(Parsed)) {
        self.number += 1;
        let line = String::from_utf8_lossy(&self.pending).trim_end_matches('\r').to_owned();
        self.pending.clear();
        if line.starts_with('#') {
            return;
        }
        let number = self.number;
        self.unpack(out, |unpacker, out| unpacker.take(number, &line, out));
    }

    /// Reads the lines out of their wrappings.
    fn unpack(
        &mut self,
        out: &mut dyn FnMut(Parsed),
        step: impl FnOnce(&mut Unpacker, &mut dyn FnMut(u64, &str)),
    ) {
        let mut unpacker = std::mem::take(&mut self.unpacker);
        step(&mut unpacker, &mut |number, line| self.message(number, line, out));
        self.unpacker = unpacker;
    }

    /// Takes a line as the kernel printed it.
    fn message(&mut self, at: u64, line: &str, out: &mut dyn FnMut(Parsed)) {
        if let Some((number, first)) = self.held.take() {
            if frame::lacks_message(&first) && !line.trim().is_empty() && !container::is_of_driver(line) {
                return self.read(number, format!("{}  {}", first.trim_end(), line.trim_start()), out);
            }
            if !line.is_empty() && !frame::stands_alone(line) {
                let joined = first.clone() + line;
                let before = parse(number, &first);
                let after = parse(number, &joined);
                if let (Some(Parsed::Entry(before)), Some(Parsed::Entry(after))) = (&before, &after)
                    && after.missing.len() < before.missing.len()
                {
                    // The rest may be cut as well.
                    if after.missing.is_empty() || joined.len() > MAX_LINE {
                        out(Parsed::Entry(after.clone()));
                    } else {
                        self.held = Some((number, joined));
                    }
                    return;
                }
            }
            if let Some(parsed) = parse(number, &first) {
                out(parsed);
            }
        }
        self.read(at, line.to_owned(), out);
    }

    /// Reads a line, unless the next one may be its rest.
    fn read(&mut self, number: u64, line: String, out: &mut dyn FnMut(Parsed)) {
        match parse(number, &line) {
            _ if frame::lacks_message(&line) => self.held = Some((number, line)),
            Some(Parsed::Entry(entry)) if !entry.missing.is_empty() => self.held = Some((number, line)),
            Some(parsed) => out(parsed),
            None => {}
        }
    }

    fn release(&mut self, out: &mut dyn FnMut(Parsed)) {
        if let Some((number, line)) = self.held.take()
            && let Some(parsed) = parse(number, &line)
        {
            out(parsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(log: &str) -> Vec<Entry> {
        let (mut reader, mut found) = (Reader::new(), Vec::new());
        let mut out = |parsed| {
            if let Parsed::Entry(entry) = parsed {
                found.push(entry);
            }
        };
        reader.feed(log.as_bytes(), &mut out);
        reader.finish(&mut out);
        found
    }

    #[test]
    fn a_line_that_a_terminal_wrapped_is_joined() {
        let log = "[  827.004557] nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:294  [ERR]  [MMU FAULT] mmu engine id:  65, \
                   ch id:  506, fault addr: 0xfff3a21000, fault addr aperture: 0, fault type: invalid pte, access type: virt rea\nd, \n\
                   [  827.004569] nvgpu: 17000000.gpu f:1 [ERR]  Failed!\n";
        let found = entries(log);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].fields.text("access"), Some("virt read"));
        assert_eq!(found[0].missing, [""; 0]);
    }

    #[test]
    fn a_cut_line_followed_by_another_is_kept_with_what_it_lacks() {
        let found = entries(
            "nvgpu: 17000000.gpu f:1 [ERR]  error notifier set to 13 for ch\nusb 1-1: new device\nnvgpu: 17000000.gpu f:1 [ERR]  Failed!\n",
        );
        assert_eq!((found.len(), found[0].missing.as_slice()), (2, ["channel", "comm"].as_slice()));
    }

    #[test]
    fn endless_lines_do_not_fill_the_memory() {
        let mut reader = Reader::new();
        let mut count = 0;
        for _ in 0..1000 {
            reader.feed(&[b'x'; 4096], &mut |_| count += 1);
            assert!(reader.pending.len() <= MAX_LINE);
        }
        reader.finish(&mut |_| count += 1);
        assert_eq!((count, reader.lines()), (0, 1));
    }
}
