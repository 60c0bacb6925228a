//! `nvdiag disasm`: shows what is in a cubin, or examines whether its kernels wait for their results.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use nvdiag::disassembly::Disassembly;
use nvdiag::lint::Lint;

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::input::{read_input, read_source};

/// Disassemble a cubin: sections, what each kernel needs, occupancy, instructions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag disasm k.cubin                   all of it
  nvdiag disasm k.cubin --kernel main     one kernel
  nvdiag disasm k.cubin --lint            does every instruction wait for its results?

Exit codes: 0 disassembled, and --lint found nothing; 1 --lint found something; 2 bad usage, or no
cubin.")]
pub struct Args {
    /// The cubin; `-` for stdin.
    file: PathBuf,
    /// Show this kernel alone.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Show the instruction words too.
    #[arg(long)]
    hex: bool,
    /// Examine instead whether every instruction waits for the results it uses: scoreboard barriers and stall
    /// counts, on every path.
    #[arg(long, conflicts_with = "hex")]
    lint: bool,
}

impl Args {
    /// Disassembles and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let bytes = read_input(&self.file)?;
        if self.lint {
            let lint = Lint::read(&bytes, self.kernel.as_deref());
            let lint = lint.with_context(|| format!("cannot examine {}", self.file.display()))?;
            return show(&lint, json, out);
        }
        let disassembly = Disassembly::read(&bytes, self.kernel.as_deref(), &mut read_source);
        let mut disassembly =
            disassembly.with_context(|| format!("cannot disassemble {}", self.file.display()))?;
        disassembly.words = self.hex;
        show(&disassembly, json, out)
    }
}
