//! `nvdiag man`: manual pages, made from the same definition as the command line itself.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use crate::cmd::finding::Finding;

/// Write the manual pages, one for each command, into a folder; prints the path of the first, nvdiag.1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag man ~/.local/share/man/man1

Exit codes: 0 written; 2 bad usage, or they cannot be written.")]
pub struct Args {
    /// The folder; made if it is not there, with those above it.
    folder: PathBuf,
}

impl Args {
    /// Writes the pages of `command` and says where.
    pub fn run(&self, command: clap::Command, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        anyhow::ensure!(!json, "--json: manual pages have no JSON form");
        let cannot = || format!("cannot write manual pages to {}", self.folder.display());
        std::fs::create_dir_all(&self.folder).with_context(cannot)?;
        clap_mangen::generate_to(command, &self.folder).with_context(cannot)?;
        writeln!(out, "{}", self.folder.join("nvdiag.1").display())?;
        Ok(Finding::Clean)
    }
}
