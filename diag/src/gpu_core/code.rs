//! Places in the cubins of a core dump.

use std::collections::BTreeMap;

use core_dump::{Device, Module};
use hcq::cubin::{File, Function, Lines};
use sass::{Arch, Word};
use serde::Serialize;

use crate::demangle::{demangled, shown};
use crate::hex::Hex;
use crate::source::{Files, Source};

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The address.
    pub pc: Hex,
    /// The function there; absent where no cubin of the file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// As C++ or Rust spells it, where it is mangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// Offset in the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Hex>,
    /// The instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// The source line, then the calls it was inlined by; empty where the cubin has no line table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<Source>,
}

impl Place {
    /// `function+0x40`, or the address alone.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.function, self.offset) {
            (Some(function), Some(offset)) => format!("{}+{offset}", shown(function)),
            _ => self.pc.to_string(),
        }
    }
}

/// The loaded functions of a device.
#[derive(Debug, Default)]
pub(super) struct Code<'d> {
    /// By address.
    functions: BTreeMap<u64, Loaded<'d>>,
    files: Files,
}

#[derive(Debug)]
struct Loaded<'d> {
    name: &'d str,
    size: u64,
    sm: u32,
    /// Its section: contents, offset of the function there, lines.
    content: &'d [u8],
    offset: u64,
    lines: Lines,
}

impl<'d> Code<'d> {
    /// The functions of a device's modules. `read` reads source files, as for a disassembly. A cubin that
    /// cannot be read has none.
    pub(super) fn of(device: &'d Device, read: &mut dyn FnMut(&str) -> Option<String>) -> Self {
        let mut code = Self::default();
        for module in device.contexts.iter().flat_map(|context| &context.modules) {
            code.add(module, read);
        }
        code
    }

    fn add(&mut self, module: &'d Module, read: &mut dyn FnMut(&str) -> Option<String>) {
        let Some(Ok(file)) = module.relocated.as_deref().map(File::parse) else { return };
        // Functions of a section share its lines.
        let mut lines: BTreeMap<usize, Lines> = BTreeMap::new();
        for function in file.functions() {
            let known = lines.entry(function.section.index);
            let lines = known.or_insert_with(|| file.lines(&function).unwrap_or_default()).clone();
            self.files.add(&lines, read);
            let Function { name, section, offset, size, .. } = function;
            let content = file.content(&section).unwrap_or_default();
            let loaded = Loaded { name, size, sm: file.sm(), content, offset, lines };
            self.functions.insert(section.address.wrapping_add(offset), loaded);
        }
    }

    /// The place of an address.
    pub(super) fn place(&self, pc: u64) -> Place {
        let alone = Place { pc: Hex(pc), ..Place::default() };
        let Some((start, function)) = self.functions.range(..=pc).next_back() else { return alone };
        let offset = pc - start;
        if offset >= function.size.max(1) {
            return alone;
        }
        let at = function.offset.wrapping_add(offset);
        let word = usize::try_from(at).ok().and_then(|at| function.content.get(at..)?.first_chunk());
        let instruction = word.zip(Arch::from_sm(function.sm)).map(|(word, arch)| {
            match sass::decode(arch, Word::from_bytes(*word)) {
                Ok(instruction) => instruction.text(pc),
                Err(error) => error.to_string(),
            }
        });
        Place {
            function: Some(function.name.to_owned()),
            demangled: demangled(function.name),
            offset: Some(Hex(offset)),
            instruction,
            source: self.files.at(&function.lines, at),
            ..alone
        }
    }
}
