//! What a command found, and how it is printed.

use std::io::Write;

use nvdiag::Report;

/// Whether what was examined is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing wrong found.
    Clean,
    /// A problem found.
    Problem,
}

/// Prints a report as text or JSON and says what it found.
pub fn show(report: &impl Report, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    match json {
        true => report.print_json(out)?,
        false => report.print(out)?,
    }
    out.flush()?;
    Ok(if report.has_problem() { Finding::Problem } else { Finding::Clean })
}
