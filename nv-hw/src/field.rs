//! Fields of 32-bit words.

use crate::names::{self, Names};

/// A field of a register or of a method's data word.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in NVIDIA's headers.
    pub name: &'static str,
    /// Highest bit.
    pub hi: u32,
    /// Lowest bit.
    pub lo: u32,
    /// Values that have names.
    pub values: Names,
}

impl Field {
    /// Bits `hi` to `lo`, as the headers write them.
    ///
    /// # Panics
    /// At compile time, where a table is built: bounds swapped, or outside the word.
    pub(crate) const fn new(name: &'static str, hi: u32, lo: u32, values: Names) -> Self {
        assert!(lo <= hi && hi < 32, "a field lies in one word");
        Self { name, hi, lo, values }
    }

    /// The value of the field in a data word.
    #[must_use]
    pub const fn of(&self, word: u32) -> u32 {
        (word & self.mask()) >> self.lo
    }

    /// The data word that has `value`, cut to its width, in the field and 0 elsewhere.
    #[must_use]
    pub const fn with(&self, value: u32) -> u32 {
        value << self.lo & self.mask()
    }

    /// The bits of the field.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        u32::MAX >> (31 - self.hi) & u32::MAX << self.lo
    }

    /// The name of a value of the field.
    #[must_use]
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        names::name(self.values, value)
    }
}
