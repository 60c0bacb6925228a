//! The argument of a request as a record has it: bytes, with fields that are descriptors and addresses.

use std::fmt::Write as _;

/// Bytes of memory behind an address in an argument: as much as the driver might write by mistake.
const ROOM: usize = 4096;

/// A field of an argument that is no plain number.
#[derive(Clone, Debug)]
pub enum Field {
    /// A descriptor.
    Descriptor { at: usize, name: String },
    /// The address of an array of descriptors.
    Descriptors { at: usize, memory: usize, names: Vec<String> },
    /// The address of memory.
    Memory { at: usize, memory: usize },
    /// The address of no memory.
    NoMemory { at: usize },
    /// An address in a mapping.
    Mapped { at: usize, mapping: String, offset: u64 },
    /// The new file that the call makes.
    NewFile { at: usize },
    /// Not compared.
    Ignored { at: usize, bytes: usize },
}

impl Field {
    pub fn at(&self) -> usize {
        match *self {
            Self::Descriptor { at, .. }
            | Self::Descriptors { at, .. }
            | Self::Memory { at, .. }
            | Self::NoMemory { at }
            | Self::Mapped { at, .. }
            | Self::NewFile { at }
            | Self::Ignored { at, .. } => at,
        }
    }

    /// Returns the range of the answer that is not shown.
    fn hidden(&self) -> std::ops::Range<usize> {
        let bytes = match self {
            Self::Descriptor { .. } | Self::NewFile { .. } => 4,
            Self::Ignored { bytes, .. } => *bytes,
            _ => 8,
        };
        self.at()..self.at() + bytes
    }
}

/// Memory that the argument points to.
#[derive(Clone, Debug)]
pub struct Memory {
    pub bytes: Vec<u8>,
    /// Bytes that are shown; 0 for an array of descriptors.
    shown: usize,
    hidden: Vec<std::ops::Range<usize>>,
}

/// An argument.
#[derive(Clone, Debug)]
pub struct Argument {
    pub bytes: Vec<u8>,
    pub fields: Vec<Field>,
    pub memories: Vec<Memory>,
}

fn hex(text: &str) -> Result<usize, String> {
    usize::from_str_radix(text, 16).map_err(|e| format!("`{text}`: {e}"))
}

/// Writes digits over the start of `bytes`.
fn fill(bytes: &mut [u8], digits: &str) -> Result<(), String> {
    if digits == "-" {
        return Ok(());
    }
    for (i, slot) in bytes.iter_mut().take(digits.len() / 2).enumerate() {
        *slot = hex(&digits[2 * i..2 * i + 2])? as u8;
    }
    Ok(())
}

/// Bytes as digits, without the zeros at the end.
fn digits(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return "-".to_owned();
    }
    bytes[..end].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Argument {
    /// Reads one of `size` bytes.
    pub fn parse(size: usize, text: &str, marks: &[&str]) -> Result<Self, String> {
        let mut this = Self { bytes: vec![0; size], fields: Vec::new(), memories: Vec::new() };
        fill(&mut this.bytes, text)?;
        for mark in marks {
            let (place, value) = mark.split_once('=').ok_or_else(|| format!("`{mark}`: no mark"))?;
            let (kind, at) = place.split_at(1);
            let at = hex(at)?;
            let memory = this.memories.len();
            match kind {
                "d" => this.fields.push(Field::Descriptor { at, name: value.to_owned() }),
                "a" => {
                    let names = value.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
                    this.fields.push(Field::Descriptors { at, memory, names });
                    this.memories.push(Memory { bytes: vec![0; ROOM], shown: 0, hidden: Vec::new() });
                }
                "p" => {
                    this.fields.push(Field::Memory { at, memory });
                    let shown = hex(value)?;
                    this.memories.push(Memory { bytes: vec![0; ROOM], shown, hidden: Vec::new() });
                }
                "z" => this.fields.push(Field::NoMemory { at }),
                "u" => {
                    let (mapping, offset) = value.split_once('+').ok_or("no offset")?;
                    let (mapping, offset) = (mapping.to_owned(), hex(offset)? as u64);
                    this.fields.push(Field::Mapped { at, mapping, offset });
                }
                "n" => this.fields.push(Field::NewFile { at }),
                "~" => this.fields.push(Field::Ignored { at, bytes: hex(value)? }),
                "i" => fill(&mut this.memory(at)?.bytes, value)?,
                "j" => {
                    let (start, bytes) = value.split_once('+').ok_or("no length")?;
                    let start = hex(start)?;
                    let end = start + hex(bytes)?;
                    this.memory(at)?.hidden.push(start..end);
                }
                _ => return Err(format!("`{mark}`: unknown mark")),
            }
        }
        Ok(this)
    }

    fn memory(&mut self, at: usize) -> Result<&mut Memory, String> {
        self.memories.get_mut(at).ok_or_else(|| format!("no memory {at}"))
    }

    /// The number of the file that the call made.
    pub fn made(&self) -> Option<i32> {
        let field = self.fields.iter().find(|f| matches!(f, Field::NewFile { .. }))?;
        let bytes = self.bytes.get(field.at()..field.at() + 4)?;
        Some(i32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The answer as a record shows it; `made` names the new file.
    pub fn answer(&self, made: Option<String>) -> String {
        let mut bytes = self.bytes.clone();
        for field in &self.fields {
            bytes[field.hidden()].fill(0);
        }
        let mut text = digits(&bytes);
        if let Some(made) = made {
            let _ = write!(text, " {made}");
        }
        for (i, memory) in self.memories.iter().enumerate().filter(|(_, m)| m.shown > 0) {
            let mut bytes = memory.bytes.clone();
            memory.hidden.iter().for_each(|part| bytes[part.clone()].fill(0));
            let _ = write!(text, " m{i}={}", digits(&bytes[..memory.shown]));
        }
        text
    }
}
