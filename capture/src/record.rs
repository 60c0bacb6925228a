//! Records: the entries found by one reading of a ring, as bytes that a tracer reads from the program's
//! memory.

use crate::mark::{TRACE_MARK, TraceMark};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// First word of a record; the last digit counts its layout.
const MAGIC: u32 = 0x5355_4232;
/// Largest record that is made, in bytes: one of the longest segment, or many short ones.
pub const MOST_BYTES: usize = 4 << 20;
/// Bytes of a program that are read for each launch.
pub const MOST_CODE: usize = 1024;
/// Bytes of a constant bank that are read for each launch: what precedes the arguments of a kernel on GH100,
/// and the 4 KiB of arguments that every release of CUDA takes.
pub const MOST_CONSTANTS: usize = 0x210 + 4096;

/// Entries of one channel, in order, with the memory they lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The channel.
    pub channel: Channel,
    /// Entries that were written before these and replaced in the ring before it was read: at least so many.
    pub not_seen: u64,
    /// Entries before these that were only counted, because of [`Limits`](crate::Limits).
    pub not_read: u64,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Launches that the segments name, and those that depend on them.
    pub launches: Vec<Launch>,
}

/// A channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// Counted from 1 in the process.
    pub number: u32,
    /// Class of the channel, e.g. 0xc76f.
    pub class: u32,
    /// The driver's number for it: nvgpu's work-submit token, or the handle of a desktop driver's object.
    pub handle: u32,
    /// Entries of its ring; 0 where entries are handed to the driver.
    pub ring_entries: u32,
}

/// A GPFIFO entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Place in the ring.
    pub index: u32,
    /// The entry itself.
    pub word: u64,
    /// The words it leads to, as far as they were read.
    pub content: Content,
}

/// Result of reading memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// There is nothing to read.
    #[default]
    None,
    /// All of it, or as much as limits allow.
    Bytes(Vec<u8>),
    /// The process has not mapped it.
    NotMapped,
}

/// A launch: a QMD that a segment or another QMD names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// GPU address.
    pub address: u64,
    /// The QMD that names it as its dependent; `None` for one that a segment names.
    pub after: Option<u64>,
    /// Whether the bytes are those that an inline upload of the same channel carried, and not memory.
    pub uploaded: bool,
    /// The QMD.
    pub content: Content,
    /// The first instructions of its program, at most [`MOST_CODE`] bytes.
    pub code: Content,
    /// Its constant bank 0, which holds the kernel's arguments: at most [`MOST_CONSTANTS`] bytes.
    pub constants: Content,
}

impl Record {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        let Channel { number, class, handle, ring_entries } = self.channel;
        for word in [MAGIC, number, class, handle, ring_entries] {
            out.word(word);
        }
        out.long(self.not_seen);
        out.long(self.not_read);
        out.word(self.entries.len() as u32);
        for entry in &self.entries {
            out.word(entry.index);
            out.long(entry.word);
            out.content(&entry.content);
        }
        out.word(self.launches.len() as u32);
        for launch in &self.launches {
            out.long(launch.address);
            out.word(launch.after.is_some().into());
            out.long(launch.after.unwrap_or(0));
            out.word(launch.uploaded.into());
            for content in [&launch.content, &launch.code, &launch.constants] {
                out.content(content);
            }
        }
        out.0
    }

    /// Reads a record; `None` for bytes that are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut input = Reader(bytes);
        if input.word()? != MAGIC {
            return None;
        }
        let channel = Channel {
            number: input.word()?,
            class: input.word()?,
            handle: input.word()?,
            ring_entries: input.word()?,
        };
        let (not_seen, not_read) = (input.long()?, input.long()?);
        let mut record = Self { channel, not_seen, not_read, ..Self::default() };
        for _ in 0..input.word()? {
            let (index, word, content) = (input.word()?, input.long()?, input.content()?);
            record.entries.push(Entry { index, word, content });
        }
        for _ in 0..input.word()? {
            let (address, is_after, after) = (input.long()?, input.word()? != 0, input.long()?);
            let (after, uploaded) = (is_after.then_some(after), input.word()? != 0);
            let (content, code, constants) = (input.content()?, input.content()?, input.content()?);
            record.launches.push(Launch { address, after, uploaded, content, code, constants });
        }
        input.0.is_empty().then_some(record)
    }

    /// Hands the record to the tracer, if there is one: the thread stops at a `prctl` that no kernel knows
    /// until the tracer has read it. Without a tracer the call fails and nothing happens.
    pub fn report(&self) {
        let bytes = self.to_bytes();
        let mark = TraceMark {
            kind: TraceMark::SUBMISSION,
            argument: bytes.as_ptr().expose_provenance() as u64,
            result: bytes.len() as i64,
            ..TraceMark::default()
        };
        // SAFETY: no kernel knows the option, so it reads nothing; a tracer reads mark and record, which
        // outlive the call.
        unsafe { libc::syscall(libc::SYS_prctl, libc::c_ulong::from(TRACE_MARK), &raw const mark, 0, 0, 0) };
    }
}

