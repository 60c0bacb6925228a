//! Text from models and files on a terminal: control characters, which could move the cursor, change the title
//! or answer for the user, are replaced. Files and pipes get the text as it is.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

/// `text` for standard output.
pub fn on_stdout(text: &str) -> Cow<'_, str> {
    if io::stdout().is_terminal() { visible(text) } else { text.into() }
}

/// `text` for standard error.
pub fn on_stderr(text: &str) -> Cow<'_, str> {
    if io::stderr().is_terminal() { visible(text) } else { text.into() }
}

/// `text` with U+FFFD for every control character but line feed and tab.
fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(hidden) {
        return text.into();
    }
    text.chars().map(|c| if hidden(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(visible("a\x1b]0;title\x07b\x1b[2J"), "a\u{fffd}]0;title\u{fffd}b\u{fffd}[2J");
        assert_eq!(
            visible("c1 \u{9b}31m, del \x7f, back\x08, return\r"),
            "c1 \u{fffd}31m, del \u{fffd}, back\u{fffd}, return\u{fffd}"
        );
        assert_eq!(visible("tab\t line\n \u{e9}\u{4e2d}"), "tab\t line\n \u{e9}\u{4e2d}");
    }
}
