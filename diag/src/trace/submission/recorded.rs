//! A submission as a log keeps it, with nothing decoded.

use ga10b_capture::{Content, Record};
use serde::{Deserialize, Serialize};

use crate::hex::Hex;
use crate::trace::bytes::Bytes;

/// Entries that a program put into the ring of a channel, with the memory they lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The channel.
    pub channel: Channel,
    /// Entries that were written before these and replaced before they were read: at least so many.
    #[serde(default)]
    pub not_seen: u64,
    /// Entries before these that were only counted, because the limit was reached.
    #[serde(default)]
    pub not_read: u64,
    /// The entries.
    pub entries: Vec<RingEntry>,
    /// Launches that the segments name, and those that depend on them.
    #[serde(default)]
    pub launches: Vec<Launch>,
}

/// A channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Counted from 1 in the process.
    pub number: u32,
    /// Its class.
    pub class: Hex,
    /// Work-submit token of nvgpu, or handle of a desktop driver's object.
    pub handle: Hex,
    /// Entries of its ring; 0 where entries are handed to the driver.
    pub ring_entries: u32,
}

/// A GPFIFO entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingEntry {
    /// Place in the ring.
    pub index: u32,
    /// The entry itself.
    pub word: Hex,
    /// The segment, or its first part where it is long; absent where there is none or it was not mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// GPU address of the QMD.
    pub address: Hex,
    /// The QMD that names it as its dependent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Hex>,
    /// Whether the bytes are those of an inline upload.
    #[serde(default)]
    pub uploaded: bool,
    /// The QMD; absent where the process has not mapped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// The first instructions of its program, by which a tracer finds the kernel.
    #[serde(skip)]
    pub code: Option<Bytes>,
    /// Its constant bank 0, up to the end of the largest arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constants: Option<Bytes>,
    /// The kernel of its program, where a cubin in the process has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
}

/// A kernel, as far as a launch of it is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name; of several with the same code all, with ` or ` between them.
    pub name: String,
    /// Offset and size in bytes of each parameter in constant bank 0.
    pub parameters: Vec<(u32, u32)>,
}

impl From<Record> for Submission {
    fn from(record: Record) -> Self {
        let bytes = |content| match content {
            Content::Bytes(bytes) => Some(Bytes(bytes)),
            Content::None | Content::NotMapped => None,
        };
        let channel = Channel {
            number: record.channel.number,
            class: Hex(record.channel.class.into()),
            handle: Hex(record.channel.handle.into()),
            ring_entries: record.channel.ring_entries,
        };
        let entry = |entry: ga10b_capture::Entry| RingEntry {
            index: entry.index,
            word: Hex(entry.word),
            bytes: bytes(entry.content),
        };
        let launch = |launch: ga10b_capture::Launch| Launch {
            address: Hex(launch.address),
            after: launch.after.map(Hex),
            uploaded: launch.uploaded,
            bytes: bytes(launch.content),
            code: bytes(launch.code),
            constants: bytes(launch.constants),
            kernel: None,
        };
        Self {
            channel,
            not_seen: record.not_seen,
            not_read: record.not_read,
            entries: record.entries.into_iter().map(entry).collect(),
            launches: record.launches.into_iter().map(launch).collect(),
        }
    }
}
