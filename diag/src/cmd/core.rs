//! `nvdiag core`: shows a GPU core dump.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use core_dump::CoreDump;
use nvdiag::gpu_core::Core;
use object::ReadCache;

use crate::cmd::finding::{Finding, show};
use crate::cmd::input::{open_regular, read_input, read_source};

/// Show a GPU core dump: which instruction of which kernel failed, and the registers of its warp.
///
/// CUDA programs leave such a file with CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1, programs on hcq with HCQ_CORE=DIR.
/// With -v every warp is shown with its registers, else those that did not fail in one line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag core core_1700000000_host_1234.nvcudmp
  nvdiag core FILE -v                     all warps
  nvdiag core FILE --json

Exit codes: 0 nothing failed in it; 1 an SM, a warp or a lane failed; 2 bad usage, or no GPU core dump.")]
pub struct Args {
    /// The core dump; `-` for stdin.
    file: PathBuf,
}

impl Args {
    /// Reads and prints.
    pub fn run(&self, json: bool, all: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let name = self.file.display();
        let dump = if self.file.as_os_str() == "-" {
            CoreDump::read(read_input(&self.file)?.as_slice())
        } else {
            let file = open_regular(&self.file, OpenOptions::new().read(true));
            // Of a large file the tables alone are read.
            CoreDump::read(&ReadCache::new(file.with_context(|| format!("cannot read {name}"))?))
        };
        let dump = dump.with_context(|| format!("cannot read {name}"))?;
        show(&Core::of(&dump, all, &mut read_source), json, out)
    }
}