/// Entries that were counted and not reported yet, for the end of the program.
#[derive(Debug)]
pub(crate) struct Uncounted {
    channel: Channel,
    entries: AtomicU64,
}

/// The counts of all channels, which the end of the program reports.
static COUNTS: std::sync::Mutex<Vec<std::sync::Arc<Uncounted>>> = std::sync::Mutex::new(Vec::new());

impl Uncounted {
    pub(crate) fn new(channel: Channel) -> std::sync::Arc<Self> {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: the function lives as long as the library, which is preloaded or a part of the program.
            unsafe { libc::atexit(report_counts) };
        });
        let counted = std::sync::Arc::new(Self { channel, entries: AtomicU64::new(0) });
        let mut counts = COUNTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.retain(|c| std::sync::Arc::strong_count(c) > 1 || c.entries.load(Ordering::Relaxed) > 0);
        counts.push(std::sync::Arc::clone(&counted));
        counted
    }

    pub(crate) fn add(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    fn report(&self) {
        let not_read = self.entries.swap(0, Ordering::Relaxed);
        if not_read > 0 {
            Record { channel: self.channel, not_read, ..Record::default() }.report();
        }
    }
}

extern "C" fn report_counts() {
    // A thread that holds the lock is gone or waits for the same end: nothing is reported then.
    if let Ok(counts) = COUNTS.try_lock() {
        counts.iter().for_each(|counted| counted.report());
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn content(&mut self, content: &Content) {
        match content {
            Content::None => self.word(0),
            Content::NotMapped => self.word(1),
            Content::Bytes(bytes) => {
                self.word(2);
                self.word(bytes.len() as u32);
                self.0.extend(bytes);
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(count)?;
        self.0 = later;
        Some(now)
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    fn content(&mut self) -> Option<Content> {
        Some(match self.word()? {
            0 => Content::None,
            1 => Content::NotMapped,
            2 => {
                let count = self.word()?;
                Content::Bytes(self.bytes(usize::try_from(count).ok()?)?.to_vec())
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Content> {
        prop_oneof![
            Just(Content::None),
            Just(Content::NotMapped),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Content::Bytes)
        ]
    }

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written_and_no_part_of_one_does(
            numbers in any::<[u32; 4]>(), counts in any::<[u64; 2]>(),
            entries in proptest::collection::vec((any::<u32>(), any::<u64>(), content()), 0..5),
            launches in proptest::collection::vec((any::<u64>(), any::<Option<u64>>(), any::<bool>(), [content(), content(), content()]), 0..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let [number, class, handle, ring_entries] = numbers;
            let record = Record {
                channel: Channel { number, class, handle, ring_entries },
                not_seen: counts[0],
                not_read: counts[1],
                entries: entries.into_iter().map(|(index, word, content)| Entry { index, word, content }).collect(),
                launches: launches
                    .into_iter()
                    .map(|(address, after, uploaded, [content, code, constants])| {
                        Launch { address, after, uploaded, content, code, constants }
                    })
                    .collect(),
            };
            let bytes = record.to_bytes();
            prop_assert_eq!(Record::from_bytes(&bytes), Some(record));
            prop_assert_eq!(Record::from_bytes(&bytes[..cut.index(bytes.len())]), None);
        }

        #[test]
        fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = MAGIC.to_le_bytes().to_vec();
            framed.extend(&bytes);
            let _ = Record::from_bytes(&framed);
            prop_assert_eq!(Record::from_bytes(&bytes).is_some() && !bytes.starts_with(&MAGIC.to_le_bytes()), false);
        }
    }
}
