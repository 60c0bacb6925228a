//! Findings of a command, and how they are printed.

use std::io::{self, Write};

use nvdiag::Report;

/// Whether the examined object is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing wrong found.
    Clean,
    /// A problem found.
    Problem,
    /// A program was run, and ended with this code.
    Program(u8),
}

/// Prints a report as text or JSON and returns its finding.
pub fn show(report: &impl Report, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let printed = match json {
        true => report.print_json(out),
        false => report.print(out),
    };
    match printed.and_then(|()| out.flush()).map_err(anyhow::Error::from) {
        Err(error) if !is_broken_pipe(&error) => Err(error),
        // A reader that has stopped still gets the exit code.
        _ => Ok(if report.has_problem() { Finding::Problem } else { Finding::Clean }),
    }
}

/// Whether the reader of our output went away, as in `nvdiag qmd FILE | head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
