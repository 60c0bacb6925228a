//! A cubin's kernels: their requirements, occupancy on an SM, and instructions.

use std::io::{self, Write};

use qmd::{Occupancy, RESERVED_SHARED_BYTES, Target, Version, occupancy};
use sass::{Arch, WORD_BYTES, Word};
use serde::Serialize;

use crate::cubin::{Cubin, Error, Kernel, Resources, Section};
use crate::demangle::{demangled, shown};
use crate::hex::Hex;
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::source::{Files, Source};
use crate::symbolic::named;

/// Block sizes that occupancy is given for where the kernel does not fix one.
const BLOCKS: [u32; 4] = [128, 256, 512, 1024];

/// A disassembled cubin.
#[derive(Clone, Debug, Serialize)]
pub struct Disassembly {
    /// The part the code is for, e.g. `sm_87`.
    pub target: String,
    /// ABI version of the file.
    pub abi: u8,
    /// Sections, in file order.
    pub sections: Vec<Section>,
    /// Kernels, by name.
    pub kernels: Vec<Listing>,
    /// Functions that are called and have a section of their own, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Listing>,
    /// Whether to print the instruction words.
    #[serde(skip)]
    pub words: bool,
    /// Whether to print names as the file has them, rather than demangled.
    #[serde(skip)]
    pub raw_names: bool,
}

/// A kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Its name.
    pub name: String,
    /// As C++ or Rust spells it, where it is mangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// Length of its code.
    pub code_bytes: usize,
    /// Its requirements.
    #[serde(flatten)]
    pub resources: Resources,
    /// Blocks that fit on an SM, without dynamic shared memory; empty where the part's limits are not known.
    pub occupancy: Vec<Occupancy>,
    /// Its instructions.
    pub instructions: Vec<Line>,
}

/// An instruction.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Offset from the start of the kernel.
    pub offset: Hex,
    /// The function that starts here, where it is not the kernel itself.
    pub function: Option<String>,
    /// As C++ or Rust spells it, where it is mangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// The source lines of the code from here on: its own, then the calls it was inlined by. Absent where they
    /// are those of the instruction before, or not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<Source>,
    /// The 128-bit word.
    pub word: String,
    /// The instruction; absent where it could not be decoded.
    pub text: Option<String>,
    /// Only the name of the operation is known: its operands are not shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub operands_unknown: bool,
    /// Why not.
    pub error: Option<String>,
}

impl Disassembly {
    /// Disassembles a cubin, or one kernel of it. `read` reads the source files that it names, or answers `None`
    /// for those that are not there.
    ///
    /// # Errors
    /// One of [`Error`]. A word that cannot be decoded is no error but a [`Line`] with the reason.
    pub fn read(
        bytes: &[u8],
        kernel: Option<&str>,
        read: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let cubin = Cubin::parse(bytes, kernel)?;
        let mut files = Files::default();
        cubin.kernels.iter().chain(&cubin.functions).for_each(|kernel| files.add(&kernel.lines, read));
        let kernels = cubin.kernels.iter();
        let kernels =
            kernels.map(|k| Listing::of(k, cubin.arch, Target::from_sm(cubin.sm), &files)).collect();
        // Functions that are not launched have no occupancy.
        let functions = cubin.functions.iter().map(|k| Listing::of(k, cubin.arch, None, &files)).collect();
        Ok(Self {
            target: format!("sm_{}", cubin.sm),
            abi: cubin.abi,
            sections: cubin.sections,
            kernels,
            functions,
            words: false,
            raw_names: false,
        })
    }
}

/// Style of printed listings.
#[derive(Clone, Copy)]
struct Style {
    words: bool,
    raw_names: bool,
}

impl Style {
    fn name(self, name: &str) -> String {
        if self.raw_names { name.to_owned() } else { shown(name) }
    }
}

