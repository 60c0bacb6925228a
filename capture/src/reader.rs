//! Follows one channel: from ring entries to records.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::sync::Arc;

use qmd::{Qmd, Version};

use crate::limits::Limits;
use crate::record::{Channel, Content, Entry, Launch, MOST_CODE, MOST_CONSTANTS, Record, Uncounted};
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
        let mut record = Record { channel, not_seen, ..Record::default() };
        let mut launches = self.launches(memory);
        let mut bytes = 0;
        for (i, word) in words.iter().take(now).enumerate() {
            let index = first.wrapping_add(i as u32);
            let index = if self.channel.ring_entries > 0 { index % self.channel.ring_entries } else { index };
            let content = self.segment(*word, &mut launches);
            if let Content::Bytes(read) = &content {
                bytes += read.len();
            }
            record.entries.push(Entry { index, word: *word, content });
            if record.entries.len() >= MOST_ENTRIES || bytes >= ENOUGH_BYTES {
                record.launches = std::mem::replace(&mut launches, self.launches(memory)).found;
                sink(&std::mem::replace(&mut record, Record { channel, ..Record::default() }));
                bytes = 0;
            }
        }
        if !record.entries.is_empty() || record.not_seen > 0 {
            record.launches = launches.found;
            sink(&record);
        }
    }

    fn launches<'m>(&self, memory: &'m dyn Memory) -> Launches<'m> {
        Launches { memory, most: self.limits.launches, spent: 0, found: Vec::new() }
    }

    /// Reads the segment of pushbuffer that an entry names.
    fn segment(&mut self, word: u64, launches: &mut Launches<'_>) -> Content {
        let words = (word >> 42 & 0x1f_ffff) as usize;
        if words == 0 {
            // SET_PB_SEGMENT_EXTENDED_BASE of `clc86f.h`.
            if word >> 32 & 0xff == 4 {
                self.base = (word >> 8 & 0x1_ffff) << 40;
            }
            return Content::None;
        }
        let address = self.base | word & 0xff_ffff_fffc;
        let Some(bytes) = launches.memory.read(address, words.min(self.limits.segment_words) * 4) else {
            self.scanner.skip();
            return Content::NotMapped;
        };
        self.scanner.segment(&bytes, &mut |address, uploads| launches.follow(address, uploads));
        if words > self.limits.segment_words {
            self.scanner.skip();
        }
        Content::Bytes(bytes)
    }
}

/// The launches of a record under way.
struct Launches<'m> {
    memory: &'m dyn Memory,
    most: usize,
    /// Bytes of code and constants that were read.
    spent: usize,
    found: Vec<Launch>,
}

impl Launches<'_> {
    /// Adds a launch, and those that depend on it, each once.
    fn follow(&mut self, address: u64, uploads: &Uploads) {
        let (mut next, mut known) = (VecDeque::from([(address, None)]), HashSet::new());
        while let Some((address, after)) = next.pop_front() {
            if self.found.len() >= self.most {
                return;
            }
            if !known.insert(address) {
                continue;
            }
            let (content, uploaded) = self.descriptor(address, uploads);
            let (mut code, mut constants) = (Content::None, Content::None);
            if let Content::Bytes(bytes) = &content
                && let Ok(image) = Qmd::from_bytes(bytes)
            {
                let dependents = (0..image.dependents()).filter_map(|slot| image.dependent(slot));
                next.extend(dependents.map(|dependent| (dependent.address, Some(address))));
                if !image.is_queue() && self.spent < ENOUGH_BYTES {
                    (code, constants) = (self.code(&image), self.constants(&image, uploads));
                }
            }
            self.found.push(Launch { address, after, uploaded, content, code, constants });
        }
    }

    /// The QMD at an address: of the longest layout that can be read.
    fn descriptor(&self, address: u64, uploads: &Uploads) -> (Content, bool) {
        let versions = [Version::V04, Version::V03];
        let uploaded = versions.iter().find_map(|version| uploads.read(address, version.size()));
        if let Some(bytes) = uploaded {
            return (Content::Bytes(exact(bytes.to_vec())), true);
        }
        let mapped = versions.iter().find_map(|version| self.memory.read(address, version.size()));
        (mapped.map_or(Content::NotMapped, |bytes| Content::Bytes(exact(bytes))), false)
    }

    /// The first instructions of a program: fewer where its memory ends.
    fn code(&mut self, image: &Qmd) -> Content {
        let mut sizes = (0..4).map(|half| MOST_CODE >> half);
        let read = sizes.find_map(|size| self.memory.read(image.program_address(), size));
        self.spent += read.as_ref().map_or(0, Vec::len);
        read.map_or(Content::NotMapped, Content::Bytes)
    }

    fn constants(&mut self, image: &Qmd, uploads: &Uploads) -> Content {
        let Some(bank) = image.constant_buffer(0) else { return Content::None };
        let size = MOST_CONSTANTS.min(bank.len as usize);
        let read = uploads.read(bank.address, size).map(<[u8]>::to_vec);
        let read = read.or_else(|| self.memory.read(bank.address, size));
        self.spent += read.as_ref().map_or(0, Vec::len);
        read.map_or(Content::NotMapped, Content::Bytes)
    }
}

/// The bytes of the QMD alone, where its version is known.
fn exact(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(image) = Qmd::from_bytes(&bytes) {
        bytes.truncate(image.version().size());
    }
    bytes
}
