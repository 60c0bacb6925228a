//! `nvdiag doctor`: checks the machine, and prints remedies.

use std::io::Write;
use std::path::PathBuf;

use nvdiag::doctor::examine;

use crate::cmd::finding::{Finding, show};
use crate::cmd::machine_files::Files;

/// Check the machine: nodes and permissions, driver, clocks, memory, kernel log; each with its remedy.
///
/// Warnings are about speed; after a bad check the GPU cannot be used, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag doctor                 this machine
  nvdiag doctor --json          the same, for a program
  nvdiag doctor --root DIR      a machine whose files were copied to a folder

Exit codes: 0 no bad check; 1 a bad check: the GPU cannot be used; 2 bad usage, no such folder, or a
dev.txt or proc/self/status in it that cannot be read.")]
pub struct Args {
    /// Read the files under this folder instead of the machine's own; dev.txt in it lists the device nodes, by
    /// `stat -c '%A %u %g %n' /dev/nvmap /dev/nvgpu/igpu0/*`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl Args {
    /// Checks, and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let machine = match self.root == std::path::Path::new("/") {
            true => Files::own(),
            false => Files::copied(&self.root)?,
        };
        show(&examine(&machine), json, out)
    }
}
