//! Standard output of the programs. It may be a closed pipe or a full disk.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

/// Standard output takes nothing.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout")]
struct Unwritten(#[source] io::Error);

/// Prints a line. A reader that went away misses it, and the program still ends with its code.
///
/// # Errors
/// The system's errors, other than that nobody reads.
pub fn line(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Unwritten(error).into()),
        _ => Ok(()),
    }
}

/// The code of a program that failed: 2 if standard output takes nothing, else 1.
pub fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if error.is::<Unwritten>() { 2 } else { 1 })
}
