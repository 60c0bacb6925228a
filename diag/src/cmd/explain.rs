//! `nvdiag explain`: codes and names of errors.

use std::io::Write;

use nvdiag::fault::explain_word;

use crate::cmd::finding::{Finding, show};

/// Say what an error's code or name means.
///
/// Searches the errors of warps and SMs, MMU faults, interrupts of the host and the copy engines, exceptions of
/// the front end, nvgpu's error notifiers and the desktop driver's Xids.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag explain OOR_ADDR
  nvdiag explain 0x10
  nvdiag explain 'invalid pte' --json

Exit codes: 0 explained; 1 no list has it; 2 bad usage.")]
pub struct Args {
    /// A number, decimal or behind `0x`, or a name or a part of one (three letters at least).
    #[arg(value_name = "NAME|CODE")]
    word: String,
}

impl Args {
    /// Looks it up.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        show(&explain_word(&self.word), json, out)
    }
}
