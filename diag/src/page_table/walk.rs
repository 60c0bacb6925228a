//! Following the tables from the root to the pages.

use std::collections::HashMap;

use serde::Serialize;

use crate::hex::Hex;
use crate::page_table::format::va;
use crate::page_table::format::{
    Aperture, Entry, Leaf, Level, PhysicalMemory, decode_big_half, decode_pde, decode_pte, kind_name,
};

/// Most tables that are read: 4 GiB of them, more than any machine has.
const MAX_TABLES: usize = 1 << 20;
/// Most runs of pages that are kept.
const MAX_RUNS: usize = 1 << 20;
/// Most anomalies that are kept.
const MAX_ANOMALIES: usize = 1000;

/// Contents of the tables under one root.
#[derive(Clone, Debug, Serialize)]
pub struct Walk {
    /// Physical address of the root.
    pub root: Hex,
    /// The tables, as a tree.
    pub tree: Vec<Directory>,
    /// Pages, by virtual address, with neighbours of equal attributes and consecutive memory joined.
    pub runs: Vec<Run>,
    /// Number of tables.
    pub tables: usize,
    /// Memory they take.
    pub table_bytes: u64,
    /// Entries that make no sense.
    pub anomalies: Vec<Anomaly>,
    /// Number of anomalies beyond those that are kept.
    pub more_anomalies: usize,
}

/// A table, as an entry of the level above names it.
#[derive(Clone, Debug, Serialize)]
pub struct Directory {
    /// Its level.
    pub level: Level,
    /// The first virtual address it is for.
    pub va: Hex,
    /// Its physical address.
    pub address: Hex,
    /// Entries that are not empty.
    pub used: usize,
    /// The tables it names.
    pub tables: Vec<Directory>,
}

/// A run of pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// First virtual address.
    pub va: Hex,
    /// Length.
    pub size_bytes: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// First physical address; absent for sparse pages.
    pub physical: Option<Hex>,
    /// Kind of the memory; absent for sparse pages.
    pub aperture: Option<Aperture>,
    /// Memory kind.
    pub kind: u8,
    /// Its name.
    pub kind_name: Option<&'static str>,
    /// Attributes in words.
    pub flags: Vec<&'static str>,
}

/// Something in the tables that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    /// The first virtual address it is about.
    pub va: Hex,
    /// The level of the entry.
    pub level: Level,
    /// The entry.
    pub entry: Hex,
    /// The problem.
    pub text: String,
}

/// Follows the tables whose root is at physical address `root`.
///
/// Every table is read at most once, whatever the entries say: one that is named twice is reported, so loops
/// end.
pub fn walk(memory: &dyn PhysicalMemory, root: u64) -> Walk {
    let mut walker = Walker {
        memory,
        seen: HashMap::new(),
        result: Walk {
            root: Hex(root),
            tree: Vec::new(),
            runs: Vec::new(),
            tables: 0,
            table_bytes: 0,
            anomalies: Vec::new(),
            more_anomalies: 0,
        },
        last: None,
    };
    let tree = walker.table(Level::Pde3, root, 0, 0);
    walker.result.tree.extend(tree);
    walker.end_run();
    // Both halves of a PDE0 are read one after the other.
    walker.result.runs.sort_by_key(|run| run.va);
    walker.result
}

struct Walker<'m> {
    memory: &'m dyn PhysicalMemory,
    /// Tables by address, with the virtual address of their first use.
    seen: HashMap<u64, u64>,
    result: Walk,
    last: Option<Pages>,
}

/// A run that may still grow.
#[derive(Clone, Copy)]
struct Pages {
    va: u64,
    len: u64,
    page: u64,
    leaf: Option<Leaf>,
}

