//! Slots by which lowered instructions name registers and predicates.

/// Slots at or above this one lie in the constant pool, those below in the warp's register file.
pub(crate) const POOL: u16 = 0x8000;
/// The slot that reads as zero; so do the three after it.
pub(crate) const ZERO: u16 = POOL;
/// Predicates P0 to P6 and PT are 0 to 7, UP0 to UP6 and UPT 8 to 15.
pub(crate) const UNIFORM_PREDICATES: u8 = 8;
/// The predicate that takes discarded results.
pub(crate) const NO_PREDICATE: u8 = 16;
/// Size of the predicate file: 0 to 15, the write-only one, and padding so that an index masked to five bits
/// is always inside.
pub(crate) const PREDICATES: usize = 32;
/// Set in a predicate source that is to be inverted.
pub(crate) const NOT: u8 = 0x80;

/// Slots of the parts of a warp's register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileLayout {
    /// General registers: slots 0 to this.
    pub registers: u16,
    /// Uniform registers that the program names: those from UR0 to this.
    pub uniforms: u16,
}

impl FileLayout {
    /// First of the write-only slots.
    pub fn trash(self) -> u16 {
        self.registers
    }

    /// The slot of UR0; each uniform register is held broadcast, URZ included.
    pub fn uniform(self) -> u16 {
        self.registers + 4
    }

    /// Slots that the program may read: it writes no other, but for the write-only ones.
    pub fn named(self) -> usize {
        usize::from(self.uniform() + self.uniforms)
    }

    /// Slots in all.
    pub fn len(self) -> usize {
        usize::from(self.registers) + 4 + 64
    }
}
