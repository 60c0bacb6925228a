//! The map itself: windows, mappings, programs.

use serde::{Deserialize, Serialize};

use crate::cubin::Cubin;
use crate::document::Unreadable;
use crate::hex::Hex;
use crate::process_map::code::{Code, Function, Module};
use crate::process_map::host::HostRange;
use crate::process_map::loose::{Guess, Loose, Question, guess};
use crate::process_map::program::{Error as ProgramError, Program};
use crate::source::Files;

/// Bytes of addresses each window takes: 16 MiB on chips before Hopper (inferred from working settings; the
/// hardware documents do not say).
pub const WINDOW_BYTES: u64 = 16 << 20;

/// Why a map could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not JSON, or not of the documented fields, or too large.
    #[error("not a map of an address space (nvdiag.map/1, or what `nvdiag vamap --json` prints)")]
    Json(#[from] Unreadable),
    /// The schema of another document.
    #[error("a document of schema {schema:?} holds no map")]
    Schema {
        /// Schema named in it.
        schema: String,
    },
    /// Neither a schema nor anything mapped.
    #[error(
        "it names no \"schema\" and holds no mapping: `nvdiag vamap --json` and hcq write maps of nvdiag.map/1"
    )]
    Nothing,
    /// The map of one process beside that of another.
    #[error(
        "this is the map of process {pid}, an earlier one is of process {other}: give those of one process"
    )]
    Processes {
        /// Process of the map.
        pid: u32,
        /// Process of the earlier map.
        other: u32,
    },
    /// A cubin could not be read.
    #[error(transparent)]
    Cubin(#[from] crate::cubin::Error),
    /// A program could not be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// An address without the kernel that begins there.
    #[error("an address is that of a kernel's first instruction: FILE:KERNEL@BASE")]
    Base,
}

/// A window through which generic addresses reach shared or local memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Name of the memory seen through it.
    pub name: String,
    /// Its first address.
    pub base: Hex,
    /// Its length.
    #[serde(default = "window_bytes")]
    pub size_bytes: u64,
}

const fn window_bytes() -> u64 {
    WINDOW_BYTES
}

impl Window {
    /// Whether the window takes that address.
    #[must_use]
    pub const fn contains(&self, va: u64) -> bool {
        va >= self.base.0 && va - self.base.0 < self.size_bytes
    }
}

/// A named range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Name.
    pub name: String,
    /// First address.
    pub va: Hex,
    /// Length.
    pub size_bytes: u64,
    /// Size of its pages, where it has one.
    #[serde(default)]
    pub page_bytes: Option<u64>,
}

impl Range {
    /// A range without pages of its own.
    #[must_use]
    pub fn new(name: &str, va: u64, size_bytes: u64) -> Self {
        Self { name: name.to_owned(), va: Hex(va), size_bytes, page_bytes: None }
    }

    /// First address after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.va.0.saturating_add(self.size_bytes)
    }
}

/// A range that is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Name or purpose.
    #[serde(default = "unnamed", alias = "name")]
    pub what: String,
    /// Its first address.
    pub va: Hex,
    /// Its length.
    pub size_bytes: u64,
    /// Whether the GPU may only read it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Size of its pages, from documents that have it.
    #[serde(default, skip_serializing)]
    pub page_bytes: Option<u64>,
    /// Memory kind, from documents that have it.
    #[serde(default, skip_serializing)]
    pub kind: Option<u8>,
    /// Attributes in words, from documents that have them.
    #[serde(default, skip_serializing)]
    pub flags: Vec<String>,
    /// First physical address, from documents that have it.
    #[serde(default, skip_serializing)]
    pub physical: Option<Hex>,
}

/// Name of a mapping that has none.
pub(crate) const UNNAMED: &str = "mapping";

fn unnamed() -> String {
    UNNAMED.to_owned()
}

impl Mapping {
    /// First address after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.va.0.saturating_add(self.size_bytes)
    }

    /// Whether it holds that address.
    #[must_use]
    pub const fn contains(&self, va: u64) -> bool {
        va >= self.va.0 && va < self.end()
    }
}

/// One of the address spaces of a process that has several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Windows.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// Mappings.
    #[serde(default)]
    pub mappings: Vec<Mapping>,
    /// Ranges that addresses are given out from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<Range>,
    /// Ranges taken out of the driver's allocator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Range>,
}

