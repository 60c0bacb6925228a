//! Page tables and dumps of physical memory.

use std::collections::BTreeMap;
use std::time::Duration;

use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;
use nvdiag::address_map::{AddressMap, ga10b_windows};
use nvdiag::page_table::walk;
use nvdiag::physical_dump::PhysicalDump;
use rand::Rng;
use rand::rngs::StdRng;

use crate::fuzz::decoders::print;
use crate::fuzz::mutate::{awkward, damage, pick};
use crate::fuzz::target::{Case, Target};

/// Page tables.
pub(crate) const PAGE_WALK: Target = Target {
    name: "page-walk",
    about: "page tables that name each other at random, and damaged dumps of the software ga10b: walked, printed",
    bound: Duration::from_secs(20),
    start,
};

const ROOT: u64 = 0x8000_0000;
const PAGE: u64 = 4096;
const PAGES: u64 = 24;

/// An entry: of another table, of a page, or of nothing that makes sense.
fn entry(rng: &mut StdRng) -> u64 {
    let address =
        if rng.random_ratio(7, 8) { ROOT + rng.random_range(0..PAGES) * PAGE } else { awkward(rng) };
    match rng.random_range(0..8) {
        0..4 => (address >> 12) << 8 | 0xe,
        4 => (address >> 12) << 8 | 0x0600_0000_0000_0007,
        5 => (address >> 8) << 4 | u64::from(rng.random_range(0..16u8)),
        6 => 8,
        _ => awkward(rng),
    }
}

fn tables(rng: &mut StdRng) -> BTreeMap<u64, Vec<u8>> {
    let mut memory = BTreeMap::new();
    for page in 0..PAGES {
        let mut bytes = vec![0; PAGE as usize];
        for _ in 0..rng.random_range(0..12) {
            // Low entries, because the root has four.
            let at =
                if rng.random() { rng.random_range(0..4) } else { rng.random_range(0..PAGE as usize / 8) };
            bytes[at * 8..at * 8 + 8].copy_from_slice(&entry(rng).to_le_bytes());
        }
        memory.insert(ROOT + page * PAGE, bytes);
    }
    memory
}

/// A dump of a small machine with a device.
fn dump() -> Vec<u8> {
    let sim = Sim::new(SimConfig { sm_count: 2, memory: 1 << 30, ..SimConfig::default() });
    let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).expect("the software ga10b opens");
    let _buffer = device.alloc(1 << 16).expect("a buffer");
    let mut bytes = Vec::new();
    sim.dump_memory(&mut bytes).expect("memory takes everything");
    bytes
}

fn start() -> Case {
    let dump = dump();
    Box::new(move |rng: &mut StdRng| {
        let found = walk(&tables(rng), ROOT);
        print(&AddressMap::of_tables("noise".to_owned(), ga10b_windows(), found));
        if !rng.random_ratio(1, 64) {
            return;
        }
        let mut bytes = dump.clone();
        let head = *pick(rng, &[64, bytes.len()]);
        damage(rng, &mut bytes, head, 64);
        let Ok(dump) = PhysicalDump::open(bytes) else { return };
        for root in dump.roots().into_iter().take(4) {
            let found = walk(&dump, root);
            print(&AddressMap::of_tables("a dump".to_owned(), ga10b_windows(), found));
        }
    })
}
