//! The words of the tables: levels, entries, pages.

use serde::Serialize;

use crate::hex::Hex;

/// Physical memory, or as much of it as a dump holds.
pub trait PhysicalMemory {
    /// Fills `bytes` from physical address `address`; false if the memory holds less.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
}

/// Bits of a virtual address.
pub const VA_BITS: u32 = 49;
/// Side-band bit of a physical address on ga10b: allocate in the system-level cache.
const L3_ALLOCATE: u64 = 1 << 37;

/// A level of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    /// The root: 4 entries of 128 TiB.
    Pde3,
    /// 512 entries of 256 GiB.
    Pde2,
    /// 512 entries of 512 MiB.
    Pde1,
    /// 256 entries of 2 MiB, each with two halves.
    Pde0,
    /// 32 pages of 64 KiB.
    BigPte,
    /// 512 pages of 4 KiB.
    Pte,
}

impl Level {
    /// Its name in NVIDIA's manuals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pde3 => "PDE3",
            Self::Pde2 => "PDE2",
            Self::Pde1 => "PDE1",
            Self::Pde0 => "PDE0",
            Self::BigPte => "PTE 64K",
            Self::Pte => "PTE 4K",
        }
    }

    /// Number of entries of a table.
    #[must_use]
    pub const fn entries(self) -> usize {
        match self {
            Self::Pde3 => 4,
            Self::Pde2 | Self::Pde1 | Self::Pte => 512,
            Self::Pde0 => 256,
            Self::BigPte => 32,
        }
    }

    /// Lowest bit of the virtual address that chooses an entry.
    #[must_use]
    pub const fn shift(self) -> u32 {
        match self {
            Self::Pde3 => 47,
            Self::Pde2 => 38,
            Self::Pde1 => 29,
            Self::Pde0 => 21,
            Self::BigPte => 16,
            Self::Pte => 12,
        }
    }

    /// Bytes of a table.
    #[must_use]
    pub const fn table_bytes(self) -> usize {
        self.entries() * if matches!(self, Self::Pde0) { 16 } else { 8 }
    }
}

/// Memory that an entry points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aperture {
    /// Video memory: on a Tegra a foreign or broken entry.
    Video,
    /// Another GPU's memory.
    Peer,
    /// System memory, coherent.
    SystemCoherent,
    /// System memory, not coherent.
    SystemNonCoherent,
}

impl Aperture {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Video => "video",
            Self::Peer => "peer",
            Self::SystemCoherent => "coherent",
            Self::SystemNonCoherent => "non-coherent",
        }
    }
}

/// An entry of a directory, or one half of a PDE0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: an access faults.
    Invalid,
    /// Nothing, and an access does not fault: reads give zeros.
    Sparse,
    /// The next table.
    Table {
        /// Memory of the table.
        aperture: Aperture,
        /// Its physical address.
        address: u64,
    },
    /// A page.
    Leaf(Leaf),
    /// Bits that have no meaning together.
    Reserved,
}

/// A page's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Memory that it lies in.
    pub aperture: Aperture,
    /// Its physical address.
    pub address: u64,
    /// The GPU's L2 does not keep it.
    pub uncached: bool,
    /// Encrypted; not on Tegra.
    pub encrypted: bool,
    /// Only the driver's own accesses are allowed.
    pub privileged: bool,
    /// Writes fault.
    pub read_only: bool,
    /// Atomics fault.
    pub no_atomics: bool,
    /// Allocated in the system-level cache (ga10b).
    pub l3: bool,
    /// Memory kind.
    pub kind: u8,
}

/// The bits above the address that a directory entry leaves empty.
const PDE_RESERVED: u64 = 0x3ff << 54 | 3 << 6 | 1 << 4;

