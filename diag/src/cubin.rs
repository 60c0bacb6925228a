//! A cubin: what its sections are, what its kernels need, and their code.

use std::collections::BTreeMap;

use hcq::CubinError;
use hcq::cubin::{File, Function, Lines, Reference};
use sass::Arch;
use serde::Serialize;

use crate::demangle::is_spelled;
use crate::hex::Hex;

/// Why a cubin, or one of its kernels, could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read as a cubin.
    #[error(transparent)]
    File(#[from] CubinError),
    /// Code for a part whose instructions are not known.
    #[error("the code is for sm_{sm}; sm_80, sm_86, sm_87, sm_89 and sm_90 can be disassembled")]
    Arch {
        /// Compute capability, 87 for 8.7.
        sm: u32,
    },
    /// No such kernel.
    #[error("no kernel {name:?}; there are: {}", available.join(", "))]
    NoKernel {
        /// The requested name.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
}

/// A cubin, read.
#[derive(Clone, Debug)]
pub struct Cubin<'a> {
    /// Compute capability the code is for, 87 for 8.7.
    pub sm: u32,
    /// Its instruction set.
    pub arch: Arch,
    /// ABI version: 7 up to CUDA 12, 8 from CUDA 13 on.
    pub abi: u8,
    /// Its sections, in file order.
    pub sections: Vec<Section>,
    /// Its kernels, by name.
    pub kernels: Vec<Kernel<'a>>,
    /// Functions that are called and have a section of their own, by name: code compiled for debugging, for
    /// separate compilation, or for calls through pointers.
    pub functions: Vec<Kernel<'a>>,
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
    /// Names of the functions in its section, by offset; the kernel itself is at 0.
    pub functions: BTreeMap<u64, &'a str>,
    /// The instructions that the loader puts addresses into, by offset.
    pub references: BTreeMap<u64, Reference<'a>>,
    /// The source lines of its code; empty without `ptxas -lineinfo`.
    pub lines: Lines,
    /// Its requirements.
    pub resources: Resources,
}

/// Requirements of a kernel.
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
    /// Stack it needs with everything it calls; absent if the compiler could not bound it.
    pub stack_bytes: Option<u32>,
    /// Most threads of a block it was compiled for.
    pub max_threads: Option<[u32; 3]>,
    /// The exact block it was compiled for.
    pub required_block: Option<[u32; 3]>,
    /// Offset of parameters in constant bank 0.
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
    /// Reads a cubin, or one kernel of it.
    ///
    /// # Errors
    /// One of [`Error`]; attributes that are damaged are left out instead.
    pub fn parse(bytes: &'a [u8], kernel: Option<&str>) -> Result<Self, Error> {
        let file = File::parse(bytes)?;
        let sm = file.sm();
        let arch = Arch::from_sm(sm).ok_or(Error::Arch { sm })?;
        let sections = file.sections().skip(1).map(|section| Section {
            name: section.name.to_owned(),
            size_bytes: section.size,
            file_offset: section.offset.map(Hex),
        });
        let mut kernels: Vec<_> = file.kernels().collect();
        let in_kernel = |function: &Function<'_>| kernels.iter().any(|k| k.section == function.section);
        let mut functions: Vec<_> = file.functions().filter(|function| !in_kernel(function)).collect();
        // Of the functions of one section, the first stands for it.
        functions.sort_by_key(|function| (function.section.index, function.offset));
        functions.dedup_by_key(|function| function.section.index);
        kernels.sort_by_key(|kernel| kernel.name);
        functions.sort_by_key(|function| function.name);
        let mut all = kernels.iter().chain(&functions);
        let is_asked_for = |k: &Function<'_>, name: &str| k.name == name || is_spelled(k.name, name);
        if let Some(name) = kernel.filter(|name| all.all(|k| !is_asked_for(k, name))) {
            let available = kernels.iter().chain(&functions).map(|k| k.name.to_owned()).collect();
            return Err(Error::NoKernel { name: name.to_owned(), available });
        }
        let read = |functions: Vec<Function<'a>>| -> Result<Vec<_>, Error> {
            let wanted = functions.iter().filter(|k| kernel.is_none_or(|name| is_asked_for(k, name)));
            wanted.map(|kernel| Kernel::read(&file, kernel)).collect()
        };
        let (kernels, functions) = (read(kernels)?, read(functions)?);
        Ok(Self { sm, arch, abi: file.abi(), sections: sections.collect(), kernels, functions })
    }
}

impl<'a> Kernel<'a> {
    fn read(file: &File<'a>, kernel: &Function<'a>) -> Result<Self, Error> {
        let inside = file.functions().filter(|function| function.section == kernel.section);
        Ok(Self {
            name: kernel.name,
            code: file.content(&kernel.section)?,
            functions: inside.map(|function| (function.offset, function.name)).collect(),
            references: file.references(kernel).into_iter().map(|it| (it.offset, it)).collect(),
            // Code is worth showing without its lines, too.
            lines: file.lines(kernel).unwrap_or_default(),
            resources: Resources::of(file.resources(kernel)?),
        })
    }
}

impl Resources {
    fn of(needs: hcq::cubin::Resources) -> Self {
        // The compiler's word for unknown.
        let known = |value: Option<u32>| value.filter(|value| *value != u32::MAX);
        Self {
            registers: known(needs.registers),
            barriers: needs.barriers,
            shared_bytes: needs.shared_bytes,
            frame_bytes: known(needs.frame_bytes),
            stack_bytes: known(needs.min_stack_bytes),
            max_threads: needs.max_threads,
            required_block: needs.required_block,
            parameter_base: needs.parameter_area.map(|(base, _)| Hex(base.into())),
            parameters: needs
                .parameters
                .into_iter()
                .map(|p| Parameter { ordinal: p.ordinal, offset: p.offset, size_bytes: p.size_bytes })
                .collect(),
            constant_banks: needs.banks.into_iter().map(|bank| (bank.number, bank.size_bytes)).collect(),
        }
    }
}
