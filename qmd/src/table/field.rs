//! Bit ranges of a QMD, declared as constants that the compiler checks.

use crate::version::Version;

/// Number of 32-bit words in the largest QMD.
pub(crate) const MAX_WORDS: usize = 96;

/// The names a header gives to the values of a field.
pub type Values = &'static [(&'static str, u32)];

/// A bit range of one QMD version, or an array of equally spaced ranges.
///
/// Bits count from bit 0 of the first byte; no range crosses a 32-bit word, so every value is a `u32`. A
/// `Field` with a [`count`](Self::count) above one stands for its element 0 until [`element`](Self::element)
/// picks another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    name: &'static str,
    version: Version,
    lo: u16,
    width: u8,
    count: u8,
    stride: u16,
    index: u8,
    values: Values,
}

impl Field {
    /// A single range; bounds in the order the hardware headers print them, high first.
    ///
    /// # Panics
    /// At compile time, where a table is built: bounds swapped, outside the QMD, or across a word boundary.
    pub(crate) const fn new(version: Version, name: &'static str, hi: u16, lo: u16) -> Self {
        assert!(hi >= lo, "bounds are swapped");
        assert!((hi as usize) < version.size() * 8, "field lies outside the QMD");
        assert!(hi / 32 == lo / 32, "field crosses a 32-bit word");
        Self { name, version, lo, width: (hi - lo + 1) as u8, count: 1, stride: 0, index: 0, values: &[] }
    }

    /// The same range repeated `count` times, `stride` bits apart.
    pub(crate) const fn every(mut self, count: u8, stride: u16) -> Self {
        assert!(count > 0 && (count == 1 || stride >= self.width as u16), "elements overlap");
        let mut i = 0;
        while i < count {
            let lo = self.lo + i as u16 * stride;
            assert!(lo / 32 == (lo + self.width as u16 - 1) / 32, "an element crosses a 32-bit word");
            assert!((lo as usize) < self.version.size() * 8, "an element lies outside the QMD");
            i += 1;
        }
        self.count = count;
        self.stride = stride;
        self
    }

    /// Attaches the names of the values.
    pub(crate) const fn named(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    /// The element of an array, or the field itself for index 0; for indexes known to the compiler.
    pub(crate) const fn at(self, index: u8) -> Self {
        assert!(index < self.count, "index is past the end of the array");
        let mut field = self;
        field.lo = self.lo + index as u16 * self.stride;
        field.count = 1;
        field.index = index;
        field
    }

    /// Element `index` of an array as a field of its own; `None` past its end.
    #[must_use]
    pub const fn element(self, index: u8) -> Option<Self> {
        if index < self.count { Some(self.at(index)) } else { None }
    }

    /// The name in NVIDIA's header, less the version prefix and the index.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The QMD version whose layout this field belongs to.
    #[must_use]
    pub const fn version(self) -> Version {
        self.version
    }

    /// Lowest bit, counted from the start of the QMD.
    #[must_use]
    pub const fn lo(self) -> u16 {
        self.lo
    }

    /// Highest bit, counted from the start of the QMD.
    #[must_use]
    pub const fn hi(self) -> u16 {
        self.lo + self.width as u16 - 1
    }

    /// Width in bits, 1 to 32.
    #[must_use]
    pub const fn width(self) -> u8 {
        self.width
    }

    /// Number of elements; 1 for a plain field and for an element picked from an array.
    #[must_use]
    pub const fn count(self) -> u8 {
        self.count
    }

    /// Distance between elements in bits; 0 for a plain field.
    #[must_use]
    pub const fn stride(self) -> u16 {
        self.stride
    }

    /// Returns the index in its array; 0 for a plain field.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.index
    }

    /// The values that have names, in the order of the header; empty for a number.
    #[must_use]
    pub const fn values(self) -> Values {
        self.values
    }

    /// The name of `value`, if it has one.
    #[must_use]
    pub fn value_name(self, value: u32) -> Option<&'static str> {
        self.values.iter().find(|(_, v)| *v == value).map(|(name, _)| *name)
    }

    /// Index of the 32-bit word that holds the field: its byte offset divided by four.
    #[must_use]
    pub const fn word(self) -> usize {
        self.lo as usize / 32
    }

    /// Position of the lowest bit inside [`word`](Self::word).
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.lo as u32 % 32
    }

    /// The largest value that fits.
    #[must_use]
    pub const fn max(self) -> u32 {
        if self.width == 32 { u32::MAX } else { (1 << self.width) - 1 }
    }

    /// The bits the field takes inside [`word`](Self::word).
    #[must_use]
    pub const fn mask(self) -> u32 {
        self.max() << self.shift()
    }
}

