//! Cubins whose place in memory is not known: which of their instructions can be the one that failed.

use std::fmt;

use hcq::cubin::Lines;
use sass::{Arch, WORD_BYTES};
use serde::Serialize;

use crate::cubin::{Cubin, Kernel};
use crate::demangle::{demangled, is_spelled};
use crate::hex::Hex;
use crate::process_map::code::{CODE_ALIGN, Code, Function, Module, instruction};
use crate::source::Files;

/// A cubin whose place is not known.
#[derive(Clone, Debug)]
pub(super) struct Loose {
    pub name: String,
    /// The option that gave it, and that can give it with an address.
    pub option: &'static str,
    pub sm: u32,
    arch: Arch,
    /// Names, code and source lines.
    kernels: Vec<(String, Vec<u8>, Lines)>,
}

/// Facts about the instruction that failed, without the address of its code.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// Program counter; absent where the log has none.
    pub pc: Option<u64>,
    /// Compute capability of the device, where it is known.
    pub sm: Option<u32>,
    /// Rank of an instruction, by its text, as cause of the error: 0 for the likeliest; `None` for those that
    /// cannot fail so.
    pub rank: &'a dyn Fn(&str) -> Option<u32>,
}

/// Among how many instructions was guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Guess {
    /// Whether the low bits of a program counter chose them, or the error alone.
    pub by_pc: bool,
    /// Instructions that can be meant.
    pub places: u64,
    /// Those of them that can raise the error.
    pub can_raise: u64,
    /// Kernels and functions that have some of those.
    pub kernels: u64,
    /// Number of those that are named.
    pub shown: u64,
}

/// An instruction that can be meant, in the order of likelihood.
type Candidate<'a> = (u32, &'a Loose, usize, u64);

impl Loose {
    pub(super) fn new<'a>(
        name: &str,
        option: &'static str,
        cubin: &Cubin<'a>,
        functions: impl IntoIterator<Item = &'a Kernel<'a>>,
    ) -> Self {
        let kept = functions.into_iter().map(|k| (k.name.to_owned(), k.code.to_vec(), k.lines.clone()));
        Self { name: name.to_owned(), option, sm: cubin.sm, arch: cubin.arch, kernels: kept.collect() }
    }

    /// Names of its kernels and functions.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|(name, ..)| name.as_str())
    }

    /// Offsets in a function of so many bytes that a program counter can mean: code starts on a multiple of 128,
    /// and between instructions there is none.
    fn offsets(len: usize, pc: Option<u64>) -> impl Iterator<Item = u64> {
        let (first, step, end) = match pc {
            Some(pc) if !pc.is_multiple_of(WORD_BYTES as u64) => (0, 1, 0),
            Some(pc) => (pc % CODE_ALIGN, CODE_ALIGN, pc.saturating_add(1)),
            None => (0, WORD_BYTES as u64, u64::MAX),
        };
        (first..end.min(len as u64)).step_by(step as usize)
    }

    fn candidates<'a>(&'a self, question: &Question<'_>, guess: &mut Guess, found: &mut Vec<Candidate<'a>>) {
        for (index, (_, code, _)) in self.kernels.iter().enumerate() {
            let before = found.len();
            for offset in Self::offsets(code.len(), question.pc) {
                let line = code
                    .get(offset as usize..)
                    .and_then(|code| instruction(self.arch, code, offset, 0, offset));
                let Some(line) = line else { continue };
                guess.places += 1;
                if let Some(rank) = (question.rank)(&line.text) {
                    found.push((rank, self, index, offset));
                }
            }
            guess.kernels += u64::from(found.len() > before);
        }
    }

    /// The function of that name, mangled or not, as a program at `base`.
    pub(super) fn at(&self, kernel: &str, base: u64) -> Option<Module> {
        let named = |name: &str| name == kernel || is_spelled(name, kernel);
        let (name, code, lines) = self.kernels.iter().find(|(name, ..)| named(name))?;
        let function = Function { name: name.clone(), va: Hex(base), size_bytes: code.len() as u64 };
        Some(Module {
            name: self.name.clone(),
            sm: self.sm,
            va: Hex(base),
            functions: vec![function],
            code: code.clone(),
            lines: lines.clone(),
            by_hand: true,
        })
    }

    fn code(&self, index: usize, offset: u64, pc: Option<u64>, files: &Files) -> Option<Code> {
        let (name, code, lines) = self.kernels.get(index)?;
        let line = instruction(self.arch, code.get(usize::try_from(offset).ok()?..)?, offset, 0, offset)?;
        Some(Code {
            module: self.name.clone(),
            sm: self.sm,
            function: Some(name.clone()),
            demangled: demangled(name),
            offset: Some(Hex(offset)),
            source: files.at(lines, offset),
            listing: vec![line],
            certain: false,
            doubtful: false,
            base: pc.map(|pc| Hex(pc - offset)),
            named_by_log: false,
            option: self.option,
        })
    }
}

/// The likeliest instructions of these cubins, at most `most`, and the number of candidates.
pub(super) fn guess<'a>(
    cubins: impl Iterator<Item = &'a Loose>,
    question: &Question<'_>,
    most: usize,
    files: &Files,
) -> (Vec<Code>, Guess) {
    let mut guess = Guess { by_pc: question.pc.is_some(), ..Guess::default() };
    let mut found = Vec::new();
    cubins.for_each(|cubin| cubin.candidates(question, &mut guess, &mut found));
    // A stable sort: equally likely ones stay in the order of files and kernels.
    found.sort_by_key(|(rank, ..)| *rank);
    guess.can_raise = found.len() as u64;
    let shown = found.iter().take(most);
    let code: Vec<Code> = shown
        .filter_map(|(_, cubin, index, offset)| cubin.code(*index, *offset, question.pc, files))
        .collect();
    guess.shown = code.len() as u64;
    (code, guess)
}

impl fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pc, sm, rank: _ } = self;
        f.debug_struct("Question").field("pc", pc).field("sm", sm).finish_non_exhaustive()
    }
}

impl Guess {
    /// Returns the guess and its candidates as a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { by_pc, places, can_raise, kernels, shown } = *self;
        let unknown = match by_pc {
            true => "the log does not tell where the code was loaded",
            false => "the log has no program counter",
        };
        let among = match (by_pc, places) {
            (true, 0) => {
                return format!("{unknown}, and no instruction has an address that ends like this one");
            }
            (true, n) => format!("of the {n} instructions whose address can end like this one"),
            (false, n) => format!("of {n} instructions"),
        };
        let list = match shown {
            0 => String::new(),
            _ if shown < can_raise => format!("; the {shown} that are likeliest follow"),
            1 => "; it follows".to_owned(),
            _ => "; all follow, the likeliest first".to_owned(),
        };
        let (kernels, one) = (kernels, if kernels == 1 { "function" } else { "functions" });
        match can_raise {
            0 => format!("{unknown}; {among} none can raise this error"),
            n => format!("{unknown}; {among}, {n} can raise this error, in {kernels} {one}{list}"),
        }
    }
}
