//! GPU addresses, and how sizes print.

use std::fmt;

/// Bits of a GPU virtual address the widest supported MMU translates (Hopper; ga10b uses 40 of its 49).
const VA_BITS: u32 = 57;

/// A GPU virtual address, in bytes from the start of one address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct GpuVa(u64);

impl GpuVa {
    /// `None` if `raw` does not fit the MMU's 57 bits.
    pub const fn new(raw: u64) -> Option<Self> {
        if raw >> VA_BITS == 0 { Some(Self(raw)) } else { None }
    }

    /// The address as a number.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The address `len` bytes further on; `None` past the end of the address space.
    pub const fn checked_add(self, len: u64) -> Option<Self> {
        match self.0.checked_add(len) {
            Some(raw) => Self::new(raw),
            None => None,
        }
    }

    /// Whether the address is a multiple of `alignment`, a power of two.
    pub const fn is_aligned(self, alignment: u64) -> bool {
        self.0 & (alignment - 1) == 0
    }

    /// An address this crate computed inside a mapping it made, where the sum cannot leave the address space.
    pub(crate) const fn inside(raw: u64) -> Self {
        Self(raw)
    }

    /// Upper half, as the `_UPPER` fields of methods take it.
    pub(crate) const fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Lower half, as the `_LOWER` fields of methods take it.
    pub(crate) const fn lower(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for GpuVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for GpuVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::LowerHex for GpuVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// A size in bytes as messages give it. The API has sizes as `u64`, since programs calculate with them.
pub(crate) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    /// Whole binary units where the number is a multiple of one, bytes otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stop_at_57_bits() {
        assert!(GpuVa::new((1 << 57) - 1).is_some());
        assert!(GpuVa::new(1 << 57).is_none());
        assert!(GpuVa::inside((1 << 57) - 1).checked_add(1).is_none());
    }

    #[test]
    fn lengths_print_in_the_largest_whole_unit() {
        assert_eq!(Bytes(2 << 20).to_string(), "2 MiB");
        assert_eq!(Bytes(1536).to_string(), "1536 B");
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(format!("{:?}", GpuVa::inside(0xfe_0000_0000)), "0xfe00000000");
    }
}