/// Marks every bit that `fields` name; `None` where two of them claim the same bit.
pub(crate) const fn cover(fields: &[Field]) -> Option<[u32; MAX_WORDS]> {
    let mut seen = [0u32; MAX_WORDS];
    let mut f = 0;
    while f < fields.len() {
        let mut i = 0;
        while i < fields[f].count {
            let element = fields[f].at(i);
            if seen[element.word()] & element.mask() != 0 {
                return None;
            }
            seen[element.word()] |= element.mask();
            i += 1;
        }
        f += 1;
    }
    Some(seen)
}

/// Declares the fields of one version: constants, the table of all of them, and the proof that none overlap.
macro_rules! fields {
    ($version:ident, $header:literal; $(
        $name:ident = [$hi:literal : $lo:literal $(; $count:literal every $stride:literal)?]
            $($value:ident $number:literal),*;
    )*) => {
        $(
            #[doc = concat!("Bits ", $hi, ":", $lo, $(" (", $count, " elements, ", $stride, " bits apart)",)? " of ", $header, ".")]
            pub const $name: $crate::table::field::Field =
                $crate::table::field::Field::new($crate::version::Version::$version, stringify!($name), $hi, $lo)
                    $(.every($count, $stride))?
                    .named(&[$((stringify!($value), $number)),*]);
        )*

        /// Every field the header names, in its order.
        pub const FIELDS: &[$crate::table::field::Field] = &[$($name),*];

        /// The bits that some field names, word by word.
        pub(crate) const NAMED: [u32; $crate::table::field::MAX_WORDS] =
            match $crate::table::field::cover(FIELDS) {
                Some(bits) => bits,
                None => panic!("two fields overlap"),
            };
    };
}
pub(crate) use fields;

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{UnwindSafe, catch_unwind};

    const fn field(hi: u16, lo: u16) -> Field {
        Field::new(Version::V03, "TEST", hi, lo)
    }

    /// The words with which a table is refused, at run time here.
    fn refused(table: impl FnOnce() -> Field + UnwindSafe) -> Option<&'static str> {
        let payload = catch_unwind(table).err()?;
        payload.downcast_ref::<&str>().copied()
    }

    #[test]
    fn a_table_with_a_wrong_range_does_not_compile() {
        assert_eq!(refused(|| field(95, 64)), None);
        assert_eq!(refused(|| field(63, 64)), Some("bounds are swapped"));
        assert_eq!(refused(|| field(64, 63)), Some("field crosses a 32-bit word"));
        assert_eq!(refused(|| field(2047, 2040)), None);
        assert_eq!(refused(|| field(2055, 2048)), Some("field lies outside the QMD"));
        // Elements at 64, 92 and so on: the second ends in the next word.
        let crosses = Some("an element crosses a 32-bit word");
        assert_eq!(refused(|| field(71, 64).every(2, 28)), crosses);
        assert_eq!(refused(|| field(71, 64).every(4, 8)), None);
        assert_eq!(refused(|| field(67, 64).every(8, 12)), None);
        assert_eq!(refused(|| field(67, 64).every(3, 15)), crosses, "the third");
        assert_eq!(refused(|| field(71, 64).every(2, 7)), Some("elements overlap"));
        assert_eq!(refused(|| field(71, 64).every(0, 8)), Some("elements overlap"));
        assert_eq!(refused(|| field(2039, 2032).every(2, 8)), None);
        let outside = Some("an element lies outside the QMD");
        assert_eq!(refused(|| field(2039, 2032).every(3, 8)), outside);
        assert_eq!(refused(|| field(71, 64).every(2, 8).at(2)), Some("index is past the end of the array"));
    }

    #[test]
    fn two_fields_of_one_bit_do_not_compile() {
        let (low, high) = (field(39, 32), field(47, 40).every(3, 8));
        let mut named = [0; MAX_WORDS];
        named[1] = u32::MAX;
        assert_eq!(cover(&[low, high]), Some(named));
        assert_eq!(cover(&[low, high, field(64, 64)]).map(|words| words[2]), Some(1));
        assert_eq!(cover(&[low, field(39, 39)]), None);
        assert_eq!(cover(&[high, field(56, 56)]), None, "its last element");
        assert_eq!(cover(&[]), Some([0; MAX_WORDS]));
    }
}
