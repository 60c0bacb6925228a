//! The GPU's page tables: version 2 format, five levels, 4 KiB leaves, in physical memory.
//!
//! The driver side writes nvgpu's words for ga10b; the GPU side gets only the root address and walks them.
//! Formats: open-gpu-doc `dev_mmu` (Turing, version 2) and nvgpu's `gmmu_*_ga10b`.

use crate::dram::{Backing, Dram, HostMapping, PAGE};
use crate::pieces::Pieces;
use nv_hw::fault::fault_type;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits of a virtual address.
pub(crate) const VA_BITS: u32 = 49;
/// Bytes that one PDE0 entry (one table of leaves) covers.
const LEAF_TABLE_SPAN: u64 = 1 << 21;
/// Table pages taken from memory at once.
const POOL_PAGES: usize = 16;

const VALID: u64 = 1;
const VOLATILE: u64 = 1 << 3;
const PRIVILEGED: u64 = 1 << 5;
const READ_ONLY: u64 = 1 << 6;
const ADDRESS: u64 = ((1 << 46) - 1) << 8;
/// Address bits of a leaf: the tag line has those above.
const LEAF_ADDRESS: u64 = ((1 << 28) - 1) << 8;
/// Bits of the number of a line of compression tags.
const TAG_LINES: u32 = (1 << 20) - 1;
/// Side-band bit of the physical address: allocate in the system-level cache.
const L3_ALLOCATE: u64 = 1 << 37;
/// A leaf that faults on nothing: reads give zero, writes vanish.
const SPARSE: u64 = VOLATILE;
/// PDE to a table in non-coherent system memory.
const TABLE: u64 = VOLATILE | 3 << 1;

/// Attributes of a mapping's leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PteAttributes {
    /// The GPU's L2 may keep lines (clears the volatile bit).
    pub(crate) cached: bool,
    /// Coherent system memory aperture.
    pub(crate) coherent: bool,
    /// Writes fault.
    pub(crate) read_only: bool,
    /// User accesses fault.
    pub(crate) privileged: bool,
    /// Written, but not valid (the "unmapped PTE" flag).
    pub(crate) invalid: bool,
    /// Allocate in the system-level cache: a side-band bit of the physical address.
    pub(crate) l3: bool,
    /// Memory kind.
    pub(crate) kind: u8,
    /// Line of compression tags, 0 for none. Its field begins where addresses of 40 bits end.
    pub(crate) tag_line: u32,
}

/// The leaf word for physical address `pa`.
pub(crate) fn encode_pte(pa: u64, attributes: PteAttributes) -> u64 {
    let pa = if attributes.l3 { pa | L3_ALLOCATE } else { pa };
    let mut word = (pa >> 12) << 8 & ADDRESS | u64::from(attributes.kind) << 56;
    word |= u64::from(attributes.tag_line & TAG_LINES) << 36;
    word |= if attributes.coherent { 2 << 1 } else { 3 << 1 };
    // Volatile without valid would mean sparse: the driver makes such leaves read-only instead.
    let uncached = if attributes.invalid { READ_ONLY } else { VOLATILE };
    for (set, bit) in [
        (!attributes.invalid, VALID),
        (!attributes.cached, uncached),
        (attributes.read_only, READ_ONLY),
        (attributes.privileged, PRIVILEGED),
    ] {
        if set {
            word |= bit;
        }
    }
    word
}

/// Target of a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// Start of the run of pages.
    pub(crate) va: u64,
    /// Bytes of the run: consecutive leaves with consecutive physical pages and equal attributes.
    pub(crate) len: u64,
    /// Physical address of `va`; `None` for a sparse leaf.
    pub(crate) pa: Option<u64>,
    /// Writes fault.
    pub(crate) read_only: bool,
    /// User accesses fault.
    pub(crate) privileged: bool,
}

/// The tables of one address space.
#[derive(Debug)]
pub(crate) struct PageTables {
    dram: Arc<Dram>,
    root: u64,
    pool: Mutex<Pool>,
    generation: AtomicU64,
    pieces: Pieces,
}

#[derive(Debug, Default)]
struct Pool {
    chunks: Vec<Arc<Backing>>,
    free: Vec<u64>,
}

impl PageTables {
    /// An empty tree. `None` when memory is exhausted.
    pub(crate) fn new(dram: &Arc<Dram>) -> Option<Self> {
        let mut pool = Pool::default();
        let root = pool.page(dram)?;
        let (pool, generation) = (Mutex::new(pool), AtomicU64::new(1));
        Some(Self { dram: Arc::clone(dram), root, pool, generation, pieces: Pieces::default() })
    }

