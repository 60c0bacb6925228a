//! Lays a cubin out: where its sections go in GPU memory, what its kernels need, what has to be relocated.
//!
//! Pure: no device, no addresses until [`Cubin::image`] is given one.

use std::collections::BTreeMap;

use goblin::elf::section_header::SHF_ALLOC;

use crate::cubin::error::CubinError;
use crate::cubin::file::{File, Function, Section, constant_bank};
use crate::cubin::resources::Parameter;
use crate::cubin::stack;

/// Memory that must be mapped after the last instruction: instruction prefetch runs past the end.
const CODE_TAIL: u64 = 4096;
/// Most bytes an image may take; a corrupt header must not make us allocate more.
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

/// Requirements of a kernel.
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
    /// Offset of the parameters in bank 0.
    pub param_base: u32,
    /// Bytes of parameters.
    pub param_bytes: u32,
    /// The parameters in order; none where the file has no list of all of them.
    pub parameters: Vec<Parameter>,
    /// Most threads per block the code was compiled for.
    pub max_threads: u32,
    /// Exact block the code was compiled for.
    pub required_block: Option<[u32; 3]>,
    /// Constant banks other than 0, by bank number.
    pub banks: Vec<(usize, Extent)>,
}

/// A place that gets an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relocation {
    /// Image offset of the place.
    pub at: u64,
    pub kind: u32,
    /// Image offset of the symbol.
    pub target: u64,
    /// `None`: the addend is in place.
    pub addend: Option<i64>,
}

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Code,
    Constants,
    Variables,
}

/// A section in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub name: String,
    pub kind: SectionKind,
    pub extent: Extent,
}

/// A parsed cubin.
#[derive(Debug)]
pub(crate) struct Cubin {
    /// SM number, e.g. 87.
    pub sm: u32,
    pub kernels: Vec<KernelInfo>,
    /// The code of functions, entry points and others, by image offset: name and length.
    pub functions: BTreeMap<u64, (String, u64)>,
    /// Its sections, by image offset.
    pub parts: Vec<Part>,
    /// Content from offset 0; everything else is zero.
    content: Vec<u8>,
    len: u64,
    relocations: Vec<Relocation>,
}

