//! A QMD as named values, for printing and for tools.

use std::fmt;

use crate::image::{Qmd, fields, layout};
use crate::table::field::Field;

/// One field, or one element of an array, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The field; its [`index`](Field::index) says which element.
    pub field: Field,
    /// Whether it is an element of an array.
    pub indexed: bool,
    /// Its value.
    pub value: u32,
}

impl Entry {
    /// The name of the value, if it has one.
    #[must_use]
    pub fn value_name(&self) -> Option<&'static str> {
        self.field.value_name(self.value)
    }
}

impl fmt::Display for Entry {
    /// `NAME(i)   hi:lo   value`, the value by its name where it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.indexed {
            true => format!("{}({})", self.field.name(), self.field.index()),
            false => self.field.name().to_owned(),
        };
        let bits = format!("{}:{}", self.field.hi(), self.field.lo());
        write!(f, "{name:<48} {bits:>9}  {:#x}", self.value)?;
        match self.value_name() {
            Some(name) => write!(f, " {name}"),
            None if !self.field.values().is_empty() => write!(f, " (undefined)"),
            None if (10..0x1_0000).contains(&self.value) => write!(f, " ({})", self.value),
            None => Ok(()),
        }
    }
}

/// A word with bits set that no field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Index of the word.
    pub word: usize,
    /// Its unnamed bits, the named ones cleared.
    pub bits: u32,
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unnamed bits set in word {} (bits {}:{}): {:#010x}",
            self.word,
            self.word * 32 + 31,
            self.word * 32,
            self.bits
        )
    }
}

impl Qmd {
    /// Every field and every element of every array with its value, in the order of the header.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        fields(self.version()).iter().flat_map(move |field| {
            (0..field.count()).filter_map(move |i| {
                let element = field.element(i)?;
                Some(Entry { field: element, indexed: field.count() > 1, value: self.get_own(element) })
            })
        })
    }

    /// The words that have bits set outside every named field.
    pub fn unnamed(&self) -> impl Iterator<Item = Unnamed> {
        let named = &layout(self.version()).named;
        self.words().enumerate().zip(named).filter_map(|((word, value), named)| {
            let bits = value & !named;
            (bits != 0).then_some(Unnamed { word, bits })
        })
    }
}

impl fmt::Display for Qmd {
    /// A headline, then one line for each field that is not zero, sorted by bit; with `{:#}` for every field.
    /// Bits that no field names are listed at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "QMD {}, {} bytes", self.version(), self.version().size())?;
        let mut entries: Vec<Entry> = self.entries().filter(|e| f.alternate() || e.value != 0).collect();
        entries.sort_by_key(|e| e.field.lo());
        for entry in entries {
            writeln!(f, "  {entry}")?;
        }
        for unnamed in self.unnamed() {
            writeln!(f, "  {unnamed}")?;
        }
        Ok(())
    }
}
