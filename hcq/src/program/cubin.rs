//! Reads a cubin: where its sections go in GPU memory, what its kernels need, what has to be relocated.
//!
//! Pure: no device, no addresses until [`Cubin::image`] is given one.

use std::collections::BTreeMap;

use goblin::elf::section_header::{SHF_ALLOC, SHT_NOBITS, SHT_REL, SHT_RELA};
use goblin::elf::{Elf, SectionHeader};

use super::attributes::{self, Record, records};
use super::{CubinError, stack};

/// `e_machine` of CUDA objects.
const EM_CUDA: u16 = 190;
/// `st_other` bit of kernel entry points.
const STO_ENTRY: u8 = 0x10;
/// Memory that must be mapped behind the last instruction: instruction prefetch runs past the end.
const CODE_TAIL: u64 = 4096;
/// Most bytes an image may take; a corrupt header shall not make us allocate more.
const MAX_IMAGE: u64 = 1 << 32;
/// Relocation types.
mod r_cuda {
    pub const ABS32: u32 = 1;
    pub const ABS64: u32 = 2;
    pub const GENERIC64: u32 = 4;
    pub const ABS32_LO_32: u32 = 0x38;
    pub const ABS32_HI_32: u32 = 0x39;
    pub const ABS47_34: u32 = 0x3a;
}

/// A stretch of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte, from the start of the image.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// What a kernel needs to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelInfo {
    pub name: String,
    pub code: Extent,
    pub registers: u32,
    pub barriers: u32,
    /// Size of `.nv.shared.<kernel>`.
    pub static_shared: u32,
    /// Stack bytes per thread.
    pub stack: u32,
    /// Where parameters start in bank 0.
    pub param_base: u32,
    /// Bytes of parameters.
    pub param_bytes: u32,
    /// Most threads per block the code was compiled for.
    pub max_threads: u32,
    /// Exact block the code was compiled for.
    pub required_block: Option<[u32; 3]>,
    /// Constant banks other than 0, by bank number.
    pub banks: Vec<(usize, Extent)>,
}

#[derive(Clone, Copy, Debug)]
struct Relocation {
    /// Image offset of the place.
    at: u64,
    kind: u32,
    /// Image offset of the symbol.
    target: u64,
    /// `None`: the addend is in place.
    addend: Option<i64>,
}

/// A parsed cubin.
#[derive(Debug)]
pub(crate) struct Cubin {
    /// SM number, e.g. 87.
    pub sm: u32,
    pub kernels: Vec<KernelInfo>,
    /// Where the code of functions is, entry points and others, by image offset.
    pub functions: BTreeMap<u64, (String, u64)>,
    /// Content from offset 0; everything else is zero.
    content: Vec<u8>,
    len: u64,
    relocations: Vec<Relocation>,
}

impl Cubin {
    /// Reads a cubin; `parameter_base` gives the offset of parameters in bank 0 for an SM number.
    pub fn parse(bytes: &[u8], parameter_base: impl Fn(u32) -> Option<u32>) -> Result<Self, CubinError> {
        let elf = Elf::parse(bytes).map_err(|e| CubinError::Elf { reason: e.to_string() })?;
        if elf.header.e_machine != EM_CUDA || !elf.is_64 || !elf.little_endian {
            return Err(CubinError::NotCuda { machine: elf.header.e_machine });
        }
        // Tool chains from CUDA 13 on (ABI version 8) moved the SM number.
        let abi8 = elf.header.e_ident.get(8).is_some_and(|v| *v >= 8);
        let sm = elf.header.e_flags >> (if abi8 { 8 } else { 0 }) & 0xff;
        let base = parameter_base(sm).ok_or(CubinError::UnknownSm { sm })?;
        let file = File { elf: &elf, bytes };
        let mut loader = Loader::default();
        for (index, header) in elf.section_headers.iter().enumerate() {
            loader.place(&file, index, header)?;
        }
        let relocations = loader.relocations(&file)?;
        let kernels = loader.kernels(&file, base, sm, abi8)?;
        let functions = loader.functions(&file);
        let len = loader.len + CODE_TAIL;
        Ok(Self { sm, kernels, functions, content: loader.content, len, relocations })
    }

