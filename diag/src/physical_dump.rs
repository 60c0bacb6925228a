//! Dumps of physical memory: of the LiME kernel module, or an ELF core as kdump writes. Authors of drivers have
//! them, and `Sim::dump_memory` writes the first.

use std::collections::BTreeMap;

use goblin::container::{Container, Ctx};
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};
use goblin::elf::{Elf, header};

use crate::page_table::format::{PhysicalMemory, instance_block_root};

/// Most ranges a dump may have; a damaged one shall not make us read on for ever.
const MAX_RANGES: usize = 1 << 16;
/// Bytes of a LiME header.
const LIME_HEADER: u64 = 32;
/// First bytes: the magic number and version 1.
const LIME_MAGIC: [u8; 8] = [0x45, 0x4d, 0x69, 0x4c, 1, 0, 0, 0];
/// Grain of the search for instance blocks.
const PAGE: usize = 4096;

/// The bytes of a dump, wherever they are.
pub trait Source {
    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `bytes` from `offset`; false if the source ends before or cannot be read.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> bool;
}

impl Source for Vec<u8> {
    fn len(&self) -> u64 {
        Vec::len(self) as u64
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = start.checked_add(bytes.len()).and_then(|end| self.get(start..end));
        range.map(|content| bytes.copy_from_slice(content)).is_some()
    }
}

/// Why a dump could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing in it.
    #[error("the dump is empty")]
    Empty,
    /// A LiME header that is none.
    #[error("no LiME header at offset {offset:#x} of the dump, where one should follow")]
    Lime {
        /// Offset at which it should be.
        offset: u64,
    },
    /// More ranges than any machine has.
    #[error("the dump has more than {MAX_RANGES} ranges")]
    TooManyRanges,
    /// Of no format that says where its bytes were.
    #[error("neither a LiME dump nor an ELF core")]
    Format,
    /// An ELF file, but no core of a 64-bit machine.
    #[error("an ELF file, but not a readable core: {reason}")]
    Elf {
        /// Message of the ELF reader.
        reason: String,
    },
}

/// A dump of physical memory.
#[derive(Debug)]
pub struct PhysicalDump<S> {
    source: S,
    /// Ranges by physical address: length and offset in the source.
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl<S: Source> PhysicalDump<S> {
    /// Finds the ranges of a dump.
    ///
    /// # Errors
    /// One of [`Error`].
    pub fn open(source: S) -> Result<Self, Error> {
        if source.is_empty() {
            return Err(Error::Empty);
        }
        let mut magic = [0; 8];
        let has_magic = source.read_at(0, &mut magic);
        let ranges = if has_magic && magic == LIME_MAGIC {
            lime(&source)?
        } else if has_magic && magic.starts_with(header::ELFMAG) {
            elf(&source)?
        } else {
            return Err(Error::Format);
        };
        Ok(Self { source, ranges })
    }

    /// The ranges: physical address and length.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(at, (len, _))| (*at, *len))
    }

    /// The roots of the page tables of all channels: what instance blocks in the dump name. Reads the whole
    /// dump.
    pub fn roots(&self) -> Vec<u64> {
        let mut roots = Vec::new();
        let mut page = vec![0; PAGE];
        for (&at, &(len, offset)) in &self.ranges {
            let first = at.next_multiple_of(PAGE as u64) - at;
            let mut skip = first;
            while skip + PAGE as u64 <= len && self.source.read_at(offset + skip, &mut page) {
                roots.extend(instance_block_root(&page));
                skip += PAGE as u64;
            }
        }
        roots.sort_unstable();
        roots.dedup();
        roots
    }
}

impl<S: Source> PhysicalMemory for PhysicalDump<S> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let Some((&at, &(len, offset))) = self.ranges.range(..=address).next_back() else { return false };
        let skip = address - at;
        let inside = skip.checked_add(bytes.len() as u64).is_some_and(|end| end <= len);
        inside && offset.checked_add(skip).is_some_and(|from| self.source.read_at(from, bytes))
    }
}