impl Listing {
    fn of(kernel: &Kernel<'_>, arch: Arch, target: Option<Target>, files: &Files) -> Self {
        let mut shown = Vec::new();
        let chunks = kernel.code.chunks_exact(WORD_BYTES).filter_map(|chunk| chunk.first_chunk());
        let mut line = |(index, bytes): (usize, &[u8; WORD_BYTES])| {
            let offset = (index * WORD_BYTES) as u64;
            let word = Word::from_bytes(*bytes);
            let decoded = sass::decode(arch, word);
            let source = files.at(&kernel.lines, offset);
            let changed = source != shown;
            shown.clone_from(&source);
            let function = kernel.functions.get(&offset).filter(|name| **name != kernel.name);
            Line {
                offset: Hex(offset),
                function: function.map(|name| (*name).to_owned()),
                demangled: function.and_then(|name| demangled(name)),
                source: if changed { source } else { Vec::new() },
                word: format!("0x{:032x}", word.0),
                text: decoded.as_ref().ok().map(|instruction| {
                    named(instruction.text(offset), kernel.references.get(&offset), &kernel.functions)
                }),
                operands_unknown: decoded.as_ref().is_ok_and(|instruction| instruction.is_name_only()),
                error: decoded.err().map(|error| error.to_string()),
            }
        };
        Self {
            name: kernel.name.to_owned(),
            demangled: demangled(kernel.name),
            code_bytes: kernel.code.len(),
            resources: kernel.resources.clone(),
            occupancy: target.map_or(Vec::new(), |target| occupancies(target, &kernel.resources)),
            instructions: chunks.enumerate().map(&mut line).collect(),
        }
    }

    /// Prints a kernel.
    fn print(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        writeln!(out, "{HEADING}kernel {}{HEADING:#}", style.name(&self.name))?;
        self.print_needs(out)?;
        self.instructions.iter().try_for_each(|line| line.print(out, style))
    }

    /// Prints a function that is called.
    fn print_function(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        writeln!(out, "{HEADING}function {}{HEADING:#}", style.name(&self.name))?;
        let mut row = |name: &str, value: String| writeln!(out, "  {NAME}{name:<18}{NAME:#}{value}");
        if let Some(registers) = self.resources.registers {
            row("registers", format!("{registers} per thread"))?;
        }
        if let Some(frame) = self.resources.frame_bytes {
            row("stack", format!("{frame} bytes in the function itself"))?;
        }
        row("code", format!("{} bytes, {} instructions", self.code_bytes, self.instructions.len()))?;
        self.instructions.iter().try_for_each(|line| line.print(out, style))
    }

    fn print_needs(&self, out: &mut dyn Write) -> io::Result<()> {
        let r = &self.resources;
        let mut row = |name: &str, value: String| writeln!(out, "  {NAME}{name:<18}{NAME:#}{value}");
        row("registers", r.registers.map_or("not stated".to_owned(), |n| format!("{n} per thread")))?;
        row("barriers", r.barriers.to_string())?;
        row("shared memory", format!("{} bytes per block", r.shared_bytes))?;
        row(
            "stack",
            match (r.stack_bytes, r.frame_bytes) {
                (Some(stack), _) => format!("{stack} bytes per thread"),
                (None, Some(frame)) => {
                    format!("{frame} bytes in the kernel itself, unknown in what it calls")
                }
                (None, None) => "not stated".to_owned(),
            },
        )?;
        let axes = |v: [u32; 3]| format!("{} x {} x {} threads", v[0], v[1], v[2]);
        if let Some(block) = r.required_block {
            row("block", format!("exactly {}", axes(block)))?;
        } else if let Some(block) = r.max_threads {
            row("block", format!("at most {}", axes(block)))?;
        }
        if let Some(base) = r.parameter_base {
            let list: Vec<String> = r
                .parameters
                .iter()
                .map(|p| format!("{:#x}: {} bytes", base.0 + u64::from(p.offset), p.size_bytes))
                .collect();
            row("parameters", format!("c[0x0], {}", list.join(", ")))?;
        }
        let banks: Vec<String> =
            r.constant_banks.iter().map(|(bank, len)| format!("c[{bank:#x}] {len} bytes")).collect();
        if !banks.is_empty() {
            row("constant banks", banks.join(", "))?;
        }
        for o in &self.occupancy {
            let value = match o.blocks_per_sm {
                0 => format!("does not fit on an SM: {}", o.limit.name()),
                blocks => format!(
                    "{blocks} {} per SM, {} of {} warps, limited by {}",
                    if blocks == 1 { "block" } else { "blocks" },
                    o.warps_per_sm,
                    o.max_warps_per_sm,
                    o.limit.name()
                ),
            };
            row(&format!("{} threads", o.threads), value)?;
        }
        row("code", format!("{} bytes, {} instructions", self.code_bytes, self.instructions.len()))
    }
}