    /// Bytes of GPU memory the image takes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The image for address `base`, from its start; what follows up to [`len`](Self::len) is zero.
    pub fn image(&self, base: u64) -> Result<Vec<u8>, CubinError> {
        let mut image = self.content.clone();
        for r in &self.relocations {
            apply(&mut image, r, base)?;
        }
        Ok(image)
    }
}

fn apply(image: &mut [u8], r: &Relocation, base: u64) -> Result<(), CubinError> {
    let (skip, width) = match r.kind {
        r_cuda::ABS32 => (0, 4),
        r_cuda::ABS64 | r_cuda::GENERIC64 => (0, 8),
        r_cuda::ABS32_LO_32 | r_cuda::ABS32_HI_32 => (4, 4),
        r_cuda::ABS47_34 => (0, 16),
        kind => return Err(CubinError::Relocation { kind }),
    };
    let at = usize::try_from(r.at + skip).unwrap_or(usize::MAX);
    let place = at.checked_add(width).and_then(|end| image.get_mut(at..end));
    let place = place.ok_or(CubinError::Truncated { what: "the target of a relocation" })?;
    let mut word = [0; 16];
    word[..width].copy_from_slice(place);
    let word = u128::from_le_bytes(word);
    let in_place = match r.kind {
        r_cuda::ABS47_34 => (word >> 34 & ((1 << 47) - 1)) as u64 * 4,
        _ => word as u64,
    };
    let target = base.wrapping_add(r.target);
    // In-place addends are as wide as the place: the halves of an address carry their own half of the addend.
    let value = match (r.kind, r.addend) {
        (_, Some(addend)) => target.wrapping_add_signed(addend),
        (r_cuda::ABS32_HI_32, None) => target.wrapping_add(in_place << 32),
        (_, None) => target.wrapping_add(in_place),
    };
    let new = match r.kind {
        r_cuda::ABS32_HI_32 => u128::from(value >> 32),
        r_cuda::ABS47_34 => word & !(((1 << 47) - 1) << 34) | u128::from(value >> 2 & ((1 << 47) - 1)) << 34,
        _ => u128::from(value),
    };
    place.copy_from_slice(&new.to_le_bytes()[..width]);
    Ok(())
}

struct File<'a> {
    elf: &'a Elf<'a>,
    bytes: &'a [u8],
}

impl<'a> File<'a> {
    fn name(&self, header: &SectionHeader) -> &'a str {
        self.elf.shdr_strtab.get_at(header.sh_name).unwrap_or("")
    }

    fn data(&self, header: &SectionHeader) -> Result<&'a [u8], CubinError> {
        let range = usize::try_from(header.sh_offset)
            .ok()
            .zip(usize::try_from(header.sh_size).ok())
            .and_then(|(start, len)| Some(start..start.checked_add(len)?));
        range.and_then(|r| self.bytes.get(r)).ok_or(CubinError::Truncated { what: "a section" })
    }

    fn section(&self, name: &str) -> Option<&'a SectionHeader> {
        self.elf.section_headers.iter().find(|h| self.name(h) == name)
    }

    fn symbol_name(&self, index: u32) -> Option<&'a str> {
        let symbol = self.elf.syms.get(index as usize)?;
        self.elf.strtab.get_at(symbol.st_name)
    }
}

/// The bank number and kernel of a `.nv.constant<N>[.<kernel>]` section.
fn constant_bank(name: &str) -> Option<(usize, Option<&str>)> {
    let rest = name.strip_prefix(".nv.constant")?;
    let (number, kernel) = match rest.split_once('.') {
        Some((number, kernel)) => (number, Some(kernel)),
        None => (rest, None),
    };
    Some((number.parse().ok()?, kernel))
}