impl Walker<'_> {
    fn anomaly(&mut self, level: Level, at: u64, entry: u64, text: String) {
        match self.result.anomalies.len() < MAX_ANOMALIES {
            true => self.result.anomalies.push(Anomaly { va: va(at), level, entry: Hex(entry), text }),
            false => self.result.more_anomalies += 1,
        }
    }

    /// Reads a table that `entry` names; `None` if it cannot be followed.
    fn table(&mut self, level: Level, address: u64, at: u64, entry: u64) -> Option<Directory> {
        if let Some(first) = self.seen.insert(address, at) {
            let text = format!("names the table at {address:#x}, which is in use for {first:#x} already");
            self.anomaly(level, at, entry, text);
            return None;
        }
        if self.result.tables == MAX_TABLES {
            self.anomaly(level, at, entry, format!("more than {MAX_TABLES} tables: this one is left out"));
            return None;
        }
        let mut bytes = vec![0; level.table_bytes()];
        if !self.memory.read(address, &mut bytes) {
            let text = format!("names a table at {address:#x}, which the memory does not hold");
            self.anomaly(level, at, entry, text);
            return None;
        }
        self.result.tables += 1;
        self.result.table_bytes += bytes.len() as u64;
        let words: Vec<u64> =
            bytes.chunks_exact(8).filter_map(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b)).collect();
        let mut directory =
            Directory { level, va: va(at), address: Hex(address), used: 0, tables: Vec::new() };
        let step = 1 << level.shift();
        for index in 0..level.entries() {
            let at = at + index as u64 * step;
            if level == Level::Pde0 {
                let (big, small) = (words[2 * index], words[2 * index + 1]);
                directory.used += usize::from(big != 0 || small != 0);
                self.dual(&mut directory, at, big, small);
            } else {
                directory.used += usize::from(words[index] != 0);
                self.entry(&mut directory, at, words[index]);
            }
        }
        Some(directory)
    }

    /// An entry of any level but PDE0.
    fn entry(&mut self, directory: &mut Directory, at: u64, word: u64) {
        let level = directory.level;
        let next = match level {
            Level::Pde3 => Level::Pde2,
            Level::Pde2 => Level::Pde1,
            _ => Level::Pde0,
        };
        let is_page = matches!(level, Level::Pte | Level::BigPte);
        match if is_page { decode_pte(word) } else { decode_pde(word) } {
            Entry::Invalid => {}
            Entry::Sparse => self.page(level, at, None),
            Entry::Leaf(leaf) if is_page || level == Level::Pde1 => {
                self.judge(level, at, word, &leaf);
                self.page(level, at, Some(leaf));
            }
            Entry::Leaf(_) => {
                self.anomaly(level, at, word, format!("a {} can be no page", level.name()));
            }
            Entry::Table { aperture, address } => self.follow(directory, next, at, word, aperture, address),
            Entry::Reserved => {
                self.anomaly(level, at, word, "bits that have no meaning together".to_owned());
            }
        }
    }

    /// A PDE0: a page of 2 MiB, or a table of 64 KiB pages, a table of 4 KiB pages, or both.
    fn dual(&mut self, directory: &mut Directory, at: u64, big: u64, small: u64) {
        if big & 1 != 0 {
            if let Entry::Leaf(leaf) = decode_pte(big) {
                self.judge(Level::Pde0, at, big, &leaf);
                self.page(Level::Pde0, at, Some(leaf));
            }
            if small != 0 {
                self.anomaly(
                    Level::Pde0,
                    at,
                    small,
                    "the other half of a 2 MiB page is not empty".to_owned(),
                );
            }
            return;
        }
        if small & 1 != 0 {
            self.anomaly(Level::Pde0, at, small, "the half for 4 KiB pages can be no page".to_owned());
            return;
        }
        let (big_entry, small_entry) = (decode_big_half(big), decode_pde(small));
        if let (Entry::Table { .. }, Entry::Table { .. }) = (big_entry, small_entry) {
            let text = "both halves name a table: the driver calls that corrupt";
            self.anomaly(Level::Pde0, at, big, text.to_owned());
        }
        let tables = [big_entry, small_entry].iter().any(|entry| matches!(entry, Entry::Table { .. }));
        if !tables && [big_entry, small_entry].contains(&Entry::Sparse) {
            self.page(Level::Pde0, at, None);
        }
        for (word, entry, next) in [(big, big_entry, Level::BigPte), (small, small_entry, Level::Pte)] {
            match entry {
                Entry::Table { aperture, address } => {
                    self.follow(directory, next, at, word, aperture, address);
                }
                Entry::Reserved => {
                    let text = "bits that have no meaning together";
                    self.anomaly(Level::Pde0, at, word, text.to_owned());
                }
                Entry::Invalid | Entry::Sparse | Entry::Leaf(_) => {}
            }
        }
    }

    fn follow(
        &mut self,
        directory: &mut Directory,
        next: Level,
        at: u64,
        word: u64,
        aperture: Aperture,
        address: u64,
    ) {
        if !matches!(aperture, Aperture::SystemCoherent | Aperture::SystemNonCoherent) {
            let text = format!("names a table in {} memory at {address:#x}: not followed", aperture.name());
            self.anomaly(next, at, word, text);
            return;
        }
        let table = self.table(next, address, at, word);
        directory.tables.extend(table);
    }

    /// Reports the problems of a page.
    fn judge(&mut self, level: Level, at: u64, word: u64, leaf: &Leaf) {
        if matches!(leaf.aperture, Aperture::Video | Aperture::Peer) {
            let text = format!("a page in {} memory, which a Tegra does not have", leaf.aperture.name());
            self.anomaly(level, at, word, text);
        }
        if kind_name(leaf.kind).is_none() || leaf.kind == 7 {
            self.anomaly(level, at, word, format!("kind {:#04x} is none", leaf.kind));
        }
        if !leaf.address.is_multiple_of(1 << level.shift()) {
            let size = crate::size::size(1 << level.shift());
            self.anomaly(
                level,
                at,
                word,
                format!("a page of {size} at {:#x}, which is not aligned", leaf.address),
            );
        }
    }

    /// Adds a page to the run before it or begins a new one.
    fn page(&mut self, level: Level, at: u64, leaf: Option<Leaf>) {
        let page = 1 << level.shift();
        if let Some(run) = &mut self.last {
            let goes_on = run.page == page && run.va + run.len == at;
            let alike = match (run.leaf, leaf) {
                (None, None) => true,
                (Some(first), Some(leaf)) => {
                    Leaf { address: first.address, ..leaf } == first
                        && first.address + run.len == leaf.address
                }
                _ => false,
            };
            if goes_on && alike {
                run.len += page;
                return;
            }
        }
        self.end_run();
        self.last = Some(Pages { va: at, len: page, page, leaf });
    }

    fn end_run(&mut self) {
        let Some(run) = self.last.take() else { return };
        if self.result.runs.len() == MAX_RUNS {
            let text = format!("more than {MAX_RUNS} runs of pages: this one is left out");
            self.anomaly(Level::Pte, run.va, 0, text);
            return;
        }
        let kind = run.leaf.map_or(0, |leaf| leaf.kind);
        self.result.runs.push(Run {
            va: va(run.va),
            size_bytes: run.len,
            page_bytes: run.page,
            physical: run.leaf.map(|leaf| Hex(leaf.address)),
            aperture: run.leaf.map(|leaf| leaf.aperture),
            kind,
            kind_name: kind_name(kind),
            flags: run.leaf.map_or(vec!["sparse"], |leaf| leaf.flags()),
        });
    }
}
