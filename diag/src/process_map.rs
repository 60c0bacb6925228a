//! What a process has in its GPU address space: windows, mappings, and the programs it loaded.
//!
//! Read from the map file that `hcq` writes when `HCQ_MAP_DIR` names a folder (`nvdiag.map/1`), from the documents of
//! `nvdiag info` and `nvdiag vamap`, and from cubins named on the command line. docs/nvdiag-json.md describes the fields.

use sass::{Arch, WORD_BYTES, Word};
use serde::{Deserialize, Serialize};

use crate::Hex;
use crate::cubin::Cubin;
use crate::size::size;

/// Bytes of addresses each window takes: 16 MiB on chips before Hopper (inferred from working settings; the hardware
/// documents do not say).
pub const WINDOW_BYTES: u64 = 16 << 20;

/// Code starts on a multiple of this.
const CODE_ALIGN: u64 = 128;

/// Why a map could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not JSON, or not of the documented fields.
    #[error("not a map of an address space (nvdiag.map/1, or what `nvdiag vamap --json` prints)")]
    Json(#[from] serde_json::Error),
    /// The schema of another document.
    #[error("a document of schema {schema:?} holds no map")]
    Schema {
        /// What it says it is.
        schema: String,
    },
    /// A cubin could not be read.
    #[error(transparent)]
    Cubin(#[from] crate::cubin::Error),
    /// Code for a part whose instructions are not known.
    #[error("the code is for sm_{sm}; sm_80 to sm_87 and sm_90 can be disassembled")]
    Arch {
        /// Compute capability, 87 for 8.7.
        sm: u32,
    },
    /// No such kernel.
    #[error("no kernel {name:?}; there are: {}", available.join(", "))]
    NoKernel {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
}

/// A window through which generic addresses reach shared or local memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// What is seen through it.
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

/// A range that is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// What it is.
    #[serde(default = "unnamed", alias = "name")]
    pub what: String,
    /// Its first address.
    pub va: Hex,
    /// Its length.
    pub size_bytes: u64,
    /// Whether the GPU may only read it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

fn unnamed() -> String {
    "mapping".to_owned()
}

impl Mapping {
    /// First address behind it.
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

/// A function of a loaded program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Address of its first instruction.
    pub va: Hex,
    /// Length of its code.
    pub size_bytes: u64,
}

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// Compute capability of its code, 87 for 8.7.
    pub sm: u32,
    /// Where it lies.
    pub va: Hex,
    /// Its functions.
    #[serde(default)]
    pub functions: Vec<Function>,
    /// Its bytes from `va` on, in hexadecimal.
    #[serde(default, with = "hex_bytes", skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<u8>,
}

/// Bytes as a string of hexadecimal digits.
mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        use std::fmt::Write;
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |b: u8| char::from(b).to_digit(16);
        let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        });
        pairs
            .collect::<Option<_>>()
            .ok_or_else(|| serde::de::Error::custom("code is not a string of hexadecimal bytes"))
    }
}

/// A cubin whose place is not known.
#[derive(Clone, Debug)]
struct Loose {
    name: String,
    arch: Arch,
    kernels: Vec<(String, Vec<u8>)>,
}

/// What a process has in its GPU address space.
#[derive(Clone, Debug, Default)]
pub struct ProcessMap {
    /// Windows.
    pub windows: Vec<Window>,
    /// Mappings, by address.
    pub mappings: Vec<Mapping>,
    /// Programs.
    pub modules: Vec<Module>,
    loose: Vec<Loose>,
}

/// An instruction of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its address.
    pub va: Hex,
    /// Offset from the start of its function.
    pub offset: Hex,
    /// As text, or why it is none.
    pub text: String,
    /// Whether the program counter is here.
    pub here: bool,
}

/// What lies at a program counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    /// The program.
    pub module: String,
    /// The function.
    pub function: Option<String>,
    /// Offset from its start.
    pub offset: Option<Hex>,
    /// The instruction and its neighbours.
    pub listing: Vec<Line>,
    /// Whether the place is known, rather than guessed from the low bits of the program counter.
    pub certain: bool,
}

