//! A cubin: what its sections are, what its kernels need, and their code.

use std::collections::BTreeMap;

use goblin::elf::section_header::SHT_NOBITS;
use goblin::elf::{Elf, SectionHeader};
use serde::Serialize;

use crate::Hex;

/// Why a file could not be read as a cubin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not an ELF file, or a damaged one.
    #[error("not a readable ELF file: {reason}")]
    Elf {
        /// What the ELF reader says.
        reason: String,
    },
    /// An ELF file for another machine.
    #[error("an ELF file for machine {machine}, not for CUDA (190)")]
    NotCuda {
        /// `e_machine`.
        machine: u16,
    },
    /// A section lies outside the file.
    #[error("section {section:?} lies outside the file, which is {len} bytes long")]
    Truncated {
        /// Its name.
        section: String,
        /// Length of the file.
        len: usize,
    },
}

/// Machine number of CUDA objects.
const EM_CUDA: u16 = 190;
/// Bit of a symbol's `st_other` that marks the entry point of a kernel.
const STO_CUDA_ENTRY: u8 = 0x10;

/// `EIATTR_*` codes of `.nv.info` records.
mod attribute {
    pub const MAX_THREADS: u8 = 0x05;
    pub const PARAM_CBANK: u8 = 0x0a;
    pub const REQNTID: u8 = 0x10;
    pub const FRAME_SIZE: u8 = 0x11;
    pub const MIN_STACK_SIZE: u8 = 0x12;
    pub const KPARAM_INFO: u8 = 0x17;
    pub const REGCOUNT: u8 = 0x2f;
    pub const KPARAM_INFO_V2: u8 = 0x45;
    pub const NUM_BARRIERS: u8 = 0x4c;
}

/// A cubin, read.
#[derive(Clone, Debug)]
pub struct Cubin<'a> {
    /// Compute capability the code is for, 87 for 8.7.
    pub sm: u32,
    /// ABI version: 7 up to CUDA 12, 8 from CUDA 13 on.
    pub abi: u8,
    /// Its sections, in file order.
    pub sections: Vec<Section>,
    /// Its kernels, by name.
    pub kernels: Vec<Kernel<'a>>,
}

/// A section.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its size in memory.
    pub size_bytes: u64,
    /// Its place in the file; absent for memory that starts as zeros.
    pub file_offset: Option<Hex>,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its code, 16 bytes per instruction.
    pub code: &'a [u8],
    /// Names of the functions in its code, by offset; the kernel itself is at 0.
    pub functions: BTreeMap<u64, &'a str>,
    /// What it needs.
    pub resources: Resources,
}

/// What a kernel needs to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Barriers of a block.
    pub barriers: u32,
    /// Size of its shared section. On sm_90 it counts CUDA's reserved KiB.
    pub shared_bytes: u64,
    /// Stack frame of the kernel itself.
    pub frame_bytes: Option<u32>,
    /// Stack it needs with everything it calls; absent where the compiler cannot tell.
    pub stack_bytes: Option<u32>,
    /// Most threads of a block it was compiled for.
    pub max_threads: Option<[u32; 3]>,
    /// The exact block it was compiled for.
    pub required_block: Option<[u32; 3]>,
    /// Where parameters start in constant bank 0.
    pub parameter_base: Option<Hex>,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Sizes of its constant banks, by number.
    pub constant_banks: BTreeMap<u32, u64>,
}

/// A kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Parameter {
    /// Position in the parameter list.
    pub ordinal: u16,
    /// Offset from the parameter base.
    pub offset: u16,
    /// Its size.
    pub size_bytes: u32,
}

impl<'a> Cubin<'a> {
    /// Reads a cubin.
    ///
    /// # Errors
    /// One of [`Error`]; attributes that are damaged are left out instead.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let elf = Elf::parse(bytes).map_err(|e| Error::Elf { reason: e.to_string() })?;
        if elf.header.e_machine != EM_CUDA {
            return Err(Error::NotCuda { machine: elf.header.e_machine });
        }
        let abi = elf.header.e_ident[8];
        // ABI 8 moved the SM number.
        let sm = elf.header.e_flags >> (if abi >= 8 { 8 } else { 0 }) & 0xff;
        let file = File { bytes, elf: &elf, abi };
        let sections = elf.section_headers.iter().skip(1).map(|header| Section {
            name: file.name(header).to_owned(),
            size_bytes: header.sh_size,
            file_offset: (header.sh_type != SHT_NOBITS).then_some(Hex(header.sh_offset)),
        });
        let mut kernels = Vec::new();
        for (index, header) in elf.section_headers.iter().enumerate() {
            if let Some(name) = file.name(header).strip_prefix(".text.") {
                kernels.push(file.kernel(name, index, header)?);
            }
        }
        kernels.sort_by_key(|kernel| kernel.name);
        Ok(Self { sm, abi, sections: sections.collect(), kernels })
    }
}

struct File<'a, 'e> {
    bytes: &'a [u8],
    elf: &'e Elf<'a>,
    abi: u8,
}