/// Contents of a process's GPU address space.
#[derive(Clone, Debug, Default)]
pub struct ProcessMap {
    /// Windows.
    pub windows: Vec<Window>,
    /// Mappings, by address.
    pub mappings: Vec<Mapping>,
    /// Ranges that addresses are given out from.
    pub regions: Vec<Range>,
    /// Ranges taken out of the driver's allocator.
    pub reservations: Vec<Range>,
    /// Programs.
    pub modules: Vec<Module>,
    /// The process whose map was read, if the map names it.
    pub pid: Option<u32>,
    /// CPU mappings of the process.
    pub host: Vec<HostRange>,
    /// The address spaces one by one, where a document names them; `mappings` has those of all.
    pub spaces: Vec<Space>,
    /// Compute capability of the device, where a user named it: logs without one are read with this.
    pub sm: Option<u32>,
    loose: Vec<Loose>,
    /// Cubins whose place was given by hand, as if it were not.
    placed: Vec<Loose>,
    /// Programs with cubins for several architectures.
    programs: Vec<Program>,
    /// Source files that cubins name.
    files: Files,
    /// Windows and modules given by hand rather than read from a map: they hold for any process.
    by_hand: (Vec<Window>, Vec<Module>),
}

/// Facts about the instruction that failed.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The places, the likeliest first.
    pub code: Vec<Code>,
    /// Candidates among which they were guessed, where they are guesses.
    pub guess: Option<Guess>,
    /// Why programs could not be used.
    pub notes: Vec<String>,
}

/// The process that a map is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
}

impl ProcessMap {
    /// Adds a window by its base, unless it is known.
    pub fn add_window(&mut self, name: &str, base: u64) {
        if !self.windows.iter().any(|w| w.base.0 == base) {
            let window = Window { name: name.to_owned(), base: Hex(base), size_bytes: WINDOW_BYTES };
            self.by_hand.0.push(window.clone());
            self.windows.push(window);
        }
    }

    /// Adds a cubin. `kernel` and `base` together give the address of that kernel's first instruction; `base`
    /// alone does so for a cubin of one kernel, and gives the address of the file's first byte for others.
    /// Without `base` the address is guessed from the low bits of the program counter. `read` reads the source
    /// files that the cubin names, or answers `None` for those that are not there.
    ///
    /// # Errors
    /// [`Error::Cubin`].
    pub fn add_cubin(
        &mut self,
        name: &str,
        bytes: &[u8],
        kernel: Option<&str>,
        base: Option<u64>,
        read: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let cubin = Cubin::parse(bytes, kernel)?;
        cubin.kernels.iter().for_each(|kernel| self.files.add(&kernel.lines, read));
        let kernels = &cubin.kernels;
        let loose = Loose::new(name, "--cubin", &cubin, kernels);
        let Some(base) = base else {
            self.loose.push(loose);
            return Ok(());
        };
        self.placed.push(loose);
        for kernel in kernels {
            let section = format!(".text.{}", kernel.name);
            let in_file = cubin.sections.iter().find(|s| s.name == section).and_then(|s| s.file_offset);
            let va = match (kernels.len(), in_file) {
                (1, _) | (_, None) => base,
                (_, Some(offset)) => base.saturating_add(offset.0),
            };
            let mut starts: Vec<_> = kernel.functions.iter().map(|(at, name)| (*at, *name)).collect();
            if !starts.iter().any(|(at, _)| *at == 0) {
                starts.insert(0, (0, kernel.name));
            }
            let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([kernel.code.len() as u64]);
            let functions = starts.iter().zip(ends).map(|((at, name), end)| Function {
                name: (*name).to_owned(),
                va: Hex(va.saturating_add(*at)),
                size_bytes: end.saturating_sub(*at),
            });
            let module = Module {
                name: name.to_owned(),
                sm: cubin.sm,
                va: Hex(va),
                functions: functions.collect(),
                code: kernel.code.to_vec(),
                lines: kernel.lines.clone(),
                by_hand: true,
            };
            self.by_hand.1.push(module.clone());
            self.modules.push(module);
        }
        Ok(())
    }

    /// Whether there is code to find instructions in.
    #[must_use]
    pub fn has_code(&self) -> bool {
        !self.modules.is_empty() || !self.loose.is_empty() || !self.programs.is_empty()
    }

    /// Returns the part that holds for a process without a map: windows and modules given by hand.
    #[must_use]
    pub fn by_hand(&self) -> Self {
        let (windows, modules) = self.by_hand.clone();
        Self {
            windows,
            modules,
            sm: self.sm,
            loose: self.loose.clone(),
            placed: self.placed.clone(),
            programs: self.programs.clone(),
            files: self.files.clone(),
            ..Self::default()
        }
    }

    /// Adds an executable, a shared library or a fat binary: the cubins in it that a device runs. `base` is the
    /// address of the first instruction of `kernel`; without it places are guessed. `sm` is the device's compute
    /// capability where it is known, 87 for 8.7; otherwise each fault's lines decide. `read` as for
    /// [`ProcessMap::add_cubin`].
    ///
    /// # Errors
    /// [`Error::Program`], [`Error::Base`].
    pub fn add_program(
        &mut self,
        name: &str,
        bytes: &[u8],
        at: (Option<&str>, Option<u64>),
        sm: Option<u32>,
        read: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let (kernel, base) = at;
        if base.is_some() && kernel.is_none() {
            return Err(Error::Base);
        }
        self.programs.push(Program::read(name, bytes, kernel, base, sm, &mut self.files, read)?);
        Ok(())
    }