impl Cubin {
    /// Reads a cubin; `parameter_base` gives the offset of parameters in bank 0 for an SM number.
    pub fn parse(bytes: &[u8], parameter_base: impl Fn(u32) -> Option<u32>) -> Result<Self, CubinError> {
        let file = File::parse(bytes)?;
        let sm = file.sm();
        let base = parameter_base(sm).ok_or(CubinError::UnknownSm { sm })?;
        let mut loader = Loader::default();
        for section in file.sections() {
            loader.place(&file, &section)?;
        }
        let relocations = loader.relocations(&file)?;
        let kernels = file.kernels().filter(|kernel| loader.placed.contains_key(&kernel.section.index));
        let kernels = kernels.map(|kernel| loader.kernel(&file, &kernel, base)).collect::<Result<_, _>>()?;
        let functions = loader.functions(&file);
        let len = loader.len + CODE_TAIL;
        let Loader { parts, content, .. } = loader;
        Ok(Self { sm, kernels, functions, parts, content, len, relocations })
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

pub(super) fn apply(image: &mut [u8], r: &Relocation, base: u64) -> Result<(), CubinError> {
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

/// Whether `parameters` are all of the `bytes` that a kernel takes: each once, one after the other.
fn is_whole(parameters: &[Parameter], bytes: u32) -> bool {
    let mut end = 0;
    let in_order = parameters.iter().enumerate().all(|(i, parameter)| {
        let (offset, before) = (u32::from(parameter.offset), end);
        end = offset.saturating_add(parameter.size_bytes);
        usize::from(parameter.ordinal) == i && offset >= before
    });
    in_order && end == bytes
}

#[derive(Default)]
struct Loader {
    /// By section index.
    placed: BTreeMap<usize, Extent>,
    parts: Vec<Part>,
    content: Vec<u8>,
    len: u64,
}

impl Loader {
    /// Gives a section its place, if it is one that is loaded.
    fn place(&mut self, file: &File<'_>, section: &Section<'_>) -> Result<(), CubinError> {
        let name = section.name;
        let (kind, align) = if name.starts_with(".text.") {
            (SectionKind::Code, 128)
        } else if let Some((bank, _)) = constant_bank(name) {
            // Bank 0 is written anew for each launch.
            if bank == 0 {
                return Ok(());
            }
            (SectionKind::Constants, 256)
        } else if name.starts_with(".nv.global") && section.flags & u64::from(SHF_ALLOC) != 0 {
            (SectionKind::Variables, 256)
        } else {
            return Ok(());
        };
        let align = section.align.max(align);
        if !align.is_power_of_two() || align > 1 << 20 {
            return Err(CubinError::Alignment { section: name.to_owned(), align });
        }
        let offset = self.len.next_multiple_of(align);
        let end = offset.checked_add(section.size).filter(|end| *end <= MAX_IMAGE);
        self.len = end.ok_or(CubinError::TooLarge { section: name.to_owned(), len: section.size })?;
        if section.offset.is_some() {
            let data = file.content(section)?;
            self.content.resize(offset as usize, 0);
            self.content.extend_from_slice(data);
        }
        let extent = Extent { offset, len: section.size };
        self.parts.push(Part { name: name.to_owned(), kind, extent });
        self.placed.insert(section.index, extent);
        Ok(())
    }

    fn relocations(&self, file: &File<'_>) -> Result<Vec<Relocation>, CubinError> {
        let mut all = Vec::new();
        for r in file.relocations() {
            let Some(section) = self.placed.get(&r.section) else { continue };
            let unknown = CubinError::Symbol { index: r.symbol };
            let Some((place, value)) =
                r.target.and_then(|(place, value)| Some((self.placed.get(&place)?, value)))
            else {
                return Err(unknown);
            };
            let at = section.offset.checked_add(r.offset);
            let (Some(at), Some(target)) = (at, place.offset.checked_add(value)) else { return Err(unknown) };
            all.push(Relocation { at, kind: r.kind, target, addend: r.addend });
        }
        Ok(all)
    }

    fn functions(&self, file: &File<'_>) -> BTreeMap<u64, (String, u64)> {
        let placed = file.functions().filter_map(|function| {
            let at = self.placed.get(&function.section.index)?.offset.checked_add(function.offset)?;
            Some((at, (function.name.to_owned(), function.size)))
        });
        placed.collect()
    }

    fn kernel(&self, file: &File<'_>, kernel: &Function<'_>, base: u32) -> Result<KernelInfo, CubinError> {
        let needs = file.resources(kernel)?;
        if let Some(damage) = needs.damage {
            return Err(damage);
        }
        let missing = |what| CubinError::Missing { kernel: kernel.name.to_owned(), what };
        let code = *self.placed.get(&kernel.section.index).ok_or_else(|| missing("code"))?;
        let frame = needs.frame_bytes.unwrap_or(0);
        let words = file.content(&kernel.section)?;
        let stack = stack::bytes(file.sm(), words, frame, needs.min_stack_bytes, needs.callee_frame_bytes);
        let (param_base, param_bytes) =
            needs.parameter_area.map_or((base, 0), |(base, len)| (base.into(), len.into()));
        let threads = needs.max_threads.map_or(1024, |t| t.iter().fold(1u32, |a, b| a.saturating_mul(*b)));
        let banks = needs
            .banks
            .iter()
            .filter(|bank| (1..8).contains(&bank.number))
            .filter_map(|bank| Some((bank.number as usize, *self.placed.get(&bank.section)?)));
        Ok(KernelInfo {
            name: kernel.name.to_owned(),
            code,
            registers: needs.registers.ok_or_else(|| missing("register count"))?,
            barriers: needs.barriers,
            static_shared: u32::try_from(needs.shared_bytes).map_err(|_| CubinError::TooLarge {
                section: format!(".nv.shared.{}", kernel.name),
                len: needs.shared_bytes,
            })?,
            stack,
            param_base,
            param_bytes,
            parameters: if is_whole(&needs.parameters, param_bytes) { needs.parameters } else { Vec::new() },
            max_threads: threads.min(1024),
            required_block: needs.required_block,
            banks: banks.collect(),
        })
    }
}
