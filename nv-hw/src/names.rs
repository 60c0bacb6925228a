//! Lists of numbers that have names, and how they are searched.

/// Numbers with their names.
pub type Names = &'static [(u32, &'static str)];

/// The name of `number` in `names`.
#[must_use]
pub fn name(names: Names, number: u32) -> Option<&'static str> {
    names.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

/// The number that is called `name` in `names`; a name that was cut short counts if only one begins so.
#[must_use]
pub fn number(names: Names, name: &str) -> Option<u32> {
    let name = name.trim();
    if let Some((number, _)) = names.iter().find(|(_, n)| *n == name) {
        return Some(*number);
    }
    let mut beginning = names.iter().filter(|(_, n)| !name.is_empty() && n.starts_with(name));
    match (beginning.next(), beginning.next()) {
        (Some((number, _)), None) => Some(*number),
        _ => None,
    }
}

/// The names of the bits that are set in `value`, for names whose numbers are of bits.
pub fn bit_names(names: Names, value: u32) -> impl Iterator<Item = &'static str> {
    names.iter().filter(move |(bit, _)| value >> bit & 1 != 0).map(|(_, name)| *name)
}

/// A name of a header: as an identifier it has an underscore before a digit at its beginning.
pub(crate) const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'_', rest @ ..] => match core::str::from_utf8(rest) {
            Ok(name) => name,
            Err(_) => name,
        },
        _ => name,
    }
}

/// Declares a constant for each number, `NAMES` with all of them, and lists of their other names.
macro_rules! names {
    ($($name:ident = $number:literal $($about:literal)?),* $(,)?
        $(; $(#[$doc:meta])* $texts:ident { $($value:literal $text:literal),* $(,)? })*
    ) => {
        $(
            #[doc = concat!("`", stringify!($name), "`" $(, ": ", $about)?, ".")]
            pub const $name: u32 = $number;
        )*

        /// All of them, by number.
        pub const NAMES: $crate::names::Names =
            &[$(($number, $crate::names::plain(stringify!($name)))),*];
        $(
            $(#[$doc])*
            pub const $texts: $crate::names::Names = &[$(($value, $text)),*];
        )*
    };
}
pub(crate) use names;

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESSES: Names = &[(0, "virt read"), (2, "virt atomic strong"), (4, "virt atomic weak")];

    #[test]
    fn names_and_numbers_find_each_other() {
        assert_eq!(
            (name(ACCESSES, 2), number(ACCESSES, "virt read ")),
            (Some("virt atomic strong"), Some(0))
        );
        assert_eq!(number(ACCESSES, "virt atomic stron"), Some(2));
        assert_eq!(number(ACCESSES, "virt atomic"), None);
        assert_eq!(number(ACCESSES, ""), None);
        assert!(bit_names(ACCESSES, 0x15).eq(["virt read", "virt atomic strong", "virt atomic weak"]));
    }
}
