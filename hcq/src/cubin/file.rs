//! The tables of a cubin: sections, functions, relocations.

use goblin::elf::section_header::{SHT_NOBITS, SHT_REL, SHT_RELA};
use goblin::elf::{Elf, SectionHeader, Sym};

use super::error::CubinError;

/// `e_machine` of CUDA objects.
pub(super) const EM_CUDA: u16 = 190;
/// `st_other` bit of kernel entry points.
const STO_ENTRY: u8 = 0x10;

/// A cubin.
#[derive(Debug)]
pub struct File<'a> {
    elf: Elf<'a>,
    bytes: &'a [u8],
    sm: u32,
}

/// A section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its number.
    pub index: usize,
    /// Its name; empty where the file has none that can be read.
    pub name: &'a str,
    /// Its size in memory, in bytes.
    pub size: u64,
    /// Offset in the file; `None` for memory that starts as zeros.
    pub offset: Option<u64>,
    /// Its address; 0 in a cubin that is not loaded.
    pub address: u64,
    /// Alignment in bytes, as the file has it.
    pub align: u64,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_info`.
    pub info: u32,
}

/// A function: an entry point, or one that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The section its code is in.
    pub section: Section<'a>,
    /// Offset in that section, in bytes.
    pub offset: u64,
    /// Length of its code in bytes.
    pub size: u64,
    /// Whether it can be launched.
    pub is_entry: bool,
}

/// A place that gets an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// Section of the place.
    pub section: usize,
    /// Offset of the place in it.
    pub offset: u64,
    pub kind: u32,
    /// Index of the symbol.
    pub symbol: usize,
    /// Section and offset of the symbol; `None` for a symbol that is not in the table.
    pub target: Option<(usize, u64)>,
    /// `None`: the addend is in place.
    pub addend: Option<i64>,
}

impl<'a> File<'a> {
    /// Reads the tables of a cubin.
    ///
    /// # Errors
    /// [`CubinError::Elf`], [`CubinError::NotCuda`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CubinError> {
        if let Some(what) = known_otherwise(bytes) {
            return Err(CubinError::Other { what });
        }
        check_length(bytes)?;
        let elf = Elf::parse(bytes).map_err(|e| CubinError::Elf { reason: e.to_string() })?;
        if elf.header.e_machine != EM_CUDA || !elf.is_64 || !elf.little_endian {
            return Err(CubinError::NotCuda { machine: elf.header.e_machine });
        }
        // Tool chains from CUDA 13 on moved the SM number.
        let shift = if elf.header.e_ident[8] >= 8 { 8 } else { 0 };
        let sm = elf.header.e_flags >> shift & 0xff;
        Ok(Self { elf, bytes, sm })
    }

    /// The SM of the code, e.g. 87.
    #[must_use]
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// Version of the ABI: 7 up to CUDA 12, 8 from CUDA 13 on.
    #[must_use]
    pub fn abi(&self) -> u8 {
        self.elf.header.e_ident[8]
    }

    fn describe(&self, index: usize, header: &SectionHeader) -> Section<'a> {
        Section {
            index,
            name: self.elf.shdr_strtab.get_at(header.sh_name).unwrap_or(""),
            size: header.sh_size,
            offset: (header.sh_type != SHT_NOBITS).then_some(header.sh_offset),
            address: header.sh_addr,
            align: header.sh_addralign,
            flags: header.sh_flags,
            info: header.sh_info,
        }
    }

    /// Its sections, in file order.
    pub fn sections(&self) -> impl Iterator<Item = Section<'a>> + '_ {
        self.elf.section_headers.iter().enumerate().map(|(index, header)| self.describe(index, header))
    }

    /// The section of that number.
    #[must_use]
    pub fn section_at(&self, index: usize) -> Option<Section<'a>> {
        self.elf.section_headers.get(index).map(|header| self.describe(index, header))
    }

    /// The section of that name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<Section<'a>> {
        self.sections().find(|section| section.name == name)
    }

    /// The bytes of a section; none for one that starts as zeros.
    ///
    /// # Errors
    /// [`CubinError::Truncated`] if the file ends before it does.
    pub fn content(&self, section: &Section<'_>) -> Result<&'a [u8], CubinError> {
        let Some(offset) = section.offset else { return Ok(&[]) };
        let start = usize::try_from(offset).ok();
        let end = offset.checked_add(section.size).and_then(|end| usize::try_from(end).ok());
        let range = start.zip(end).and_then(|(start, end)| self.bytes.get(start..end));
        range.ok_or(CubinError::Truncated { what: "a section" })
    }

    /// All its symbols.
    #[cfg(feature = "sim")]
    pub(super) fn symbols(&self) -> impl Iterator<Item = Sym> + '_ {
        self.elf.syms.iter()
    }

    pub(super) fn symbol_name(&self, symbol: &Sym) -> Option<&'a str> {
        self.elf.strtab.get_at(symbol.st_name)
    }

    /// Name of the symbol of that number.
    pub(super) fn symbol(&self, index: u32) -> Option<&'a str> {
        self.symbol_name(&self.elf.syms.get(index as usize)?)
    }

    /// Whether the symbol of that number is a function that is not launched but called.
    pub(super) fn is_callee(&self, index: u32) -> bool {
        self.elf.syms.get(index as usize).is_some_and(|symbol| symbol.st_other & STO_ENTRY == 0)
    }

    /// Its functions, in the order of the symbol table.
    pub fn functions(&self) -> impl Iterator<Item = Function<'a>> + '_ {
        self.elf.syms.iter().filter(Sym::is_function).filter_map(|symbol| {
            let section = self.section_at(symbol.st_shndx)?;
            section.name.starts_with(".text.").then_some(())?;
            Some(Function {
                name: self.symbol_name(&symbol)?,
                section,
                // Symbols of a loaded cubin have addresses.
                offset: symbol.st_value.wrapping_sub(section.address),
                size: symbol.st_size,
                is_entry: symbol.st_other & STO_ENTRY != 0,
            })
        })
    }

    /// Its kernels: entry points that have a section of their own.
    pub fn kernels(&self) -> impl Iterator<Item = Function<'a>> + '_ {
        self.functions().filter(|f| f.is_entry && f.section.name.strip_prefix(".text.") == Some(f.name))
    }

    /// Places that get addresses.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Relocation> + '_ {
        let tables = self.elf.shdr_relocs.iter().filter_map(|(index, table)| {
            let header = self.elf.section_headers.get(*index)?;
            matches!(header.sh_type, SHT_REL | SHT_RELA).then_some((header.sh_info as usize, table))
        });
        tables.flat_map(move |(section, table)| {
            table.iter().map(move |r| Relocation {
                section,
                offset: r.r_offset,
                kind: r.r_type,
                symbol: r.r_sym,
                target: self.elf.syms.get(r.r_sym).map(|symbol| (symbol.st_shndx, symbol.st_value)),
                addend: r.r_addend,
            })
        })
    }
}

/// Names files that people take for cubins: those that hold some, or become some.
fn known_otherwise(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("an empty file"),
        // `fatBinary` header: magic 0xba55ed50.
        [0x50, 0xed, 0x55, 0xba, ..] => {
            Some("a fatbin: `nvdiag disasm` lists its cubins, `cuobjdump -xelf all FILE` unpacks them")
        }
        _ if bytes.get(..4096.min(bytes.len())).is_some_and(|start| {
            start.windows(8).any(|w| w == b".version") && start.windows(7).any(|w| w == b".target")
        }) && !bytes.starts_with(b"\x7fELF") =>
        {
            Some("PTX text: assemble it with `ptxas -arch=sm_87 FILE -o FILE.cubin`")
        }
        _ => None,
    }
}

/// Refuses an ELF object that ends before its tables do: a download or a copy that broke off.
fn check_length(bytes: &[u8]) -> Result<(), CubinError> {
    /// Bytes of `Elf64_Ehdr`.
    const HEADER: usize = 64;
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(CubinError::Truncated { what: "the ELF header" });
    };
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
    // e_shoff, e_shentsize and e_shnum; e_phoff, e_phentsize and e_phnum.
    let sections = (word(0x28).saturating_add(half(0x3a) * half(0x3c)), "the section table");
    let segments = (word(0x20).saturating_add(half(0x36) * half(0x38)), "the program header table");
    if let Some((_, what)) = [sections, segments].into_iter().find(|(end, _)| *end > bytes.len() as u64) {
        return Err(CubinError::Truncated { what });
    }
    Ok(())
}

/// The bank number and kernel of a `.nv.constant<N>[.<kernel>]` section.
pub(crate) fn constant_bank(name: &str) -> Option<(u32, Option<&str>)> {
    let rest = name.strip_prefix(".nv.constant")?;
    let (number, kernel) = match rest.split_once('.') {
        Some((number, kernel)) => (number, Some(kernel)),
        None => (rest, None),
    };
    Some((number.parse().ok()?, kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_broke_off_is_called_truncated() {
        let whole = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");
        for len in 4..whole.len() {
            let error = File::parse(&whole[..len]).expect_err("truncated");
            assert!(matches!(error, CubinError::Truncated { .. }), "{len}: {error}");
        }
    }

    #[test]
    fn files_that_hold_cubins_are_named() {
        for (bytes, expected) in [
            (&b""[..], "an empty file"),
            (b"\x50\xed\x55\xba\x01\x00\x10\x00", "a fatbin"),
            (b"//\n.version 8.5\n.target sm_87\n.address_size 64\n", "PTX text"),
        ] {
            let error = File::parse(bytes).expect_err("no cubin").to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(matches!(File::parse(b"#!/bin/sh\n"), Err(CubinError::Elf { .. })));
    }

    #[test]
    fn banks_are_told_by_the_names_of_their_sections() {
        assert_eq!(constant_bank(".nv.constant0.k"), Some((0, Some("k"))));
        assert_eq!(constant_bank(".nv.constant3"), Some((3, None)));
        assert_eq!(constant_bank(".nv.constant"), None);
        assert_eq!(constant_bank(".text.k"), None);
    }
}
