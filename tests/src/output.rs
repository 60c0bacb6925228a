//! Standard output of the programs. It may be a closed pipe or a full disk.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::{ExitCode, exit};

use anyhow::Result;
use clap::Parser;

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

/// A command line that asks for what there is not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The program's options. Ends it for `--help`, `--version` and what cannot be.
#[must_use]
pub fn options<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        let Err(unwritten) = error.print() else { exit(error.exit_code()) };
        if unwritten.kind() == io::ErrorKind::BrokenPipe {
            exit(error.exit_code());
        }
        let _ = writeln!(io::stderr(), "{:#}", anyhow::Error::from(Unwritten(unwritten)));
        exit(2)
    })
}

/// Reports why the program `name` failed, with advice. Its code: 2 if options, environment or standard output
/// are at fault, else 1.
#[must_use]
pub fn failed(name: &str, error: &anyhow::Error) -> ExitCode {
    let device = || error.chain().filter_map(|cause| cause.downcast_ref::<hcq::Error>());
    let hints: String = device().filter_map(hcq::Error::hint).map(|hint| format!("\n  {hint}")).collect();
    // A closed stderr is no other failure.
    let _ = writeln!(io::stderr(), "{name}: {error:#}{hints}");
    let unusable = error.is::<Unwritten>() || error.is::<Usage>() || device().any(hcq::Error::is_setting);
    ExitCode::from(if unusable { 2 } else { 1 })
}
