//! Follows one channel: from ring entries to records.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;

use qmd::{Qmd, Version};

use crate::limits::Limits;
use crate::record::{Channel, Content, Entry, Launch, Record, Uncounted};
use crate::scanner::Scanner;
use crate::uploads::Uploads;

/// Entries of one record.
const MOST_ENTRIES: usize = 64;
/// Bytes of segments after which a record ends.
const ENOUGH_BYTES: usize = 1 << 20;

/// The memory of a GPU address space, as far as it can be read here.
pub trait Memory {
    /// `len` bytes from a GPU address; `None` unless all of them can be read.
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>>;
}

/// Follows one channel.
#[derive(Debug)]
pub struct Reader {
    channel: Channel,
    limits: Limits,
    scanner: Scanner,
    /// Address bits above 40, which Hopper's entries set for those after them.
    base: u64,
    read: u64,
    counted: Arc<Uncounted>,
}

impl Reader {
    /// A channel that nothing was submitted to.
    #[must_use]
    pub fn new(channel: Channel, limits: Limits) -> Self {
        Self { channel, limits, scanner: Scanner::new(), base: 0, read: 0, counted: Uncounted::new(channel) }
    }

    /// The channel.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Reads the memory that the entries from place `first` of the ring on name. `not_seen` entries before
    /// them are lost. Entries past the limit are counted, and reported when the program ends.
    pub fn entries(
        &mut self,
        first: u32,
        words: &[u64],
        not_seen: u64,
        memory: &dyn Memory,
        sink: &mut dyn FnMut(&Record),
    ) {
        if not_seen > 0 {
            self.scanner.skip();
        }
        let left = usize::try_from(self.limits.entries.saturating_sub(self.read)).unwrap_or(usize::MAX);
        let now = words.len().min(left);
        if now < words.len() {
            self.counted.add((words.len() - now) as u64);
        }
        self.read = self.read.saturating_add(now as u64);
        let channel = self.channel;
        let empty = || Record { channel, ..Record::default() };
        let mut record = Record { not_seen, ..empty() };
        let (mut known, mut bytes) = (HashSet::new(), 0);
        for (i, word) in words.iter().take(now).enumerate() {
            let index = first.wrapping_add(i as u32);
            let index = if self.channel.ring_entries > 0 { index % self.channel.ring_entries } else { index };
            let content = self.segment(*word, memory, &mut record.launches, &mut known);
            if let Content::Bytes(read) = &content {
                bytes += read.len();
            }
            record.entries.push(Entry { index, word: *word, content });
            if record.entries.len() >= MOST_ENTRIES || bytes >= ENOUGH_BYTES {
                sink(&std::mem::replace(&mut record, empty()));
                (known, bytes) = (HashSet::new(), 0);
            }
        }
        if !record.entries.is_empty() || record.not_seen > 0 {
            sink(&record);
        }
    }

    /// Reads the segment of pushbuffer that an entry names.
    fn segment(
        &mut self,
        word: u64,
        memory: &dyn Memory,
        launches: &mut Vec<Launch>,
        known: &mut HashSet<(u64, Content)>,
    ) -> Content {
        let words = (word >> 42 & 0x1f_ffff) as usize;
        if words == 0 {
            // SET_PB_SEGMENT_EXTENDED_BASE of `clc86f.h`.
            if word >> 32 & 0xff == 4 {
                self.base = (word >> 8 & 0x1_ffff) << 40;
            }
            return Content::None;
        }
        let address = self.base | word & 0xff_ffff_fffc;
        let Some(bytes) = memory.read(address, words.min(self.limits.segment_words) * 4) else {
            self.scanner.skip();
            return Content::NotMapped;
        };
        let most = self.limits.launches;
        self.scanner.segment(&bytes, &mut |address, uploads| {
            follow(address, uploads, memory, most, launches, known);
        });
        if words > self.limits.segment_words {
            self.scanner.skip();
        }
        Content::Bytes(bytes)
    }
}

/// Adds a launch, and those that depend on it, unless they are there already.
fn follow(
    address: u64,
    uploads: &Uploads,
    memory: &dyn Memory,
    most: usize,
    launches: &mut Vec<Launch>,
    known: &mut HashSet<(u64, Content)>,
) {
    let mut next = VecDeque::from([(address, None)]);
    while let Some((address, after)) = next.pop_front() {
        if launches.len() >= most {
            return;
        }
        let (content, uploaded) = read(address, uploads, memory);
        if !known.insert((address, content.clone())) {
            continue;
        }
        if let Content::Bytes(bytes) = &content
            && let Ok(image) = Qmd::from_bytes(bytes)
        {
            let dependents = (0..image.dependents()).filter_map(|slot| image.dependent(slot));
            next.extend(dependents.map(|dependent| (dependent.address, Some(address))));
        }
        launches.push(Launch { address, after, uploaded, content });
    }
}

/// The QMD at an address: of the longest layout that can be read.
fn read(address: u64, uploads: &Uploads, memory: &dyn Memory) -> (Content, bool) {
    let versions = [Version::V04, Version::V03];
    let uploaded = versions.iter().find_map(|version| uploads.read(address, version.size()));
    if let Some(bytes) = uploaded {
        return (Content::Bytes(exact(bytes.to_vec())), true);
    }
    let mapped = versions.iter().find_map(|version| memory.read(address, version.size()));
    (mapped.map_or(Content::NotMapped, |bytes| Content::Bytes(exact(bytes))), false)
}

/// The bytes of the QMD alone, where its version is known.
fn exact(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(image) = Qmd::from_bytes(&bytes) {
        bytes.truncate(image.version().size());
    }
    bytes
}
