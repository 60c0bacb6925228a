//! `nvdiag completions`: completion scripts, made from the same definition as the command line itself.

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::Shell;

use crate::cmd::finding::Finding;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag completions bash > /etc/bash_completion.d/nvdiag
  nvdiag completions fish > ~/.config/fish/completions/nvdiag.fish

Exit codes: 0 printed; 2 bad usage.")]
pub struct Args {
    /// The shell.
    #[arg(value_parser = PossibleValuesParser::new(["bash", "fish", "zsh"]).try_map(|name| name.parse::<Shell>()))]
    shell: Shell,
}

impl Args {
    /// Writes the script for `command`.
    pub fn run(
        &self,
        mut command: clap::Command,
        json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<Finding> {
        anyhow::ensure!(!json, "--json: a completion script has no JSON form");
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "nvdiag", &mut script);
        out.write_all(&script)?;
        Ok(Finding::Clean)
    }
}
