//! The bytes of a QMD, and reading and writing one field of them.

use std::fmt;

use crate::error::Error;
use crate::table::field::{Field, MAX_WORDS};
use crate::table::layout::{Address, Layout};
use crate::table::{v03, v04};
use crate::version::Version;

/// Every field of a version, in the order of its header.
#[must_use]
pub const fn fields(version: Version) -> &'static [Field] {
    layout(version).fields
}

/// The field of that name in a version, as the header spells it.
#[must_use]
pub fn field(version: Version, name: &str) -> Option<Field> {
    fields(version).iter().copied().find(|f| f.name() == name)
}

pub(crate) const fn layout(version: Version) -> &'static Layout {
    match version {
        Version::V03 => &v03::LAYOUT,
        Version::V04 => &v04::LAYOUT,
    }
}

/// One QMD as in memory.
///
/// Every bit is kept, known or not: decoding and encoding again gives the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Qmd {
    version: Version,
    bytes: [u8; MAX_WORDS * 4],
}

impl Qmd {
    /// A QMD of zeros, its version fields filled in.
    #[must_use]
    pub fn new(version: Version) -> Self {
        let mut qmd = Self { version, bytes: [0; MAX_WORDS * 4] };
        qmd.put(layout(version).major, version.major());
        qmd
    }

    /// Reads a QMD, its version taken from its own version fields; bytes past its end are ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `bytes` is shorter than the structure, [`Error::UnknownVersion`] for versions
    /// other than 3.0 and 4.0.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let probe = Self::from_bytes_as(Version::V03, bytes)?;
        // Both versions keep the version numbers at the same bits.
        let version = match (probe.get_own(v03::QMD_MAJOR_VERSION), probe.get_own(v03::QMD_VERSION)) {
            (3, 0) => Version::V03,
            (4, 0) => Version::V04,
            (major, minor) => return Err(Error::UnknownVersion { major, minor }),
        };
        Self::from_bytes_as(version, bytes)
    }

    /// Reads a QMD as `version`, without regard to its version fields; bytes past its end are ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `bytes` is shorter than the structure.
    pub fn from_bytes_as(version: Version, bytes: &[u8]) -> Result<Self, Error> {
        let Some(source) = bytes.get(..version.size()) else {
            return Err(Error::Truncated { version, len: bytes.len(), need: version.size() });
        };
        let mut qmd = Self { version, bytes: [0; MAX_WORDS * 4] };
        qmd.bytes[..source.len()].copy_from_slice(source);
        Ok(qmd)
    }

    /// The layout of this QMD.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The structure as in GPU memory: 256 or 384 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.version.size()]
    }

    /// The structure as little-endian 32-bit words: 64 or 96 of them.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u32> {
        (0..self.version.size() / 4).map(|i| self.word(i))
    }

    /// The value of a field (element 0 of an array), or `None` if it belongs to another version.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<u32> {
        (field.version() == self.version).then(|| self.get_own(field))
    }

    /// Sets a field (element 0 of an array) to a raw value, unchecked beyond its width.
    ///
    /// # Errors
    /// [`Error::ForeignField`] if the field belongs to another version, [`Error::FieldOverflow`] if the value
    /// does not fit.
    pub fn set(&mut self, field: Field, value: u32) -> Result<(), Error> {
        if field.version() != self.version {
            return Err(Error::ForeignField { field: field.name(), version: self.version });
        }
        if value > field.max() {
            return Err(Error::FieldOverflow { field: field.name(), value, width: field.width() });
        }
        self.put(field, value);
        Ok(())
    }

    pub(crate) fn word(&self, index: usize) -> u32 {
        let at = index * 4;
        u32::from_le_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    /// Reads a field of this QMD's own layout.
    pub(crate) fn get_own(&self, field: Field) -> u32 {
        self.word(field.word()) >> field.shift() & field.max()
    }

    /// Writes a field of this QMD's own layout; the caller has checked that `value` fits.
    pub(crate) fn put(&mut self, field: Field, value: u32) {
        debug_assert!(value <= field.max(), "{} does not hold {value:#x}", field.name());
        let word = self.word(field.word()) & !field.mask() | value << field.shift() & field.mask();
        self.bytes[field.word() * 4..][..4].copy_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn get_address(&self, address: Address) -> u64 {
        let upper = address.upper.map_or(0, |f| u64::from(self.get_own(f)));
        (upper << 32 | u64::from(self.get_own(address.lower))) << address.shift
    }

    /// Writes an address after checking its alignment and reach.
    pub(crate) fn place(
        &mut self,
        fields: Address,
        what: &'static str,
        address: u64,
        align: u64,
    ) -> Result<(), Error> {
        if address % align != 0 {
            return Err(Error::Misaligned { what, address, align });
        }
        let bits = fields.reach();
        if address >> bits != 0 {
            return Err(Error::OutOfReach { what, address, bits, version: self.version() });
        }
        self.put_address(fields, address);
        Ok(())
    }

    /// Writes an address that the caller has checked against alignment and reach.
    pub(crate) fn put_address(&mut self, address: Address, value: u64) {
        let units = value >> address.shift;
        self.put(address.lower, units as u32);
        if let Some(upper) = address.upper {
            self.put(upper, (units >> 32) as u32);
        }
    }
}

impl fmt::Debug for Qmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qmd {}", self.version)?;
        f.debug_map().entries(self.words().enumerate().filter(|(_, w)| *w != 0)).finish()
    }
}