impl Code {
    /// The text of the instruction itself.
    #[must_use]
    pub fn instruction(&self) -> Option<&str> {
        self.listing.iter().find(|line| line.here).map(|line| line.text.as_str())
    }
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Whereabouts {
    /// The address.
    pub address: Hex,
    /// The window it lies in.
    pub window: Option<String>,
    /// The mapping it lies in.
    pub mapping: Option<Mapping>,
    /// The nearest mapping, where it lies in none.
    pub nearest: Option<Mapping>,
    /// From the nearest mapping's end (positive, 1 is the first byte behind it) or its start (negative) to the address.
    pub distance_bytes: Option<i64>,
    /// The same in words.
    pub words: String,
}

/// A map as a JSON document, `nvdiag.map/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Its schema.
    pub schema: Option<String>,
    /// Windows.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// Mappings.
    #[serde(default)]
    pub mappings: Vec<Mapping>,
    /// Programs.
    #[serde(default)]
    pub modules: Vec<Module>,
}

impl From<Document> for ProcessMap {
    fn from(document: Document) -> Self {
        let Document { windows, mut mappings, modules, .. } = document;
        mappings.sort_by_key(|m| m.va);
        Self { windows, mappings, modules, loose: Vec::new() }
    }
}

impl ProcessMap {
    /// Reads a map document and adds what it holds.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Schema`].
    pub fn add_json(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let file: Document = serde_json::from_slice(bytes)?;
        let known = ["nvdiag.map/1", "nvdiag.vamap/1", "nvdiag.info/1"];
        if let Some(schema) = file.schema.filter(|s| !known.contains(&s.as_str())) {
            return Err(Error::Schema { schema });
        }
        self.windows.extend(file.windows);
        self.mappings.extend(file.mappings);
        self.modules.extend(file.modules);
        self.mappings.sort_by_key(|m| m.va);
        Ok(())
    }

    /// The map as a document.
    #[must_use]
    pub fn document(&self) -> Document {
        Document {
            schema: Some("nvdiag.map/1".to_owned()),
            windows: self.windows.clone(),
            mappings: self.mappings.clone(),
            modules: self.modules.clone(),
        }
    }

    /// Adds a window by its base, unless it is known.
    pub fn add_window(&mut self, name: &str, base: u64) {
        if !self.windows.iter().any(|w| w.base.0 == base) {
            self.windows.push(Window { name: name.to_owned(), base: Hex(base), size_bytes: WINDOW_BYTES });
        }
    }

    /// Adds a cubin. `kernel` and `base` together say where that kernel's first instruction lies; `base` alone does so
    /// for a cubin of one kernel, and says where the file's first byte lies for others. Without `base` the place is
    /// guessed from the low bits of the program counter.
    ///
    /// # Errors
    /// [`Error::Cubin`], [`Error::Arch`], [`Error::NoKernel`].
    pub fn add_cubin(
        &mut self,
        name: &str,
        bytes: &[u8],
        kernel: Option<&str>,
        base: Option<u64>,
    ) -> Result<(), Error> {
        let cubin = Cubin::parse(bytes)?;
        let arch = Arch::from_sm(cubin.sm).ok_or(Error::Arch { sm: cubin.sm })?;
        let kernels: Vec<_> =
            cubin.kernels.iter().filter(|k| kernel.is_none_or(|name| k.name == name)).collect();
        if let (Some(name), true) = (kernel, kernels.is_empty()) {
            let available = cubin.kernels.iter().map(|k| k.name.to_owned()).collect();
            return Err(Error::NoKernel { name: name.to_owned(), available });
        }
        let Some(base) = base else {
            let kernels = kernels.iter().map(|k| (k.name.to_owned(), k.code.to_vec())).collect();
            self.loose.push(Loose { name: name.to_owned(), arch, kernels });
            return Ok(());
        };
        for kernel in &kernels {
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
            self.modules.push(Module {
                name: name.to_owned(),
                sm: cubin.sm,
                va: Hex(va),
                functions: functions.collect(),
                code: kernel.code.to_vec(),
            });
        }
        Ok(())
    }

    /// Whether there is code to look instructions up in.
    #[must_use]
    pub fn has_code(&self) -> bool {
        !self.modules.is_empty() || !self.loose.is_empty()
    }

