//! Output of every report: as text for people, and as JSON for programs.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

/// A number with its noun: `1 line`, `2 lines`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A text without escape sequences for a terminal: it may come from anyone.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if nv_hw::is_obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// A decoded answer to one question.
pub trait Report: Serialize {
    /// Name and version of the JSON document, e.g. `nvdiag.info/1`. Adding a field keeps the version.
    const SCHEMA: &'static str;

    /// Writes the report as text, with ANSI styles; the stream drops them where it has no colours.
    ///
    /// # Errors
    /// Those of `out`.
    fn print(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Whether a problem was found.
    fn has_problem(&self) -> bool;

    /// The report as a JSON object that begins with `"schema"`.
    ///
    /// # Errors
    /// If a value has no JSON form, which none of ours lacks.
    fn json(&self) -> serde_json::Result<Value>
    where
        Self: Sized,
    {
        serde_json::to_value(document(self))
    }

    /// Writes the JSON document, indented, with its fields in the order of the report.
    ///
    /// # Errors
    /// Those of `out`.
    fn print_json(&self, out: &mut dyn Write) -> io::Result<()>
    where
        Self: Sized,
    {
        serde_json::to_writer_pretty(&mut *out, &document(self))?;
        writeln!(out)
    }
}

/// A report with its schema.
pub(crate) const fn document<R: Report>(report: &R) -> impl Serialize {
    Document { schema: R::SCHEMA, report }
}

#[derive(Serialize)]
struct Document<'a, R> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a R,
}

/// The styles reports are printed in.
pub mod style {
    use anstyle::{AnsiColor, Color, Style};

    /// Headings.
    pub const HEADING: Style = Style::new().bold();
    /// Names of values.
    pub const NAME: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Cyan)));
    /// Style of problems.
    pub const PROBLEM: Style = Style::new().bold().fg_color(Some(Color::Ansi(AnsiColor::Red)));
    /// Style of details that may be skipped.
    pub const ASIDE: Style = Style::new().dimmed();
}