impl<'a> File<'a, '_> {
    fn name(&self, header: &SectionHeader) -> &'a str {
        self.elf.shdr_strtab.get_at(header.sh_name).unwrap_or("")
    }

    fn content(&self, header: &SectionHeader) -> Result<&'a [u8], Error> {
        let start = usize::try_from(header.sh_offset).ok();
        let end = header.sh_offset.checked_add(header.sh_size).and_then(|end| usize::try_from(end).ok());
        start
            .zip(end)
            .and_then(|(start, end)| self.bytes.get(start..end))
            .ok_or_else(|| Error::Truncated { section: self.name(header).to_owned(), len: self.bytes.len() })
    }

    fn section(&self, name: &str) -> Option<&SectionHeader> {
        self.elf.section_headers.iter().find(|header| self.name(header) == name)
    }

    fn records(&self, section: &str) -> Result<Vec<Record<'a>>, Error> {
        self.section(section).map_or(Ok(Vec::new()), |header| Ok(records(self.content(header)?)))
    }

    fn kernel(&self, name: &'a str, index: usize, header: &SectionHeader) -> Result<Kernel<'a>, Error> {
        let mut functions = BTreeMap::new();
        let mut symbols = Vec::new();
        for (number, symbol) in self.elf.syms.iter().enumerate() {
            if symbol.st_shndx != index || !symbol.is_function() {
                continue;
            }
            let label = self.elf.strtab.get_at(symbol.st_name).unwrap_or("");
            functions.insert(symbol.st_value, label);
            if symbol.st_other & STO_CUDA_ENTRY != 0 || label == name {
                symbols.push(number as u32);
            }
        }
        let mut resources = Resources::default();
        if self.abi < 8 {
            resources.barriers = (header.sh_flags >> 20 & 0x7f) as u32;
        }
        // Attributes of the module name the function they are about by its symbol.
        for record in self.records(".nv.info")? {
            let (Some(symbol), Some(value)) = (record.word(0), record.word(1)) else { continue };
            if symbols.contains(&symbol) {
                let known = (value != u32::MAX).then_some(value);
                match record.code {
                    attribute::REGCOUNT => resources.registers = known,
                    attribute::FRAME_SIZE => resources.frame_bytes = known,
                    attribute::MIN_STACK_SIZE => resources.stack_bytes = known,
                    _ => {}
                }
            }
        }
        for record in self.records(&format!(".nv.info.{name}"))? {
            resources.note(&record);
        }
        resources.parameters.sort();
        if let Some(shared) = self.section(&format!(".nv.shared.{name}")) {
            resources.shared_bytes = shared.sh_size;
        }
        for bank in &self.elf.section_headers {
            let number =
                self.name(bank).strip_prefix(".nv.constant").and_then(|rest| match rest.split_once('.') {
                    Some((number, kernel)) => (kernel == name).then_some(number),
                    None => Some(rest),
                });
            if let Some(number) = number.and_then(|n| n.parse().ok()) {
                resources.constant_banks.insert(number, bank.sh_size);
            }
        }
        Ok(Kernel { name, code: self.content(header)?, functions, resources })
    }
}

/// One attribute: format, code, then a halfword that is the value or the length of what follows.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    code: u8,
    value: u16,
    data: &'a [u8],
}

impl Record<'_> {
    fn word(&self, index: usize) -> Option<u32> {
        let bytes = self.data.get(index * 4..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }
}

/// The records of an attribute section, up to the first that runs past its end.
fn records(mut bytes: &[u8]) -> Vec<Record<'_>> {
    /// Format of a record with data behind it.
    const SIZED: u8 = 4;
    let mut found = Vec::new();
    while let [format, code, low, high, rest @ ..] = bytes {
        let value = u16::from_le_bytes([*low, *high]);
        let len = if *format == SIZED { usize::from(value) } else { 0 };
        let Some((data, next)) = rest.split_at_checked(len) else { break };
        found.push(Record { code: *code, value, data });
        bytes = next;
    }
    found
}

impl Resources {
    fn note(&mut self, record: &Record<'_>) {
        let triple = || Some([record.word(0)?, record.word(1)?, record.word(2)?]);
        let halves = |word: u32| (word as u16, (word >> 16) as u16);
        match record.code {
            attribute::MAX_THREADS => self.max_threads = triple(),
            attribute::REQNTID => self.required_block = triple(),
            // The halfword of a byte-sized record holds the byte in its lower half.
            attribute::NUM_BARRIERS => self.barriers = u32::from(record.value & 0xff),
            attribute::PARAM_CBANK => {
                self.parameter_base = record.word(1).map(|word| Hex(u64::from(halves(word).0)));
            }
            attribute::KPARAM_INFO => {
                let (Some(place), Some(layout)) = (record.word(1), record.word(2)) else { return };
                let (ordinal, offset) = halves(place);
                self.parameters.push(Parameter { ordinal, offset, size_bytes: layout >> 18 });
            }
            attribute::KPARAM_INFO_V2 => {
                let (Some(place), Some(size_bytes)) = (record.word(1), record.word(2)) else { return };
                let (ordinal, offset) = halves(place);
                self.parameters.push(Parameter { ordinal, offset, size_bytes });
            }
            _ => {}
        }
    }
}
