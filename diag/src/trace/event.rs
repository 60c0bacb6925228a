//! A trace: a header and events, one JSON object per line.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::document::{self, Bounds, Unreadable};
use crate::hex::Hex;
use crate::trace::bytes::Bytes;
use crate::trace::submission::recorded::Submission;

/// Name and version of the log format.
pub const SCHEMA: &str = "nvdiag.trace/1";
/// Longest line of a log that is read: the longest argument is 16 KiB, memory it points to 64 KiB, twice, in
/// hex.
const MAX_LINE: u64 = 16 << 20;
/// Most of a line, of which each byte string is one value.
const LINE_BOUNDS: Bounds = Bounds { bytes: MAX_LINE as usize, values: 1 << 20 };

/// The first line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine, e.g. `aarch64`.
    pub arch: String,
    /// Traced command line.
    pub command: Vec<String>,
    /// Method of tracing: `seccomp` (the kernel stops the program at calls that may matter), `ptrace` (at all
    /// calls), `library` (the program wrote the log itself).
    pub method: String,
}

impl Header {
    /// The header of a log that is made here and now.
    #[must_use]
    pub fn new(command: Vec<String>, method: &str) -> Self {
        let arch = std::env::consts::ARCH.to_owned();
        Self { schema: SCHEMA.to_owned(), arch, command, method: method.to_owned() }
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Start time, from the start of the trace.
    pub start_ns: u64,
    /// Duration as the tracer saw it, so with the tracer's own delay; absent for a call that never returned.
    pub duration_ns: Option<u64>,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Result: a value, or an errno as a negative number.
    pub result: i64,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
}

/// Traced call with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// `open` and its relatives, on a node.
    Open {
        /// The path.
        path: String,
        /// `O_*` flags.
        flags: u64,
    },
    /// `close` of a node or of something a driver made.
    Close {
        /// Descriptor.
        fd: i32,
        /// Node that it was open on.
        node: String,
    },
    /// `dup` and its relatives.
    Dup {
        /// The descriptor that was copied.
        fd: i32,
        /// Node that it is open on.
        node: String,
    },
    /// `mmap` of a node or of a buffer.
    Mmap {
        /// Descriptor.
        fd: i32,
        /// Node that it is open on.
        node: String,
        /// Requested address, mostly 0.
        address: Hex,
        /// Length in bytes.
        length: u64,
        /// `PROT_*` bits.
        protection: u64,
        /// `MAP_*` flags.
        flags: u64,
        /// Offset in the node.
        offset: Hex,
    },
    /// `ioctl`.
    Ioctl {
        /// Descriptor.
        fd: i32,
        /// Node that it is open on.
        node: String,
        /// Request number.
        request: Hex,
        /// The argument itself: an address for most.
        argument: Hex,
        /// The bytes at that address before the call.
        input: Bytes,
        /// The bytes after it.
        output: Bytes,
        /// Memory that the argument points to, in the order of `abi::pointers`.
        memory: Vec<Memory>,
    },
    /// No call: entries that the program put into a ring, when they were found there.
    Submission(Submission),
}

impl Call {
    /// Name of the system call, and the node or path that it is about; a submission is about none.
    #[must_use]
    pub fn name(&self) -> (&'static str, &str) {
        match self {
            Self::Open { path, .. } => ("open", path),
            Self::Close { node, .. } => ("close", node),
            Self::Dup { node, .. } => ("dup", node),
            Self::Mmap { node, .. } => ("mmap", node),
            Self::Ioctl { node, .. } => ("ioctl", node),
            Self::Submission(_) => ("submission", ""),
        }
    }
}

/// Memory that an argument points to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Its address.
    pub address: Hex,
    /// Its bytes before the call.
    pub input: Bytes,
    /// Its bytes after it.
    pub output: Bytes,
}

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file ended, or could not be read.
    #[error("line {line} cannot be read")]
    Read {
        /// Counted from 1.
        line: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line that is no event, or a first line that is no header.
    #[error("line {line} is no {expected} of a trace")]
    Line {
        /// Counted from 1.
        line: usize,
        /// Expected content.
        expected: &'static str,
        /// Why it is none.
        #[source]
        source: Unreadable,
    },
    /// A log of another version.
    #[error("the log is of schema {schema:?}; this version reads {SCHEMA}")]
    Schema {
        /// Schema named in it.
        schema: String,
    },
}

impl Error {
    /// Whether a line is damaged, so that those after it can still be read.
    #[must_use]
    pub fn is_of_one_line(&self) -> bool {
        match self {
            Self::Read { source, .. } => source.kind() == io::ErrorKind::InvalidData,
            Self::Line { expected, .. } => *expected == EVENT,
            Self::Schema { .. } => false,
        }
    }
}

/// Kind of the lines after the first.
const EVENT: &str = "event";

/// Writes a log.
#[derive(Debug)]
pub struct LogWriter<W>(W);

