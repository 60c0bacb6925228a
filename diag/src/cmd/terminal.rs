//! Stdout: text folded at the terminal's width, and a failure to write as an error of its own.

use std::io::{self, IsTerminal, Write};

/// Columns of a terminal that does not report them, such as a serial console.
const USUAL: usize = 80;
/// Fewest columns that text is folded at.
const LEAST: usize = 20;

/// Columns of the terminal that stdout is; `None` if it is none.
pub fn columns() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    Some(size.filter(|width| *width > 0).or_else(variable).unwrap_or(USUAL).max(LEAST))
}

/// A stream whose lines are folded between words, at `columns` if there are any.
#[derive(Debug)]
pub struct Output<W> {
    inner: W,
    columns: Option<usize>,
    /// The line that has not ended.
    line: Vec<u8>,
    failed: bool,
}

impl<W: Write> Output<W> {
    /// Writes to `inner`.
    pub fn new(inner: W, columns: Option<usize>) -> Self {
        Self { inner, columns, line: Vec::new(), failed: false }
    }

    /// Whether a write failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn note<T>(&mut self, written: io::Result<T>) -> io::Result<T> {
        self.failed |= written.is_err();
        written
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let folded = match (self.columns, std::str::from_utf8(&line)) {
            (Some(columns), Ok(text)) => fold(text, columns).into_bytes(),
            _ => line,
        };
        let written = self.inner.write_all(&folded);
        self.note(written)
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.columns.is_none() {
            let written = self.inner.write(bytes);
            return self.note(written);
        }
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_line()?;
        let flushed = self.inner.flush();
        self.note(flushed)
    }
}

/// A word with the blanks before it: bytes and columns of both.
struct Word<'a> {
    blanks: &'a str,
    text: &'a str,
}

/// Columns of text: its characters, without escape sequences.
fn width(text: &str) -> usize {
    let mut columns = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                // `ESC [ ... letter`
                chars.by_ref().skip(1).find(char::is_ascii_alphabetic);
            }
            '\n' => {}
            _ => columns += 1,
        }
    }
    columns
}

fn words(line: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let start = rest.find(|c| c != ' ').unwrap_or(rest.len());
        let end = rest[start..].find(' ').map_or(rest.len(), |len| start + len);
        words.push(Word { blanks: &rest[..start], text: &rest[start..end] });
        rest = &rest[end..];
    }
    words
}

/// Folds a line between words. Further lines begin under the last column that the line sets off by two blanks
/// or by a number (`1. `), or else under its first word.
fn fold(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let words = words(line);
    let mut hang = 0;
    let mut at = 0;
    for (index, word) in words.iter().enumerate() {
        let start = at + word.blanks.len();
        let after_number = index == 1 && words[0].text.strip_suffix('.').is_some_and(is_number);
        if (index == 0 || word.blanks.len() >= 2 || after_number) && start <= columns / 2 {
            hang = start;
        }
        at = start + width(word.text);
    }
    let mut folded = String::with_capacity(line.len() + 16);
    at = 0;
    for (index, word) in words.iter().enumerate() {
        let len = width(word.text);
        if index > 0 && len > 0 && at > hang && at + word.blanks.len() + len > columns {
            folded.push('\n');
            folded.push_str(&" ".repeat(hang));
            at = hang;
        } else {
            folded.push_str(word.blanks);
            at += word.blanks.len();
        }
        folded.push_str(word.text);
        at += len;
    }
    folded
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, columns: Option<usize>) -> String {
        let mut out = Output::new(Vec::new(), columns);
        // In pieces, as formatting writes them.
        for piece in text.as_bytes().chunks(3) {
            out.write_all(piece).expect("memory");
        }
        out.flush().expect("memory");
        String::from_utf8(out.inner).expect("text")
    }

    #[test]
    fn lines_are_folded_under_their_column() {
        let row = "  try           compare the low bits of the base with the width\n";
        assert_eq!(
            written(row, Some(40)),
            "  try           compare the low bits of\n                the base with the width\n"
        );
        assert_eq!(
            written("    1. an index past the end of the buffer\n", Some(30)),
            "    1. an index past the end\n       of the buffer\n"
        );
        assert_eq!(written(row, None), row);
        assert_eq!(written(row, Some(200)), row);
    }

    #[test]
    fn colours_take_no_columns_and_words_are_not_cut() {
        let line = "\u{1b}[1mone\u{1b}[0m two three\n";
        assert_eq!(written(line, Some(13)), line);
        assert_eq!(written(line, Some(8)), "\u{1b}[1mone\u{1b}[0m two\nthree\n");
        let word = "0123456789012345678901234567890123456789\n";
        assert_eq!(written(word, Some(20)), word);
        assert_eq!(written("no end", Some(4)), "no\nend");
    }

    #[test]
    fn a_failure_to_write_is_remembered() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for columns in [None, Some(80)] {
            let mut out = Output::new(Full, columns);
            assert!(!out.has_failed());
            assert!(writeln!(out, "text").is_err());
            assert!(out.has_failed());
        }
    }
}