impl Line {
    fn print(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        if let Some(function) = &self.function {
            writeln!(out, "    {HEADING}{}:{HEADING:#}", style.name(function))?;
        }
        self.source.iter().try_for_each(|source| source.print(out, "    "))?;
        write!(out, "    {ASIDE}/*{:04x}*/{ASIDE:#}  ", self.offset.0)?;
        match (&self.text, &self.error) {
            (Some(text), _) if style.words => writeln!(out, "{text:<64} {ASIDE}{}{ASIDE:#}", self.word),
            (Some(text), _) if self.operands_unknown => {
                writeln!(out, "{text:<32} {ASIDE}{} (operands not decoded){ASIDE:#}", self.word)
            }
            (Some(text), _) => writeln!(out, "{text}"),
            (None, error) => {
                writeln!(out, "{PROBLEM}{}{PROBLEM:#}", error.as_deref().unwrap_or("not decoded"))
            }
        }
    }
}

fn occupancies(target: Target, resources: &Resources) -> Vec<Occupancy> {
    let product = |v: [u32; 3]| v.into_iter().fold(1u32, u32::saturating_mul);
    let blocks: Vec<u32> = match (resources.required_block, resources.max_threads) {
        (Some(block), _) => vec![product(block)],
        (None, most) => {
            let most = most.map_or(u32::MAX, product);
            BLOCKS.into_iter().filter(|threads| *threads <= most).collect()
        }
    };
    // On sm_90 the section counts the reserved KiB, which the rule adds by itself.
    let counted = if target.version() == Version::V04 { RESERVED_SHARED_BYTES.into() } else { 0 };
    let shared = u32::try_from(resources.shared_bytes.saturating_sub(counted)).unwrap_or(u32::MAX);
    let registers = resources.registers.unwrap_or(0);
    blocks.into_iter().map(|threads| occupancy(target, threads, registers, shared)).collect()
}

impl Report for Disassembly {
    const SCHEMA: &'static str = "nvdiag.disasm/1";

    fn has_problem(&self) -> bool {
        let all = self.kernels.iter().chain(&self.functions);
        all.flat_map(|kernel| &kernel.instructions).any(|line| line.error.is_some())
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let style = Style { words: self.words, raw_names: self.raw_names };
        let count = |n: usize, one: &str| match n {
            1 => format!("1 {one}"),
            n => format!("{n} {one}s"),
        };
        let kernels = count(self.kernels.len(), "kernel");
        let functions = match self.functions.len() {
            0 => String::new(),
            n => format!(
                ", {} in {} own",
                count(n, "function"),
                if n == 1 { "a section of its" } else { "sections of their" }
            ),
        };
        writeln!(
            out,
            "{HEADING}cubin for {}, ABI {}, {kernels}{functions}{HEADING:#}",
            self.target, self.abi
        )?;
        for section in &self.sections {
            let place = section.file_offset.map_or("zeros".to_owned(), |at| format!("at {at}"));
            writeln!(out, "  {:<40} {:>8} bytes  {place}", section.name, section.size_bytes)?;
        }
        for kernel in &self.kernels {
            kernel.print(out, style)?;
        }
        for function in &self.functions {
            function.print_function(out, style)?;
        }
        Ok(())
    }
}
