//! The page-table walker: against hand-made tables, tables of the software ga10b, and damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;
use nvdiag::address_map::{AddressMap, ga10b_windows};
use nvdiag::page_table::{Aperture, Level, PhysicalMemory, Walk, walk};
use nvdiag::physical_dump::PhysicalDump;
use nvdiag::{Hex, Report};
use proptest::prelude::*;

const ROOT: u64 = 0x8000_0000;
const PAGE: u64 = 4096;

/// Tables made by hand, page by page.
#[derive(Default)]
struct Tables(BTreeMap<u64, Vec<u8>>);

impl Tables {
    fn word(&mut self, table: u64, index: u64, word: u64) {
        let page = self.0.entry(table & !(PAGE - 1)).or_insert_with(|| vec![0; PAGE as usize]);
        let at = (table % PAGE + index * 8) as usize;
        page[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// A root, a PDE2, a PDE1 and a PDE0, the first entries of which lead to one another; the PDE0 is at
    /// `ROOT + 3 * PAGE`.
    fn down_to_pde0() -> Self {
        let mut tables = Self::default();
        for level in 0..3 {
            tables.word(ROOT + level * PAGE, 0, table_at(ROOT + (level + 1) * PAGE));
        }
        tables.word(PDE0, 0, 0);
        tables
    }

    fn walk(&self) -> Walk {
        walk(&self.0, ROOT)
    }
}

const PDE0: u64 = ROOT + 3 * PAGE;
const SMALL: u64 = ROOT + 4 * PAGE;
const BIG: u64 = ROOT + 5 * PAGE + 0x300;

fn table_at(address: u64) -> u64 {
    (address >> 12) << 8 | 0xe
}

fn page_at(address: u64) -> u64 {
    (address >> 12) << 8 | 0x0600_0000_0000_0007
}

fn texts(walk: &Walk) -> Vec<&str> {
    walk.anomalies.iter().map(|a| a.text.as_str()).collect()
}

#[test]
fn small_pages_join_to_runs() {
    let mut tables = Tables::down_to_pde0();
    tables.word(PDE0, 3, table_at(SMALL));
    for i in 0..8 {
        tables.word(SMALL, i, page_at(0x9000_0000 + i * PAGE));
    }
    tables.word(SMALL, 8, page_at(0xa000_0000));
    tables.word(SMALL, 9, page_at(0xa000_1000) | 0x40);
    tables.word(SMALL, 10, 8);
    tables.word(SMALL, 11, 8);
    let found = tables.walk();
    assert_eq!(texts(&found), [""; 0]);
    let runs: Vec<_> = found.runs.iter().map(|r| (r.va.0, r.size_bytes, r.physical)).collect();
    let base = 0x20_0000;
    assert_eq!(
        runs,
        [
            (base, 8 * PAGE, Some(Hex(0x9000_0000))),
            (base + 8 * PAGE, PAGE, Some(Hex(0xa000_0000))),
            (base + 9 * PAGE, PAGE, Some(Hex(0xa000_1000))),
            (base + 10 * PAGE, 2 * PAGE, None),
        ]
    );
    assert_eq!(found.runs[0].kind_name, Some("generic"));
    assert_eq!(found.runs[0].aperture, Some(Aperture::SystemNonCoherent));
    assert_eq!(found.runs[2].flags, ["read only"]);
    assert_eq!(found.runs[3].flags, ["sparse"]);
    assert_eq!((found.tables, found.table_bytes), (5, 32 + 4 * PAGE));
}

#[test]
fn large_pages_of_every_size() {
    let mut tables = Tables::down_to_pde0();
    tables.word(PDE0, 0, (BIG >> 8) << 4 | 0xe);
    tables.word(BIG, 1, page_at(0x9001_0000));
    tables.word(PDE0, 2, page_at(0x9020_0000));
    tables.word(ROOT + 2 * PAGE, 1, page_at(0xa000_0000));
    let found = tables.walk();
    assert_eq!(texts(&found), [""; 0]);
    let runs: Vec<_> = found.runs.iter().map(|r| (r.va.0, r.size_bytes, r.page_bytes)).collect();
    assert_eq!(
        runs,
        [(0x1_0000, 0x1_0000, 0x1_0000), (0x20_0000, 0x20_0000, 0x20_0000), (1 << 29, 1 << 29, 1 << 29)]
    );
}

#[test]
fn the_last_address_of_the_space_is_reached() {
    let mut tables = Tables::default();
    for (level, index) in [(0, 3), (1, 511), (2, 511)] {
        tables.word(ROOT + level * PAGE, index, table_at(ROOT + (level + 1) * PAGE));
    }
    tables.word(PDE0, 511, table_at(SMALL));
    tables.word(SMALL, 511, page_at(0x9000_0000));
    assert_eq!(tables.walk().runs[0].va, Hex((1 << 49) - PAGE));
}

#[test]
fn what_makes_no_sense_is_reported_by_kind() {
    let cases: [(&str, u64, u64, u64); 9] = [
        ("which the memory does not hold", ROOT, 1, table_at(0xf000_0000)),
        ("which is in use for 0x0 already", PDE0, 1, table_at(ROOT)),
        ("bits that have no meaning together", ROOT + PAGE, 5, 0x10),
        ("a PDE2 can be no page", ROOT + PAGE, 6, page_at(0x9000_0000)),
        ("names a table in video memory", ROOT + PAGE, 7, (0x9000_0000 >> 12) << 8 | 2),
        ("the other half of a 2 MiB page", PDE0, 0, page_at(0x9020_0000)),
        ("a page in peer memory", SMALL, 0, page_at(0x9000_0000) & !4),
        ("kind 0x7f is none", SMALL, 0, page_at(0x9000_0000) & !(0xff << 56) | 0x7f << 56),
        ("both halves name a table", PDE0, 0, (BIG >> 8) << 4 | 0xe),
    ];
    for (expected, table, index, word) in cases {
        let mut tables = Tables::down_to_pde0();
        tables.word(PDE0, 1, table_at(SMALL));
        tables.word(SMALL, 9, page_at(0x9000_0000));
        tables.word(BIG, 31, 0);
        tables.word(table, index, word);
        let found = tables.walk();
        assert!(
            texts(&found).iter().any(|text| text.contains(expected)),
            "{expected}: {:?}",
            found.anomalies
        );
    }
}

#[test]
fn a_root_that_names_itself_ends_the_walk() {
    let mut tables = Tables::default();
    for index in 0..4 {
        tables.word(ROOT, index, table_at(ROOT));
    }
    let found = tables.walk();
    assert_eq!((found.tables, found.anomalies.len()), (1, 4));
}

/// Everything the software GPU mapped is found in a dump of its memory, with the addresses the library chose.
#[test]
fn a_dump_of_the_software_gpu_agrees_with_its_user() {
    let sim = Sim::new(SimConfig::default());
    let device = hcq::sim::open(Arc::clone(&sim), DeviceOptions::default()).expect("a device");
    let large = device.alloc(9 << 20).expect("memory");
    let small = device.alloc(5000).expect("memory");
    let _queue = device.queue().expect("a queue");
    let pattern = 0x0123_4567_89ab_cdefu64;
    large.write_slice(1 << 20, &[pattern]).expect("written");

    let mut bytes = Vec::new();
    sim.dump_memory(&mut bytes).expect("memory takes everything");
    let dump = PhysicalDump::open(bytes).expect("a dump");
    let [(_, root)] = sim.page_tables()[..] else { panic!("one address space") };
    let found = walk(&dump, root);
    assert_eq!(texts(&found), [""; 0]);
    assert!(found.tables > 4);

    let physical = |va: u64| {
        let run = found.runs.iter().find(|r| r.va.0 <= va && va < r.va.0 + r.size_bytes)?;
        run.physical.map(|at| at.0 + (va - run.va.0))
    };
    for mapping in device.memory_map() {
        for offset in (0..mapping.len).step_by(PAGE as usize) {
            assert!(physical(mapping.va.raw() + offset).is_some(), "{mapping:?} at {offset:#x}");
        }
    }
    let at = physical(large.va().raw() + (1 << 20)).expect("mapped");
    let mut word = [0; 8];
    assert!(dump.read(at, &mut word));
    assert_eq!(u64::from_le_bytes(word), pattern);
    assert!(physical(small.va().raw()).is_some());

    let map = AddressMap::of_tables("a dump".to_owned(), ga10b_windows(), found);
    assert!(!map.has_problem(), "{:?}", map.remarks);
    let ours = AddressMap::of_device(&device);
    assert!(!ours.has_problem() && ours.mappings.len() > 2);
    assert!(map.svg(&[]).starts_with("<svg "));
}

fn print(map: &AddressMap) {
    let mut out = Vec::new();
    map.print(&mut out).expect("memory takes everything");
    map.print_json(&mut out).expect("memory takes everything");
    assert!(map.svg(&[]).ends_with("</svg>\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Memory full of noise, and of noise that points into itself: the walk ends, and its tables are
    /// distinct.
    #[test]
    fn any_memory_as_tables(
        words in prop::collection::vec(any::<u64>(), 512 * 8),
        plausible in prop::collection::vec((0usize..512 * 8, 0u64..8, any::<bool>()), 0..600),
    ) {
        let mut words = words;
        for (at, page, leaf) in plausible {
            let address = ROOT + page * PAGE;
            words[at] = if leaf { page_at(address) } else { table_at(address) };
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let found = walk(&BTreeMap::from([(ROOT, bytes)]), ROOT);
        prop_assert!(found.tables <= 8 * 16 * 6);
        print(&AddressMap::of_tables("noise".to_owned(), ga10b_windows(), found));
    }

    #[test]
    fn pages_put_anywhere_are_found_there(
        pages in prop::collection::btree_map(0u64..1 << 37, 0u64..1 << 20, 1..24),
    ) {
        let mut tables = Tables::default();
        let mut next = ROOT + PAGE;
        let mut children: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (page, frame) in &pages {
            let va = page << 12;
            let mut table = ROOT;
            for level in [Level::Pde3, Level::Pde2, Level::Pde1, Level::Pde0] {
                let index = va >> level.shift() & (level.entries() as u64 - 1);
                let child = *children.entry((table, index)).or_insert_with(|| {
                    next += PAGE;
                    next
                });
                let slot = if level == Level::Pde0 { index * 2 + 1 } else { index };
                tables.word(table, slot, table_at(child));
                table = child;
            }
            tables.word(table, va >> 12 & 511, page_at(frame << 12));
        }
        let found = tables.walk();
        prop_assert_eq!(&found.anomalies, &[]);
        let mut seen = BTreeMap::new();
        for run in &found.runs {
            for i in 0..run.size_bytes / PAGE {
                seen.insert((run.va.0 >> 12) + i, (run.physical.expect("a page").0 >> 12) + i);
            }
        }
        prop_assert_eq!(seen, pages);
    }

    #[test]
    fn any_bytes_as_a_dump(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in 0usize..3) {
        let mut bytes = bytes;
        let start: &[u8] = [&b"EMiL\x01\0\0\0"[..], b"\x7fELF\x02\x01\x01", b""][magic];
        bytes.splice(..start.len().min(bytes.len()), start.iter().copied());
        if let Ok(dump) = PhysicalDump::open(bytes) {
            dump.roots();
            walk(&dump, 0);
        }
    }
}