    /// Returns the program's notes about the address space.
    pub(crate) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// Physical address of the top table.
    pub(crate) fn root(&self) -> u64 {
        self.root
    }

    /// The memory that the tables lie in and point into.
    pub(crate) fn dram(&self) -> &Arc<Dram> {
        &self.dram
    }

    /// Changes with every TLB invalidate.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Invalidates the GPU's translations.
    pub(crate) fn invalidate_tlb(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Points the pages from `va` at the physical pages of `source`, in order. `None` when memory for tables
    /// runs out.
    pub(crate) fn map(
        &self,
        va: u64,
        source: impl Iterator<Item = u64>,
        attributes: PteAttributes,
    ) -> Option<()> {
        let mut at = va;
        let mut table = None;
        for pa in source {
            let leaves = match table {
                Some((base, leaves)) if base == at / LEAF_TABLE_SPAN => leaves,
                _ => self.leaf_table(at)?,
            };
            table = Some((at / LEAF_TABLE_SPAN, leaves));
            store(leaves, at >> 12 & 0x1ff, encode_pte(pa, attributes));
            at += PAGE;
        }
        Some(())
    }

    /// Makes the pages of `[va, va + len)` sparse. `None` when memory for tables runs out.
    pub(crate) fn map_sparse(&self, va: u64, len: u64) -> Option<()> {
        let mut at = va;
        while at < va + len {
            let leaves = self.leaf_table(at)?;
            let end = (at / LEAF_TABLE_SPAN + 1) * LEAF_TABLE_SPAN;
            while at < end.min(va + len) {
                store(leaves, at >> 12 & 0x1ff, SPARSE);
                at += PAGE;
            }
        }
        Some(())
    }

    /// Clears the leaves of `[va, va + len)`; tables stay, as in the driver.
    pub(crate) fn unmap(&self, va: u64, len: u64) {
        let mut at = va;
        while at < va + len {
            let end = ((at / LEAF_TABLE_SPAN + 1) * LEAF_TABLE_SPAN).min(va + len);
            if let Ok(leaves) = find_leaf_table(&self.dram, self.root, at) {
                while at < end {
                    store(leaves, at >> 12 & 0x1ff, 0);
                    at += PAGE;
                }
            }
            at = end;
        }
    }

    /// The table of leaves for `va`, with every level above it created as needed.
    fn leaf_table(&self, va: u64) -> Option<NonNull<u8>> {
        if let Ok(table) = find_leaf_table(&self.dram, self.root, va) {
            return Some(table);
        }
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.dram.resolve(self.root)?.0;
        for (shift, mask) in [(47, 0x3), (38, 0x1ff), (29, 0x1ff)] {
            let index = va >> shift & mask;
            let mut entry = load(table, index);
            if entry == 0 {
                entry = encode_pde(pool.page(&self.dram)?);
                store(table, index, entry);
            }
            table = self.dram.resolve(pde_address(entry))?.0;
        }
        let small_half = (va >> 21 & 0xff) * 2 + 1;
        let mut entry = load(table, small_half);
        if entry == 0 {
            entry = encode_pde(pool.page(&self.dram)?);
            store(table, small_half, entry);
        }
        Some(self.dram.resolve(pde_address(entry))?.0)
    }
}

impl Pool {
    /// A zeroed page.
    fn page(&mut self, dram: &Arc<Dram>) -> Option<u64> {
        if self.free.is_empty() {
            let host = HostMapping::anonymous(POOL_PAGES * PAGE as usize).ok()?;
            let chunk = dram.attach(host)?;
            let pages = chunk.extents().iter().flat_map(|e| (0..e.len / PAGE).map(|i| e.at + i * PAGE));
            self.free.extend(pages);
            self.free.reverse();
            self.chunks.push(chunk);
        }
        self.free.pop()
    }
}

fn encode_pde(table: u64) -> u64 {
    (table >> 12) << 8 & ADDRESS | TABLE
}

fn pde_address(entry: u64) -> u64 {
    (entry & ADDRESS) >> 8 << 12
}

fn word(table: NonNull<u8>, index: u64) -> NonNull<AtomicU64> {
    // SAFETY: `index` is at most 511 and tables are whole, page-aligned pages of 512 words.
    unsafe { table.cast::<AtomicU64>().add(index as usize) }
}

#[inline]
fn load(table: NonNull<u8>, index: u64) -> u64 {
    // SAFETY: the word lies in a table page, which stays mapped while its address space lives or the GPU
    // holds memory.
    unsafe { word(table, index).as_ref() }.load(Ordering::Acquire)
}

fn store(table: NonNull<u8>, index: u64, value: u64) {
    // SAFETY: as in `load`.
    unsafe { word(table, index).as_ref() }.store(value, Ordering::Release);
}

/// Follows the directories; the error is the fault type.
fn find_leaf_table(dram: &Dram, root: u64, va: u64) -> Result<NonNull<u8>, u32> {
    let resolve = |pa: u64| dram.resolve(pa).map(|(ptr, _)| ptr).ok_or(fault_type::UNSUPPORTED_APERTURE);
    let follow = |entry: u64| match entry >> 1 & 3 {
        2 | 3 if entry & VALID == 0 => resolve(pde_address(entry)),
        0 => Err(fault_type::PDE),
        _ => Err(fault_type::UNSUPPORTED_APERTURE),
    };
    let mut table = resolve(root)?;
    for (shift, mask) in [(47, 0x3), (38, 0x1ff), (29, 0x1ff)] {
        table = follow(load(table, va >> shift & mask))?;
    }
    follow(load(table, (va >> 21 & 0xff) * 2 + 1))
}

/// Walks the tables at `root` for `va` and gathers the run of pages around it that one translation can serve.
///
/// # Errors
/// The MMU's fault type.
pub(crate) fn walk(dram: &Dram, root: u64, va: u64) -> Result<Leaf, u32> {
    if va >> VA_BITS != 0 {
        return Err(fault_type::VA_LIMIT_VIOLATION);
    }
    let table = find_leaf_table(dram, root, va)?;
    let index = va >> 12 & 0x1ff;
    let entry = load(table, index);
    let step = 1 << 8;
    if entry & VALID == 0 {
        if entry & VOLATILE == 0 {
            return Err(fault_type::PTE);
        }
        let page = va & !(PAGE - 1);
        return Ok(Leaf { va: page, len: PAGE, pa: None, read_only: false, privileged: false });
    }
    if entry >> 1 & 3 < 2 {
        return Err(fault_type::UNSUPPORTED_APERTURE);
    }
    let consecutive = |i: u64| load(table, i).wrapping_sub(entry) == i.wrapping_sub(index).wrapping_mul(step);
    let first = (0..index).rev().take_while(|&i| consecutive(i)).last().unwrap_or(index);
    let last = (index + 1..512).take_while(|&i| consecutive(i)).last().unwrap_or(index);
    let pa = ((load(table, first) & LEAF_ADDRESS) >> 8 << 12) & !L3_ALLOCATE;
    Ok(Leaf {
        va: (va & !(LEAF_TABLE_SPAN - 1)) + (first << 12),
        len: (last + 1 - first) << 12,
        pa: Some(pa),
        read_only: entry & READ_ONLY != 0,
        privileged: entry & PRIVILEGED != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn attributes() -> PteAttributes {
        PteAttributes { cached: true, ..PteAttributes::default() }
    }

    #[test]
    fn leaf_words_are_those_the_driver_writes() {
        let kind6 = PteAttributes { kind: 6, ..attributes() };
        assert_eq!(encode_pte(0x1_0f20_0000, kind6), 0x0600_0000_10f2_0007);
        let low = |a: PteAttributes| encode_pte(0, a) & 0xff;
        assert_eq!(low(attributes()), 0x07);
        assert_eq!(low(PteAttributes::default()), 0x0f);
        assert_eq!(low(PteAttributes { read_only: true, ..attributes() }), 0x47);
        assert_eq!(low(PteAttributes { privileged: true, ..attributes() }), 0x27);
        assert_eq!(low(PteAttributes { coherent: true, ..attributes() }), 0x05);
        assert_eq!(low(PteAttributes { invalid: true, ..attributes() }), 0x06);
        assert_eq!(low(PteAttributes { invalid: true, ..PteAttributes::default() }), 0x46);
        assert_eq!(encode_pde(0x1_08a4_1000), 0x108a_410e);
    }

    #[test]
    fn a_walk_names_the_level_that_is_missing() {
        let dram = Dram::new(1 << 20).unwrap();
        let tables = PageTables::new(&dram).unwrap();
        assert_eq!(walk(&dram, tables.root(), 0x1000), Err(fault_type::PDE));
        assert_eq!(walk(&dram, tables.root(), 1 << 49), Err(fault_type::VA_LIMIT_VIOLATION));
        tables.map(0x20_0000, [0x9000_0000].into_iter(), attributes()).unwrap();
        assert_eq!(walk(&dram, tables.root(), 0x20_1000), Err(fault_type::PTE));
        assert_eq!(walk(&dram, tables.root(), 0x40_0000), Err(fault_type::PDE));
        let leaf = walk(&dram, tables.root(), 0x20_0fff).unwrap();
        assert_eq!((leaf.va, leaf.len, leaf.pa), (0x20_0000, PAGE, Some(0x9000_0000)));
    }

    #[test]
    fn consecutive_pages_are_one_run() {
        let dram = Dram::new(1 << 20).unwrap();
        let tables = PageTables::new(&dram).unwrap();
        let pages = (0..100).map(|i| 0x9000_0000 + i * PAGE);
        tables.map(0x3f_0000, pages, attributes()).unwrap();
        let leaf = walk(&dram, tables.root(), 0x3f_8123).unwrap();
        assert_eq!((leaf.va, leaf.len, leaf.pa), (0x3f_0000, 0x1_0000, Some(0x9000_0000)));
        let leaf = walk(&dram, tables.root(), 0x40_0000).unwrap();
        assert_eq!((leaf.va, leaf.len, leaf.pa), (0x40_0000, 84 * PAGE, Some(0x9001_0000)));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Map { page: u64, count: u64, pa: u64, read_only: bool },
        Sparse { page: u64, count: u64 },
        Unmap { page: u64, count: u64 },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let page = prop_oneof![0u64..1200, (0u64..1200).prop_map(|p| p + (1 << 35))];
        let op = prop_oneof![
            (page.clone(), 1u64..600, 1u64..1 << 24, any::<bool>())
                .prop_map(|(page, count, pa, read_only)| Op::Map { page, count, pa: pa << 12, read_only }),
            (page.clone(), 1u64..600).prop_map(|(page, count)| Op::Sparse { page, count }),
            (page, 1u64..600).prop_map(|(page, count)| Op::Unmap { page, count }),
        ];
        prop::collection::vec(op, 1..12)
    }

    proptest! {
        /// Walking the written tables gives exactly the result of a plain map of pages.
        #[test]
        fn a_walk_agrees_with_the_model(ops in ops()) {
            let dram = Dram::new(1 << 22).unwrap();
            let tables = PageTables::new(&dram).unwrap();
            let mut model: BTreeMap<u64, Option<(u64, bool)>> = BTreeMap::new();
            for op in &ops {
                match *op {
                    Op::Map { page, count, pa, read_only } => {
                        let source = (0..count).map(|i| pa + i * PAGE);
                        tables.map(page << 12, source, PteAttributes { read_only, ..attributes() }).unwrap();
                        model.extend((0..count).map(|i| (page + i, Some((pa + i * PAGE, read_only)))));
                    }
                    Op::Sparse { page, count } => {
                        tables.map_sparse(page << 12, count << 12).unwrap();
                        model.extend((0..count).map(|i| (page + i, None)));
                    }
                    Op::Unmap { page, count } => {
                        tables.unmap(page << 12, count << 12);
                        model.retain(|&p, _| p < page || p >= page + count);
                    }
                }
            }
            for base in [0, 1 << 35] {
                for page in base..base + 1900 {
                    let va = page << 12;
                    match (walk(&dram, tables.root(), va + 5), model.get(&page)) {
                        (Ok(leaf), Some(&Some((pa, read_only)))) => {
                            prop_assert_eq!(leaf.pa.map(|p| p + (va - leaf.va)), Some(pa));
                            prop_assert_eq!(leaf.read_only, read_only);
                            prop_assert!(leaf.va <= va && va < leaf.va + leaf.len);
                        }
                        (Ok(leaf), Some(None)) => prop_assert_eq!(leaf.pa, None),
                        (Err(_), None) => {}
                        (walked, expected) => prop_assert!(false, "{va:#x}: {walked:?}, model {expected:?}"),
                    }
                }
            }
        }

        /// Arbitrary words in the tables never make a walk panic.
        #[test]
        fn random_entries_never_panic(words in prop::collection::vec(any::<u64>(), 512), va in any::<u64>()) {
            let dram = Dram::new(1 << 20).unwrap();
            let page = dram.attach(HostMapping::anonymous(4096).unwrap()).unwrap();
            for (i, w) in words.iter().enumerate() {
                store(page.ptr(), i as u64, *w);
            }
            let _ = walk(&dram, page.extents()[0].at, va);
        }
    }
}