/// Decodes an entry of PDE3, PDE2 or PDE1, or the half of a PDE0 that names a table of 4 KiB pages.
#[must_use]
pub fn decode_pde(word: u64) -> Entry {
    if word & 1 != 0 {
        return decode_pte(word);
    }
    let aperture = match word >> 1 & 3 {
        0 if word == 0 => return Entry::Invalid,
        0 if word == 1 << 3 => return Entry::Sparse,
        0 => return Entry::Reserved,
        1 => Aperture::Video,
        2 => Aperture::SystemCoherent,
        _ => Aperture::SystemNonCoherent,
    };
    match word & PDE_RESERVED {
        0 => Entry::Table { aperture, address: (word >> 8 & ((1 << 46) - 1)) << 12 & !L3_ALLOCATE },
        _ => Entry::Reserved,
    }
}

/// Decodes the half of a PDE0 that names a table of 64 KiB pages: its address has a grain of 256 bytes.
#[must_use]
pub fn decode_big_half(word: u64) -> Entry {
    match decode_pde(word & !(0xf << 4)) {
        Entry::Table { aperture, .. } => {
            Entry::Table { aperture, address: (word >> 4 & ((1 << 50) - 1)) << 8 & !L3_ALLOCATE }
        }
        other => other,
    }
}

/// Decodes a page.
#[must_use]
pub fn decode_pte(word: u64) -> Entry {
    if word & 1 == 0 {
        return match word {
            0 => Entry::Invalid,
            // Written but not valid ("unmapped PTE"): with its address, and never volatile, which would mean
            // sparse.
            _ if word & 0x08 == 0 && word >> 1 & 3 >= 2 => Entry::Invalid,
            _ if word & 0x48 == 0x08 && word >> 8 == 0 => Entry::Sparse,
            _ => Entry::Reserved,
        };
    }
    let aperture = match word >> 1 & 3 {
        0 => Aperture::Video,
        1 => Aperture::Peer,
        2 => Aperture::SystemCoherent,
        _ => Aperture::SystemNonCoherent,
    };
    // The tag line of compressed memory shares bits with addresses above 2^40, which no Tegra has.
    let address = (word >> 8 & ((1 << 28) - 1)) << 12;
    Entry::Leaf(Leaf {
        aperture,
        address: address & !L3_ALLOCATE,
        uncached: word >> 3 & 1 != 0,
        encrypted: word >> 4 & 1 != 0,
        privileged: word >> 5 & 1 != 0,
        read_only: word >> 6 & 1 != 0,
        no_atomics: word >> 7 & 1 != 0,
        l3: address & L3_ALLOCATE != 0,
        kind: (word >> 56) as u8,
    })
}

/// The name of a memory kind (Turing's list).
#[must_use]
pub const fn kind_name(kind: u8) -> Option<&'static str> {
    const NAMES: [&str; 16] = [
        "pitch",
        "Z16",
        "S8",
        "S8Z24",
        "ZF32_X24S8",
        "Z24S8",
        "generic",
        "invalid",
        "generic compressible",
        "generic compressible, no PLC",
        "S8 compressible, no PLC",
        "Z16 compressible, no PLC",
        "S8Z24 compressible, no PLC",
        "ZF32_X24S8 compressible, no PLC",
        "Z24S8 compressible, no PLC",
        "SMSKED message",
    ];
    if (kind as usize) < NAMES.len() { Some(NAMES[kind as usize]) } else { None }
}

/// Whether a physical page is the instance block of a channel, and if so the root of its tables: word 131
/// holds the firmware's magic number, words 128 and 129 the root (nvgpu, ga10b).
#[must_use]
pub fn instance_block_root(page: &[u8]) -> Option<u64> {
    let word = |index: usize| page.get(index * 4..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let low = word(128)?;
    let target_is_memory = low & 3 >= 2;
    (word(131)? == 0xcafe_ca11 && target_is_memory && low >> 10 & 1 == 1)
        .then_some(u64::from(word(129)?) << 32 | u64::from(low & !0xfff))
}

impl Leaf {
    /// Flags in words.
    #[must_use]
    pub fn flags(&self) -> Vec<&'static str> {
        let flags = [
            (self.uncached, "uncached"),
            (self.read_only, "read only"),
            (self.privileged, "privileged"),
            (self.no_atomics, "no atomics"),
            (self.encrypted, "encrypted"),
            (self.l3, "L3"),
        ];
        flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
    }
}