fn lime(source: &impl Source) -> Result<BTreeMap<u64, (u64, u64)>, Error> {
    let mut ranges = BTreeMap::new();
    let mut offset = 0;
    while offset < source.len() {
        let mut header = [0; LIME_HEADER as usize];
        let damaged = Error::Lime { offset };
        if !source.read_at(offset, &mut header) || !header.starts_with(&LIME_MAGIC) {
            return Err(damaged);
        }
        let word = |at: usize| header[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        // The second address is that of the last byte.
        let (start, last) = (word(8), word(16));
        let len = last.checked_sub(start).and_then(|n| n.checked_add(1)).ok_or(damaged)?;
        if ranges.len() == MAX_RANGES {
            return Err(Error::TooManyRanges);
        }
        ranges.insert(start, (len, offset + LIME_HEADER));
        offset = offset.saturating_add(LIME_HEADER).saturating_add(len);
    }
    Ok(ranges)
}

fn elf(source: &impl Source) -> Result<BTreeMap<u64, (u64, u64)>, Error> {
    let damaged = |reason: String| Error::Elf { reason };
    let mut start = [0; 64];
    if !source.read_at(0, &mut start) {
        return Err(damaged("it ends before its header".to_owned()));
    }
    let header = Elf::parse_header(&start).map_err(|e| damaged(e.to_string()))?;
    let is_64 = header.e_ident[header::EI_CLASS] == header::ELFCLASS64;
    if header.e_type != header::ET_CORE || !is_64 {
        return Err(damaged(format!("type {} of class {}", header.e_type, header.e_ident[header::EI_CLASS])));
    }
    let endianness = header.endianness().map_err(|e| damaged(e.to_string()))?;
    let context = Ctx::new(Container::Big, endianness);
    let count = usize::from(header.e_phnum);
    let mut table = vec![0; count * 56];
    if header.e_phentsize != 56 || !source.read_at(header.e_phoff, &mut table) {
        return Err(damaged("its program headers lie outside".to_owned()));
    }
    let segments = ProgramHeader::parse(&table, 0, count, context).map_err(|e| damaged(e.to_string()))?;
    let loads = segments.iter().filter(|s| s.p_type == PT_LOAD && s.p_filesz != 0);
    Ok(loads.map(|s| (s.p_paddr, (s.p_filesz, s.p_offset))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lime_range(at: u64, content: &[u8]) -> Vec<u8> {
        let mut bytes = LIME_MAGIC.to_vec();
        for word in [at, at + content.len() as u64 - 1, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(content);
        bytes
    }

    fn read(dump: &PhysicalDump<Vec<u8>>, address: u64) -> Option<[u8; 4]> {
        let mut bytes = [0; 4];
        dump.read(address, &mut bytes).then_some(bytes)
    }

    #[test]
    fn lime_dumps_have_ranges() {
        let bytes = [lime_range(0x8000_0000, b"abcdefgh"), lime_range(0x9000_0000, b"ijkl")].concat();
        let dump = PhysicalDump::open(bytes.clone()).expect("a dump");
        assert_eq!(dump.ranges().collect::<Vec<_>>(), [(0x8000_0000, 8), (0x9000_0000, 4)]);
        assert_eq!(read(&dump, 0x8000_0004), Some(*b"efgh"));
        assert_eq!(read(&dump, 0x8000_0006), None);
        assert_eq!(read(&dump, 0x9000_0000), Some(*b"ijkl"));
        assert_eq!(read(&dump, 0x7000_0000), None);
        let mut damaged = bytes;
        damaged[40] ^= 1;
        assert_eq!(PhysicalDump::open(damaged).expect_err("damaged"), Error::Lime { offset: 40 });
    }

    #[test]
    fn bytes_without_addresses_are_no_dump() {
        assert_eq!(PhysicalDump::open(b"0123456789".to_vec()).expect_err("raw"), Error::Format);
        assert_eq!(PhysicalDump::open(Vec::new()).expect_err("empty"), Error::Empty);
    }

    #[test]
    fn an_elf_core_has_segments() {
        let mut bytes = vec![0; 64 + 56];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        bytes[16] = 4;
        bytes[32] = 64;
        bytes[52] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64] = 1;
        bytes[64 + 8] = 120;
        bytes[64 + 24..64 + 32].copy_from_slice(&0x8000_0000u64.to_le_bytes());
        bytes[64 + 32] = 8;
        bytes.extend(b"abcdefgh");
        let dump = PhysicalDump::open(bytes.clone()).expect("a dump");
        assert_eq!(read(&dump, 0x8000_0004), Some(*b"efgh"));
        bytes[16] = 2;
        assert!(matches!(PhysicalDump::open(bytes), Err(Error::Elf { .. })));
    }
}
