//! `nvdiag list`: the faults that `nvdiag watch` has saved.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use nvdiag::saved::SavedList;

use crate::cmd::finding::{Finding, show};
use crate::cmd::store;

/// List the faults that `nvdiag watch` has saved, the newest last.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo nvdiag list                  those of the service
  nvdiag list --dir faults --json

Exit codes: 0 listed; 2 bad usage, or the folder cannot be read.")]
pub struct Args {
    /// The folder that they were saved to; without it /var/lib/nvdiag, or ~/.local/state/nvdiag of a user who
    /// has one.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Args {
    /// Reads the folder and lists it.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let folder = store::folder_to_read(self.dir.as_deref())?;
        let mut list = SavedList { folder: folder.display().to_string(), ..SavedList::default() };
        // Nobody has saved a fault yet; a folder that is named, and is not there, is a mistake.
        let is_new = self.dir.is_none() && !folder.exists();
        for number in if is_new { Vec::new() } else { numbers(&folder)? } {
            match store::entry(&folder, number) {
                Ok(entry) => list.faults.push(entry),
                Err(error) => list.unreadable.push(format!("{number}: {error:#}")),
            }
        }
        show(&list, json, out)
    }
}

/// Numbers of the saved faults.
pub(super) fn numbers(folder: &std::path::Path) -> anyhow::Result<Vec<u64>> {
    store::numbers(folder).with_context(|| {
        format!(
            "cannot list {}: `nvdiag watch` saves faults, and those of the service are root's (sudo)",
            folder.display()
        )
    })
}