impl PhysicalMemory for std::collections::BTreeMap<u64, Vec<u8>> {
    /// Ranges by their first address.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let range = self.range(..=address).next_back().and_then(|(at, content)| {
            let start = usize::try_from(address - at).ok()?;
            content.get(start..start.checked_add(bytes.len())?)
        });
        range.map(|content| bytes.copy_from_slice(content)).is_some()
    }
}

/// An address with the bits above [`VA_BITS`] cut off.
pub(super) fn va(raw: u64) -> Hex {
    Hex(raw & ((1 << VA_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(word: u64) -> Leaf {
        match decode_pte(word) {
            Entry::Leaf(leaf) => leaf,
            other => panic!("{word:#x}: {other:?}"),
        }
    }

    #[test]
    fn leaves_as_the_driver_writes_them() {
        // Examples of the fact sheet: kind 6, cached, writable at 0x1_0f20_0000.
        let page = leaf(0x0600_0000_10f2_0007);
        assert_eq!((page.address, page.kind, page.aperture), (0x1_0f20_0000, 6, Aperture::SystemNonCoherent));
        assert_eq!(page.flags(), Vec::<&str>::new());
        assert_eq!(leaf(0x0f).flags(), ["uncached"]);
        assert_eq!(leaf(0x47).flags(), ["read only"]);
        assert_eq!(leaf(0x27).flags(), ["privileged"]);
        assert_eq!(leaf(0x05).aperture, Aperture::SystemCoherent);
        assert_eq!(leaf(0x01).aperture, Aperture::Video);
        let cached = leaf((1 << 37 | 0x8000_0000u64) >> 12 << 8 | 7);
        assert_eq!((cached.address, cached.l3), (0x8000_0000, true));
        assert_eq!(decode_pte(0), Entry::Invalid);
        assert_eq!(decode_pte(8), Entry::Sparse);
        assert_eq!(decode_pte(0x10f2_0046), Entry::Invalid, "mapped but invalid");
        assert_eq!(decode_pte(0x10f2_0006), Entry::Invalid, "mapped but invalid, cached");
        assert_eq!(decode_pte(0x10f2_000e), Entry::Reserved);
    }

    #[test]
    fn directories_as_the_driver_writes_them() {
        let table = Entry::Table { aperture: Aperture::SystemNonCoherent, address: 0x1_08a4_1000 };
        assert_eq!(decode_pde(0x108a_410e), table);
        assert_eq!(decode_pde(0), Entry::Invalid);
        assert_eq!(decode_pde(8), Entry::Sparse);
        assert_eq!(decode_pde(0x10), Entry::Reserved);
        assert_eq!(decode_pde(0x108a_410e | 1 << 60), Entry::Reserved);
        let packed = Entry::Table { aperture: Aperture::SystemNonCoherent, address: 0x1_08a4_1300 };
        assert_eq!(decode_big_half((0x1_08a4_1300 >> 8) << 4 | 0xe), packed);
    }

    #[test]
    fn an_instance_block_names_its_root() {
        let mut page = vec![0; 4096];
        page[0x200..0x208].copy_from_slice(&(0x1_2345_6000u64 | 0xc07).to_le_bytes());
        assert_eq!(instance_block_root(&page), None);
        page[0x20c..0x210].copy_from_slice(&0xcafe_ca11u32.to_le_bytes());
        assert_eq!(instance_block_root(&page), Some(0x1_2345_6000));
        assert_eq!(instance_block_root(&page[..100]), None);
    }
}