#[derive(Default)]
struct Loader {
    /// By section index.
    placed: BTreeMap<usize, Extent>,
    content: Vec<u8>,
    len: u64,
}

impl Loader {
    /// Gives a section its place, if it is one that is loaded.
    fn place(&mut self, file: &File<'_>, index: usize, header: &SectionHeader) -> Result<(), CubinError> {
        let name = file.name(header);
        let align = if name.starts_with(".text.") {
            128
        } else if let Some((bank, _)) = constant_bank(name) {
            // Bank 0 is written anew for each launch.
            if bank == 0 {
                return Ok(());
            }
            256
        } else if name.starts_with(".nv.global") && header.sh_flags & u64::from(SHF_ALLOC) != 0 {
            256
        } else {
            return Ok(());
        };
        let align = header.sh_addralign.max(align);
        if !align.is_power_of_two() || align > 1 << 20 {
            return Err(CubinError::Alignment { section: name.to_owned(), align });
        }
        let offset = self.len.next_multiple_of(align);
        let end = offset.checked_add(header.sh_size).filter(|end| *end <= MAX_IMAGE);
        self.len = end.ok_or(CubinError::TooLarge { section: name.to_owned(), len: header.sh_size })?;
        if header.sh_type != SHT_NOBITS {
            let data = file.data(header)?;
            self.content.resize(offset as usize, 0);
            self.content.extend_from_slice(data);
        }
        self.placed.insert(index, Extent { offset, len: header.sh_size });
        Ok(())
    }

    fn relocations(&self, file: &File<'_>) -> Result<Vec<Relocation>, CubinError> {
        let mut all = Vec::new();
        for (index, section) in &file.elf.shdr_relocs {
            let header = &file.elf.section_headers[*index];
            if !matches!(header.sh_type, SHT_REL | SHT_RELA) {
                continue;
            }
            let Some(target) = self.placed.get(&(header.sh_info as usize)) else { continue };
            for r in section.iter() {
                let symbol = file.elf.syms.get(r.r_sym).ok_or(CubinError::Symbol { index: r.r_sym })?;
                let place = self.placed.get(&symbol.st_shndx).ok_or(CubinError::Symbol { index: r.r_sym })?;
                let at = target.offset.checked_add(r.r_offset);
                let to = place.offset.checked_add(symbol.st_value);
                let (Some(at), Some(to)) = (at, to) else {
                    return Err(CubinError::Symbol { index: r.r_sym });
                };
                all.push(Relocation { at, kind: r.r_type, target: to, addend: r.r_addend });
            }
        }
        Ok(all)
    }

    fn functions(&self, file: &File<'_>) -> BTreeMap<u64, (String, u64)> {
        let in_code = |s: &goblin::elf::Sym| {
            let header = file.elf.section_headers.get(s.st_shndx)?;
            file.name(header).starts_with(".text.").then(|| self.placed.get(&s.st_shndx)).flatten()
        };
        let functions = file.elf.syms.iter().filter(|s| s.is_function()).filter_map(|s| {
            let at = in_code(&s)?.offset.checked_add(s.st_value)?;
            Some((at, (file.elf.strtab.get_at(s.st_name)?.to_owned(), s.st_size)))
        });
        functions.collect()
    }

    fn kernels(
        &self,
        file: &File<'_>,
        base: u32,
        sm: u32,
        abi8: bool,
    ) -> Result<Vec<KernelInfo>, CubinError> {
        let module = match file.section(".nv.info") {
            Some(header) => records(file.data(header)?)?,
            None => Vec::new(),
        };
        let mut kernels = Vec::new();
        for symbol in file.elf.syms.iter().filter(|s| s.is_function() && s.st_other & STO_ENTRY != 0) {
            let Some(name) = file.elf.strtab.get_at(symbol.st_name) else { continue };
            let Some(header) = file.elf.section_headers.get(symbol.st_shndx) else { continue };
            let Some(code) = self.placed.get(&symbol.st_shndx) else { continue };
            if file.name(header).strip_prefix(".text.") != Some(name) {
                continue;
            }
            kernels.push(self.kernel(file, name, header, *code, &module, base, sm, abi8)?);
        }
        Ok(kernels)
    }