    /// The code at a program counter; several if the address of a cubin has to be guessed. Of guesses only
    /// those are given whose instruction can fail so. A place that was given by hand, and whose instruction
    /// cannot, is doubtful: guesses follow it.
    #[must_use]
    pub fn code_at(&self, question: &Question<'_>) -> Found {
        /// Guesses shown at most.
        const GUESSES: usize = 8;
        let fits = |code: &Code| code.instruction().is_none_or(|text| (question.rank)(text).is_some());
        let mut found = Found::default();
        let placed: Vec<Module> = self.programs.iter().filter_map(|it| it.placed(question.sm)).collect();
        for module in self.modules.iter().chain(&placed) {
            let Some(mut code) = question.pc.and_then(|pc| module.code_at(pc, &self.files)) else { continue };
            code.doubtful = module.by_hand && !fits(&code);
            code.certain = !code.doubtful;
            found.code.push(code);
        }
        if found.code.iter().any(|code| code.certain) {
            found.code.retain(|code| code.certain);
            return found;
        }
        let mut cubins: Vec<&Loose> = self.loose.iter().chain(&self.placed).collect();
        for program in &self.programs {
            match program.cubins_for(question.sm) {
                Ok(of_program) => cubins.extend(of_program),
                Err(note) => found.notes.push(note),
            }
        }
        if !cubins.is_empty() {
            let (guesses, among) = guess(cubins.into_iter(), question, GUESSES, &self.files);
            found.code.extend(guesses);
            found.guess = Some(among);
        }
        found
    }

    /// The first window that takes `va`.
    #[must_use]
    pub fn window_at(&self, va: u64) -> Option<&Window> {
        self.windows.iter().find(|window| window.contains(va))
    }

    /// Mappings in a window, with the window.
    pub fn trapped(&self) -> impl Iterator<Item = (&Mapping, &Window)> {
        self.mappings.iter().filter_map(|mapping| {
            let overlaps = |w: &&Window| {
                mapping.va.0 < w.base.0.saturating_add(w.size_bytes) && mapping.end() > w.base.0
            };
            Some((mapping, self.windows.iter().find(overlaps)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ProcessMap {
        let mut map = ProcessMap::default();
        map.add_json(
            br#"{"schema": "nvdiag.map/1",
                "windows": [{"name": "shared memory", "base": "0xfe00000000"}],
                "mappings": [{"what": "buffer", "va": "0x200000", "size_bytes": 4096},
                             {"name": "weights", "va": "0xfe0020_0000", "size_bytes": 65536}],
                "modules": []}"#,
        )
        .expect("a map");
        map
    }

    #[test]
    fn an_address_is_placed_beside_what_is_mapped() {
        let map = map();
        let at = |va| map.locate(va, false).expect("there is a map");
        assert_eq!(at(0x20_0010).mapping.map(|m| m.what).as_deref(), Some("buffer"));
        assert_eq!(at(0x20_1000).distance_bytes, Some(1));
        assert_eq!(at(0x1f_fff0).distance_bytes, Some(-16));
        let trapped = at(0xfe_0020_0000);
        assert_eq!((trapped.window.as_deref(), trapped.mapping.is_some()), (Some("shared memory"), true));
        assert_eq!(at(u64::MAX).nearest.map(|m| m.what).as_deref(), Some("weights"));
        assert_eq!(map.trapped().count(), 1);
        assert_eq!(ProcessMap::default().locate(0, false), None);
    }

    fn at(map: &ProcessMap, pc: u64) -> Vec<Code> {
        map.code_at(&Question { pc: Some(pc), sm: None, rank: &|_| Some(0) }).code
    }

    #[test]
    fn a_cubin_names_the_instruction() {
        let cubin = include_bytes!("../../tests/data/01_vecadd.sm_90.cubin");
        let mut map = ProcessMap::default();
        map.add_cubin("v", cubin, Some("vadd_f32"), Some(0x1000), &mut |_| None).expect("a cubin");
        let code = &at(&map, 0x1010)[0];
        assert_eq!(
            (code.function.as_deref(), code.offset, code.listing.len()),
            (Some("vadd_f32"), Some(Hex(0x10)), 3)
        );
        assert!(code.certain && code.listing[1].here);
        assert!(at(&map, 0xfff).is_empty() && at(&map, u64::MAX).is_empty());
        let mut map = ProcessMap::default();
        map.add_cubin("v", cubin, None, None, &mut |_| None).expect("a cubin");
        let guesses = at(&map, 0xffff_0090);
        assert!(guesses.iter().all(|g| !g.certain && g.offset.is_some_and(|o| o.0 % 128 == 0x10)));
        assert!(map.add_cubin("v", cubin, Some("nothing"), None, &mut |_| None).is_err());
    }
}
