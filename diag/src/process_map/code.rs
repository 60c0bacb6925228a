//! Programs in an address space, and the code at a program counter.

use hcq::cubin::Lines;
use sass::{Arch, Space, WORD_BYTES, Word};
use serde::{Deserialize, Serialize};

use crate::demangle::{demangled, shown};
use crate::hex::Hex;
use crate::source::{Files, Source};

/// Code starts on a multiple of this.
pub(super) const CODE_ALIGN: u64 = 128;

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
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Compute capability of its code, 87 for 8.7.
    pub sm: u32,
    /// Its address.
    pub va: Hex,
    /// Its functions.
    #[serde(default)]
    pub functions: Vec<Function>,
    /// Its bytes from `va` on, in hexadecimal.
    #[serde(default, with = "crate::hex::bytes", skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<u8>,
    /// Source lines, by offset from `va`, where a cubin has them.
    #[serde(skip)]
    pub lines: Lines,
    /// Whether a user gave its address, rather than the process.
    #[serde(skip)]
    pub by_hand: bool,
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

/// The code at a program counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    /// The program.
    pub module: String,
    /// Compute capability it is for, 87 for 8.7.
    pub sm: u32,
    /// The function.
    pub function: Option<String>,
    /// Its name as C++ or Rust spells it, where it is mangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// Offset from its start.
    pub offset: Option<Hex>,
    /// The source lines of the instruction: its own, then the calls it was inlined by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<Source>,
    /// The instruction and its neighbours.
    pub listing: Vec<Line>,
    /// Whether the place is known, rather than guessed from the low bits of the program counter.
    pub certain: bool,
    /// Whether the address of the program is doubtful: its instruction at that place cannot raise the error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
    /// For a guess: the address at which the function's code would begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Hex>,
    /// Whether the log itself names the instruction, as that of the software ga10b does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub named_by_log: bool,
    /// The option that gave the file, and that takes its address, too.
    #[serde(skip)]
    pub option: &'static str,
}

impl Code {
    /// The instruction at `pc` as a log names it.
    #[must_use]
    pub(crate) fn of_log(pc: u64, instruction: &str) -> Self {
        let line = Line { va: Hex(pc), offset: Hex(pc), text: instruction.to_owned(), here: true };
        Self {
            module: "the log of the software ga10b".to_owned(),
            sm: 0,
            function: None,
            demangled: None,
            offset: None,
            source: Vec::new(),
            listing: vec![line],
            certain: true,
            doubtful: false,
            base: None,
            named_by_log: true,
            option: "",
        }
    }

    /// The function and the offset in it, for a line of text.
    #[must_use]
    pub(crate) fn place(&self) -> Option<String> {
        Some(format!("{}+{}", shown(self.function.as_ref()?), self.offset?))
    }

    /// The text of the instruction itself.
    #[must_use]
    pub fn instruction(&self) -> Option<&str> {
        self.listing.iter().find(|line| line.here).map(|line| line.text.as_str())
    }
}

impl Module {
    pub(super) fn code_at(&self, pc: u64, files: &Files) -> Option<Code> {
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
            sm: self.sm,
            function: function.map(|f| f.name.clone()),
            demangled: function.and_then(|f| demangled(&f.name)),
            offset: function.map(|_| Hex(pc - start)),
            source: files.at(&self.lines, offset),
            listing,
            certain: true,
            doubtful: false,
            base: None,
            named_by_log: false,
            option: "--cubin",
        })
    }
}

pub(super) fn instruction(arch: Arch, code: &[u8], va: u64, start: u64, pc: u64) -> Option<Line> {
    let word = Word::from_bytes(*code.first_chunk::<WORD_BYTES>()?);
    let text = match sass::decode(arch, word) {
        Ok(instruction) => instruction.text(va),
        Err(error) => error.to_string(),
    };
    Some(Line { va: Hex(va), offset: Hex(va - start), text, here: va == pc & !0xf })
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

    #[test]
    fn accesses_are_told_by_the_mnemonic() {
        assert_eq!(access_of("LDG.E R2, [R2.64]"), Some((Space::Global, 4)));
        assert_eq!(access_of("@!P0 STG.E.128 desc[UR4][R2.64], R4"), Some((Space::Global, 16)));
        assert_eq!(access_of("LDS.U8 R2, [R2]"), Some((Space::Shared, 1)));
        assert_eq!(access_of("FADD R2, R3, R4"), None);
    }
}