    #[expect(clippy::too_many_arguments, reason = "one call, from the loop above")]
    fn kernel(
        &self,
        file: &File<'_>,
        name: &str,
        header: &SectionHeader,
        code: Extent,
        module: &[Record<'_>],
        base: u32,
        sm: u32,
        abi8: bool,
    ) -> Result<KernelInfo, CubinError> {
        let own = match file.section(&format!(".nv.info.{name}")) {
            Some(header) => records(file.data(header)?)?,
            None => Vec::new(),
        };
        let of_function = |code: u8| {
            let this =
                |r: &&Record<'_>| r.code == code && r.word(0).and_then(|s| file.symbol_name(s)) == Some(name);
            module.iter().chain(&own).find(this).and_then(|r| r.word(1))
        };
        let triple = |code: u8| {
            let record = own.iter().find(|r| r.code == code)?;
            Some([record.word(0)?, record.word(1)?, record.word(2)?])
        };
        let missing = |what| CubinError::Missing { kernel: name.to_owned(), what };
        let registers = of_function(attributes::REGCOUNT)
            .or(Some((header.sh_info >> 24) & 0xff).filter(|n| *n != 0))
            .ok_or_else(|| missing("register count"))?;
        let barriers = match own.iter().find(|r| r.code == attributes::NUM_BARRIERS) {
            Some(record) => u32::from(record.value & 0xff),
            None if abi8 => 0,
            None => (header.sh_flags >> 20) as u32 & 0x7f,
        };
        let frame = of_function(attributes::FRAME_SIZE).unwrap_or(0);
        // Functions that are not entry points lie in the section of the kernel that calls them.
        let callees =
            module.iter().chain(&own).filter(|r| r.code == attributes::FRAME_SIZE).filter_map(|r| {
                let symbol = file.elf.syms.get(r.word(0)? as usize)?;
                (symbol.st_other & STO_ENTRY == 0).then_some(r.word(1)?)
            });
        let callees = callees.fold(0u32, u32::saturating_add);
        let minimum = of_function(attributes::MIN_STACK_SIZE);
        let stack = stack::bytes(sm, file.data(header)?, frame, minimum, callees);
        let parameters = own.iter().find(|r| r.code == attributes::PARAM_CBANK).and_then(|r| r.word(1));
        let (param_base, param_bytes) = parameters.map_or((base, 0), |w| (w & 0xffff, w >> 16));
        let threads = triple(attributes::MAX_THREADS);
        let threads = threads.map_or(1024, |t| t.iter().fold(1u32, |a, b| a.saturating_mul(*b)));
        let shared = file.section(&format!(".nv.shared.{name}")).map_or(0, |h| h.sh_size);
        let mut banks = Vec::new();
        for (index, extent) in &self.placed {
            let section = file.name(&file.elf.section_headers[*index]);
            if let Some((bank @ 1..8, owner)) = constant_bank(section)
                && owner.is_none_or(|o| o == name)
            {
                banks.push((bank, *extent));
            }
        }
        Ok(KernelInfo {
            name: name.to_owned(),
            code,
            registers,
            barriers,
            static_shared: u32::try_from(shared)
                .map_err(|_| CubinError::TooLarge { section: format!(".nv.shared.{name}"), len: shared })?,
            stack,
            param_base,
            param_bytes,
            max_threads: threads.min(1024),
            required_block: triple(attributes::REQNTID),
            banks,
        })
    }
}
