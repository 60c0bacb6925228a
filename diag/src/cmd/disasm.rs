//! `nvdiag disasm`: shows the contents of a cubin, or examines whether its kernels wait for their results.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use nvdiag::disassembly::Disassembly;
use nvdiag::fat_binary::{Choice, Chosen, FatBinary};
use nvdiag::lint::Lint;

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::input::{architecture, read_input, read_source};

/// Disassemble a cubin: sections, what each kernel needs, occupancy, instructions.
///
/// A fat binary, an executable or an object with device code is taken too: its cubins are listed, and one is
/// disassembled where it is the only one or was chosen.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag disasm k.cubin                   all of it
  nvdiag disasm k.cubin --kernel main     one kernel
  nvdiag disasm k.cubin --lint            does every instruction wait for its results?

Exit codes: 0 disassembled, and --lint found nothing; 1 --lint found something; 2 bad usage, or no
cubin.")]
pub struct Args {
    /// The cubin, fat binary or program; `-` for stdin.
    file: PathBuf,
    /// Of a fat binary, take the cubin for this architecture, e.g. sm_87.
    #[arg(long, value_name = "SM", value_parser = architecture)]
    arch: Option<u32>,
    /// Of a fat binary, take the image of this number in the list.
    #[arg(long, value_name = "N", conflicts_with = "arch")]
    index: Option<usize>,
    /// Show this kernel or function alone: its name in the file, or demangled, with parameter types or without.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Show the instruction words too.
    #[arg(long)]
    hex: bool,
    /// Print names as the file has them: mangled ones of C++ and Rust are read otherwise.
    #[arg(long)]
    no_demangle: bool,
    /// Examine instead whether every instruction waits for the results it uses: scoreboard barriers and stall
    /// counts, on every path.
    #[arg(long, conflicts_with_all = ["hex", "no_demangle"])]
    lint: bool,
}

impl Args {
    /// Disassembles and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let mut bytes = read_input(&self.file)?;
        let choice = Choice { sm: self.arch, index: self.index };
        let chosen = FatBinary::choose(&bytes, choice);
        match chosen.with_context(|| format!("cannot disassemble {}", self.file.display()))? {
            Some(Chosen::Several(list)) => return show(&list, json, out),
            Some(Chosen::Cubin(cubin)) => bytes = cubin,
            None if self.arch.is_some() || self.index.is_some() => {
                anyhow::bail!("{} is no fat binary: --arch and --index choose in those", self.file.display())
            }
            None => {}
        }
        if self.lint {
            let lint = Lint::read(&bytes, self.kernel.as_deref());
            let lint = lint.with_context(|| format!("cannot examine {}", self.file.display()))?;
            return show(&lint, json, out);
        }
        let disassembly = Disassembly::read(&bytes, self.kernel.as_deref(), &mut read_source);
        let mut disassembly =
            disassembly.with_context(|| format!("cannot disassemble {}", self.file.display()))?;
        disassembly.words = self.hex;
        disassembly.raw_names = self.no_demangle;
        show(&disassembly, json, out)
    }
}