    /// What lies at a program counter; several where the place of a cubin has to be guessed.
    #[must_use]
    pub fn code_at(&self, pc: u64) -> Vec<Code> {
        /// Guesses shown at most.
        const GUESSES: usize = 8;
        let found: Vec<_> = self.modules.iter().filter_map(|module| module.code_at(pc)).collect();
        if !found.is_empty() {
            return found;
        }
        self.loose.iter().flat_map(|loose| loose.guesses(pc)).take(GUESSES).collect()
    }

    /// The first window that takes `va`.
    #[must_use]
    pub fn window_at(&self, va: u64) -> Option<&Window> {
        self.windows.iter().find(|window| window.contains(va))
    }

    /// Mappings that lie in a window, with the window.
    pub fn trapped(&self) -> impl Iterator<Item = (&Mapping, &Window)> {
        self.mappings.iter().filter_map(|mapping| {
            let overlaps = |w: &&Window| {
                mapping.va.0 < w.base.0.saturating_add(w.size_bytes) && mapping.end() > w.base.0
            };
            Some((mapping, self.windows.iter().find(overlaps)?))
        })
    }

    /// Where an address lies, if anything is known about the address space. `page` says that only the page of the
    /// address is known.
    #[must_use]
    pub fn locate(&self, va: u64, page: bool) -> Option<Whereabouts> {
        if self.mappings.is_empty() && self.windows.is_empty() {
            return None;
        }
        let window = self.window_at(va).map(|w| w.name.clone());
        let mapping =
            self.mappings.iter().find(|m| m.contains(va) || page && m.contains(va | 0xfff)).cloned();
        let gap = |m: &Mapping| match va >= m.va.0 {
            true => (va - m.end().min(va)).saturating_add(1),
            false => m.va.0 - va,
        };
        let distance = |m: &Mapping| {
            let gap = i64::try_from(gap(m)).unwrap_or(i64::MAX);
            if va >= m.va.0 { gap } else { -gap }
        };
        let nearest = self.mappings.iter().min_by_key(|m| gap(m));
        let (nearest, distance) = match mapping {
            Some(_) => (None, None),
            None => (nearest.cloned(), nearest.map(distance)),
        };
        let about = if page { "the page of the address" } else { "the address" };
        let mut words = match (&mapping, &nearest, distance) {
            (Some(m), ..) => format!(
                "{about} lies {:#x} bytes into the {} of {} at {}",
                va.saturating_sub(m.va.0),
                m.what,
                size(m.size_bytes),
                m.va
            ),
            (None, Some(m), Some(d)) if d > 0 => {
                format!(
                    "{about} lies {} past the end of the {} of {} at {}",
                    bytes(d),
                    m.what,
                    size(m.size_bytes),
                    m.va
                )
            }
            (None, Some(m), Some(d)) => {
                format!(
                    "{about} lies {} before the {} of {} at {}",
                    bytes(d),
                    m.what,
                    size(m.size_bytes),
                    m.va
                )
            }
            _ => "nothing is mapped".to_owned(),
        };
        if let Some(window) = &window {
            words += &format!("; it is inside the {window} window");
        }
        Some(Whereabouts { address: Hex(va), window, mapping, nearest, distance_bytes: distance, words })
    }
}

fn bytes(distance: i64) -> String {
    match distance.unsigned_abs() {
        n if n >= 1 << 20 => size(n),
        1 => "1 byte".to_owned(),
        n => format!("{n} bytes"),
    }
}

impl Module {
    fn code_at(&self, pc: u64) -> Option<Code> {
        let function = self.functions.iter().find(|f| pc >= f.va.0 && pc - f.va.0 < f.size_bytes);
        let offset = pc.checked_sub(self.va.0)?;
        if function.is_none() && offset >= self.code.len() as u64 {
            return None;
        }
        let start = function.map_or(self.va.0, |f| f.va.0);
        let end = function.map_or(u64::MAX, |f| f.va.0.saturating_add(f.size_bytes));
        let listing = Arch::from_sm(self.sm).map_or(Vec::new(), |arch| {
            let around = (pc & !0xf).saturating_sub(16)..=(pc & !0xf).saturating_add(16);
            let lines = around.step_by(WORD_BYTES).filter(|va| (start..end).contains(va));
            lines
                .filter_map(|va| {
                    let at = usize::try_from(va.checked_sub(self.va.0)?).ok()?;
                    Some(instruction(arch, self.code.get(at..)?, va, start, pc))
                })
                .flatten()
                .collect()
        });
        Some(Code {
            module: self.name.clone(),
            function: function.map(|f| f.name.clone()),
            offset: function.map(|_| Hex(pc - start)),
            listing,
            certain: true,
        })
    }
}