impl<W: Write> LogWriter<W> {
    /// Begins a log.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        serde_json::to_writer(&mut out, header)?;
        out.write_all(b"\n")?;
        Ok(Self(out))
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Those of the file.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, event)?;
        self.0.write_all(b"\n")
    }

    /// Writes the buffered lines.
    ///
    /// # Errors
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Reads a log line by line.
#[derive(Debug)]
pub struct LogReader<R> {
    input: R,
    line: usize,
    /// The first line.
    pub header: Header,
}

impl<R: BufRead> LogReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// One of [`Error`].
    pub fn new(mut input: R) -> Result<Self, Error> {
        let text = line(&mut input, 1)?;
        let header: Header = document::read(text.as_bytes(), LINE_BOUNDS).map_err(|source| Error::Line {
            line: 1,
            expected: "header",
            source,
        })?;
        match header.schema == SCHEMA {
            true => Ok(Self { input, line: 1, header }),
            false => Err(Error::Schema { schema: header.schema }),
        }
    }
}

impl<R: BufRead> Iterator for LogReader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.line += 1;
            let number = self.line;
            let text = match line(&mut self.input, number) {
                Ok(text) if text.is_empty() => return None,
                Ok(text) => text,
                Err(error) => return Some(Err(error)),
            };
            if text.trim().is_empty() {
                continue;
            }
            let event = document::read(text.as_bytes(), LINE_BOUNDS);
            return Some(event.map_err(|source| Error::Line { line: number, expected: EVENT, source }));
        }
    }
}

fn line(input: &mut impl BufRead, number: usize) -> Result<String, Error> {
    let mut text = String::new();
    let read = io::Read::take(input, MAX_LINE).read_line(&mut text);
    read.map(|_| text).map_err(|source| Error::Read { line: number, source })
}

/// The name of a descriptor without the kernel's decoration: `anon_inode:[x]` is `x`.
#[must_use]
pub fn node_name(link: &str) -> &str {
    let name = link.strip_prefix("anon_inode:").unwrap_or(link);
    name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name)
}

/// Whether a descriptor belongs to a GPU driver, by its name: a device node, something a driver made, or a
/// buffer.
#[must_use]
pub fn is_gpu_node(name: &str) -> bool {
    let nodes = ["/dev/nv", "/dev/host1x", "/dmabuf", "nvhost-", "nvgpu-", "dmabuf"];
    nodes.iter().any(|node| name.starts_with(node))
        && !name.starts_with("/dev/nvme")
        && !name.starts_with("/dev/nvram")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_descriptors_of_gpu_drivers() {
        for name in [
            "/dev/nvgpu/igpu0/ctrl",
            "/dev/nvmap",
            "/dev/nvhost-gpu",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "anon_inode:nvhost-17000000.gpu-fd12",
            "anon_inode:[nvgpu-ga10b-tsg3]",
            "/dmabuf:ring",
        ] {
            assert!(is_gpu_node(node_name(name)), "{name}");
        }
        for name in ["/dev/null", "/dev/nvme0n1", "socket:[123]", "anon_inode:[eventfd]", "/home/nvidia/x"] {
            assert!(!is_gpu_node(node_name(name)), "{name}");
        }
    }

    #[test]
    fn a_log_reads_back_as_it_was_written() {
        let header = Header::new(vec!["prog".to_owned(), "a b".to_owned()], "seccomp");
        let event = |result, call| Event { start_ns: 5, duration_ns: Some(7), pid: 1, tid: 2, result, call };
        let events = [
            event(3, Call::Open { path: "/dev/nvmap".to_owned(), flags: 2 }),
            event(
                -22,
                Call::Ioctl {
                    fd: 3,
                    node: "/dev/nvmap".to_owned(),
                    request: Hex(0xc008_4e00),
                    argument: Hex(0x7fff_ffff_f000),
                    input: Bytes(vec![1, 0xab]),
                    output: Bytes(vec![]),
                    memory: vec![Memory {
                        address: Hex(u64::MAX),
                        input: Bytes(vec![0xff]),
                        output: Bytes(vec![0]),
                    }],
                },
            ),
        ];
        let mut log = Vec::new();
        let mut writer = LogWriter::new(&mut log, &header).expect("memory takes everything");
        for event in &events {
            writer.event(event).expect("memory takes everything");
        }
        let reader = LogReader::new(log.as_slice()).expect("a log");
        assert_eq!(reader.header, header);
        assert_eq!(reader.collect::<Result<Vec<_>, _>>().expect("events"), events);
    }

    #[test]
    fn what_is_no_log_is_refused_by_line() {
        let error = |text: &str| match LogReader::new(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(reader) => reader.filter_map(Result::err).map(|e| e.to_string()).collect(),
        };
        assert_eq!(error(""), "line 1 is no header of a trace");
        let header = serde_json::to_string(&Header::new(vec![], "ptrace")).expect("JSON");
        assert_eq!(error(&header), "");
        assert_eq!(error(&format!("{header}\n\n{{}}\n")), "line 3 is no event of a trace");
        let other = header.replace("nvdiag.trace/1", "nvdiag.trace/9");
        assert!(error(&other).contains("nvdiag.trace/9"));
    }
}
