//! The symbols whose addresses the loader puts into code: calls of other functions, addresses of variables.

use super::file::{File, Function};

/// The part of an address that goes into an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The lower 32 bits of the immediate operand (`R_CUDA_ABS32_LO_32`).
    Low,
    /// The upper 32 bits (`R_CUDA_ABS32_HI_32`).
    High,
    /// The target of a branch, or another place, by the number of the relocation.
    Other(u32),
}

/// An instruction that the loader puts an address into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Offset of the instruction in its section, in bytes.
    pub offset: u64,
    /// The part of the address it takes.
    pub part: Part,
    /// The symbol; empty where it has no name.
    pub symbol: &'a str,
    /// Bytes added to the symbol's address.
    pub addend: i64,
}

/// `R_CUDA_ABS32_LO_32`.
const ABS32_LO_32: u32 = 0x38;
/// `R_CUDA_ABS32_HI_32`.
const ABS32_HI_32: u32 = 0x39;

impl<'a> File<'a> {
    /// The instructions of a function's section that the loader puts addresses into, in the order of the file.
    #[must_use]
    pub fn references(&self, function: &Function<'_>) -> Vec<Reference<'a>> {
        let inside = self.relocations().filter(|place| place.section == function.section.index);
        let references = inside.map(|place| Reference {
            offset: place.offset & !0xf,
            part: match place.kind {
                ABS32_LO_32 => Part::Low,
                ABS32_HI_32 => Part::High,
                other => Part::Other(other),
            },
            symbol: u32::try_from(place.symbol).ok().and_then(|index| self.symbol(index)).unwrap_or(""),
            addend: place.addend.unwrap_or(0),
        });
        references.collect()
    }
}
