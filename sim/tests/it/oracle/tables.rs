//! Page tables without the addresses that differ from machine to machine, from a record or from the model's
//! memory.

use std::collections::{BTreeMap, HashMap};

const PAGE: u64 = 4096;
/// Bits of an address in a leaf, 40 bits of physical address without the page offset.
const LEAF_ADDRESS: u64 = 0xfff_ffff << 8;
/// The bit of a physical address that requests a line of the system-level cache.
const L3_ALLOCATE: u64 = 1 << 37;
const DIRECTORY_ADDRESS: u64 = ((1 << 46) - 1) << 8;
const BIG_ADDRESS: u64 = ((1 << 50) - 1) << 4;
/// Lowest bit of the index into each level of directories, and the number of entries.
const LEVELS: [(u32, u64); 4] = [(21, 256), (29, 512), (38, 512), (47, 4)];

/// Target of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nowhere,
    /// A page of a buffer.
    Buffer(u64, u64),
    /// A page that is no buffer's: the syncpoints.
    Other,
}

/// Page tables of an address space.
#[derive(Debug, Default)]
pub struct Tables {
    /// Level and first address to the entry, addresses cleared; level 0 has the halves for big and for small
    /// pages.
    pub directories: BTreeMap<(u32, u64), [u64; 2]>,
    /// Address of the page to the entry, address cleared but for the cache bit, and where it points.
    pub leaves: BTreeMap<u64, (u64, Place)>,
}

/// Physical memory, and which page of which buffer each page is.
pub struct Pages<'a> {
    pages: HashMap<u64, &'a [u8]>,
}

impl<'a> Pages<'a> {
    /// First word of every page of a buffer.
    pub const MARK: u64 = 0x6f72_6163_6c65_3031;

    /// Reads a dump in the format of the LiME kernel module.
    pub fn read(mut dump: &'a [u8]) -> Self {
        let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let mut pages = HashMap::new();
        while !dump.is_empty() {
            let (first, last) = (word(dump, 8), word(dump, 16));
            let len = (last + 1 - first) as usize;
            let (range, rest) = dump[32..].split_at(len);
            pages
                .extend(range.chunks_exact(PAGE as usize).zip(0..).map(|(page, i)| (first + i * PAGE, page)));
            dump = rest;
        }
        Self { pages }
    }

    fn word(&self, table: u64, index: u64) -> u64 {
        let at = table + index * 8;
        let offset = (at % PAGE) as usize;
        self.pages
            .get(&(at - at % PAGE))
            .map_or(0, |page| u64::from_le_bytes(page[offset..offset + 8].try_into().unwrap()))
    }

    fn place(&self, address: u64) -> Place {
        match self.word(address, 0) {
            _ if address == 0 => Place::Nowhere,
            Self::MARK => Place::Buffer(self.word(address, 1), self.word(address, 2)),
            _ => Place::Other,
        }
    }
}

impl Tables {
    /// Walks the tables at `root`.
    pub fn walk(pages: &Pages<'_>, root: u64) -> Self {
        let mut tables = Self::default();
        tables.directory(pages, 3, root, 0);
        tables
    }

    fn directory(&mut self, pages: &Pages<'_>, level: u32, table: u64, va: u64) {
        let (shift, count) = LEVELS[level as usize];
        for i in 0..count {
            let at = va | i << shift;
            if level > 0 {
                let entry = pages.word(table, i);
                if entry != 0 {
                    self.directories.insert((level, at), [entry & !DIRECTORY_ADDRESS, 0]);
                    self.directory(pages, level - 1, (entry & DIRECTORY_ADDRESS) >> 8 << 12, at);
                }
                continue;
            }
            let (big, small) = (pages.word(table, i * 2), pages.word(table, i * 2 + 1));
            if big == 0 && small == 0 {
                continue;
            }
            self.directories.insert((0, at), [big & !BIG_ADDRESS, small & !DIRECTORY_ADDRESS]);
            if small != 0 {
                let leaves = (small & DIRECTORY_ADDRESS) >> 8 << 12;
                for page in 0..512 {
                    let entry = pages.word(leaves, page);
                    if entry != 0 {
                        let address = (entry & LEAF_ADDRESS) >> 8 << 12;
                        let kept = entry & !LEAF_ADDRESS | entry & L3_ALLOCATE >> 4;
                        self.leaves.insert(at + page * PAGE, (kept, pages.place(address & !L3_ALLOCATE)));
                    }
                }
            }
        }
    }

    /// Reads the lines between `T` and `.` of a record.
    pub fn parse(lines: &[&str]) -> Result<Self, String> {
        let mut tables = Self::default();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let hex = |i: usize| {
                words
                    .get(i)
                    .and_then(|w| u64::from_str_radix(w, 16).ok())
                    .ok_or_else(|| format!("`{line}` in a table"))
            };
            match words.first() {
                Some(&"D") => {
                    let level = u32::try_from(hex(1)?).unwrap();
                    let second = if level == 0 { hex(4)? } else { 0 };
                    tables.directories.insert((level, hex(2)?), [hex(3)?, second]);
                }
                Some(&"L") => {
                    let (va, count, entry) = (hex(1)?, hex(2)?, hex(3)?);
                    for i in 0..count {
                        let place = match words.get(4) {
                            Some(&"-") => Place::Nowhere,
                            Some(&"s") => Place::Other,
                            _ => Place::Buffer(hex(4)?, hex(5)? + i),
                        };
                        tables.leaves.insert(va + i * PAGE, (entry, place));
                    }
                }
                _ => return Err(format!("`{line}` in a table")),
            }
        }
        Ok(tables)
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> u64 {
        self.leaves.len() as u64
    }

    /// Compares the tables of the user's range; the error names the first difference.
    pub fn compare(&self, model: &Self, (start, end): (u64, u64)) -> Result<(), String> {
        let mine = |tables: &Self| -> Vec<_> {
            let touches =
                |&(level, va): &(u32, u64)| va < end && va + (1 << LEVELS[level as usize].0) > start;
            tables.directories.iter().filter(|(at, _)| touches(at)).map(|(at, entry)| (*at, *entry)).collect()
        };
        if let Some(text) = first_difference(&mine(self), &mine(model)) {
            return Err(format!("directories: {text}"));
        }
        let mine = |tables: &Self| -> Vec<_> {
            tables.leaves.range(start..end).map(|(va, leaf)| (*va, *leaf)).collect()
        };
        match first_difference(&mine(self), &mine(model)) {
            Some(text) => Err(format!("leaves: {text}")),
            None => Ok(()),
        }
    }
}

fn first_difference<T: PartialEq + std::fmt::Debug>(driver: &[T], model: &[T]) -> Option<String> {
    let at = driver.iter().zip(model).position(|(d, m)| d != m);
    let at = at.or((driver.len() != model.len()).then_some(driver.len().min(model.len())))?;
    let show = |side: &[T]| side.get(at).map_or("nothing".to_owned(), |entry| format!("{entry:x?}"));
    Some(format!("the driver has {}, the model {}", show(driver), show(model)))
}