impl Loose {
    /// Kernels the program counter can lie in, given that code starts on a multiple of 128.
    fn guesses(&self, pc: u64) -> impl Iterator<Item = Code> {
        self.kernels.iter().flat_map(move |(name, code)| {
            let first = pc % CODE_ALIGN;
            let offsets = (first..code.len() as u64).step_by(CODE_ALIGN as usize);
            offsets.filter_map(move |offset| {
                let line = instruction(self.arch, code.get(offset as usize..)?, offset, 0, offset)?;
                Some(Code {
                    module: self.name.clone(),
                    function: Some(name.clone()),
                    offset: Some(Hex(offset)),
                    listing: vec![line],
                    certain: false,
                })
            })
        })
    }
}

fn instruction(arch: Arch, code: &[u8], va: u64, start: u64, pc: u64) -> Option<Line> {
    let word = Word::from_bytes(*code.first_chunk::<WORD_BYTES>()?);
    let text = match sass::decode(arch, word) {
        Ok(instruction) => instruction.text(va),
        Err(error) => error.to_string(),
    };
    Some(Line { va: Hex(va), offset: Hex(va - start), text, here: va == pc & !0xf })
}

/// The memory an instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// Global memory alone.
    Global,
    /// Whatever the address says.
    Generic,
    /// Shared memory.
    Shared,
    /// Local memory.
    Local,
    /// A constant bank.
    Constant,
}

/// The memory an instruction accesses and the bytes of one access, by its text.
#[must_use]
pub fn access_of(text: &str) -> Option<(Space, u32)> {
    let mnemonic = text.split_whitespace().find(|word| !word.starts_with('@'))?;
    let mut parts = mnemonic.trim_end_matches(';').split('.');
    let space = match parts.next()? {
        "LDG" | "STG" | "ATOMG" | "RED" | "LDGSTS" => Space::Global,
        "LD" | "ST" | "ATOM" => Space::Generic,
        "LDS" | "STS" | "ATOMS" | "LDSM" => Space::Shared,
        "LDL" | "STL" => Space::Local,
        "LDC" | "ULDC" => Space::Constant,
        _ => return None,
    };
    let width = parts.find_map(|part| match part {
        "U8" | "S8" => Some(1),
        "U16" | "S16" => Some(2),
        "64" => Some(8),
        "128" => Some(16),
        _ => None,
    });
    Some((space, width.unwrap_or(4)))
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

    #[test]
    fn a_cubin_names_the_instruction() {
        let cubin = include_bytes!("../tests/data/01_vecadd.sm_90.cubin");
        let mut map = ProcessMap::default();
        map.add_cubin("v", cubin, Some("vadd_f32"), Some(0x1000)).expect("a cubin");
        let code = &map.code_at(0x1010)[0];
        assert_eq!(
            (code.function.as_deref(), code.offset, code.listing.len()),
            (Some("vadd_f32"), Some(Hex(0x10)), 3)
        );
        assert!(code.certain && code.listing[1].here);
        assert!(map.code_at(0xfff).is_empty() && map.code_at(u64::MAX).is_empty());
        let mut map = ProcessMap::default();
        map.add_cubin("v", cubin, None, None).expect("a cubin");
        let guesses = map.code_at(0xffff_0090);
        assert!(guesses.iter().all(|g| !g.certain && g.offset.is_some_and(|o| o.0 % 128 == 0x10)));
        assert!(map.add_cubin("v", cubin, Some("nothing"), None).is_err());
    }

    #[test]
    fn accesses_are_told_by_the_mnemonic() {
        assert_eq!(access_of("LDG.E R2, [R2.64]"), Some((Space::Global, 4)));
        assert_eq!(access_of("@!P0 STG.E.128 desc[UR4][R2.64], R4"), Some((Space::Global, 16)));
        assert_eq!(access_of("LDS.U8 R2, [R2]"), Some((Space::Shared, 1)));
        assert_eq!(access_of("FADD R2, R3, R4"), None);
    }
}
