//! How text of others is shown.

use core::fmt::{self, Display, Formatter, Write};

/// Shows text that comes from elsewhere, the name of a kernel or of a buffer, with its control characters escaped:
/// a terminal obeys none of them, and a line stays one line.
///
/// ```
/// assert_eq!(nv_hw::Shown("a\x1b[31m\nb").to_string(), r"a\u{1b}[31m\nb");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shown<T>(pub T);

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaped(f), "{}", self.0)
    }
}

struct Escaped<'a, 'f>(&'a mut Formatter<'f>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_obeyed(*c)) {
            write!(self.0, "{}{}", &rest[..at], c.escape_default())?;
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Whether a terminal or an editor does something else with a character than show it: control characters, those
/// that end a line, and those that turn the direction of text (Unicode Standard Annex 9).
#[must_use]
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
