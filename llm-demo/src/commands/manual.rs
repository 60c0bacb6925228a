//! Manual pages and completions, made from the same definition as the command line itself.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::outcome::Outcome;

/// Writes the manual page into `folder` and says where.
pub fn pages(folder: &Path) -> anyhow::Result<Outcome> {
    let cannot = || format!("cannot write the manual page to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(cannot)?;
    writeln!(anstream::stdout(), "{}", folder.join("llm-demo.1").display())?;
    Ok(Outcome::Good)
}

/// Prints the completion script for `shell`.
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    // The generator panics where it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "llm-demo", &mut script);
    anstream::stdout().write_all(&script)?;
    Ok(Outcome::Good)
}
