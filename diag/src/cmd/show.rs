//! `nvdiag show`: a fault that `nvdiag watch` has saved.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;

use crate::cmd::finding::{Finding, show};
use crate::cmd::list::numbers;
use crate::cmd::store;

/// Show a fault that `nvdiag watch` has saved: its report, its process, and the files that were kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo nvdiag show last             the newest one of the service
  nvdiag show 7 --dir faults --json

Exit codes: 0 shown; 2 bad usage, there is no such fault, or it cannot be read.")]
pub struct Args {
    /// Its number, as `nvdiag list` shows it, or `last`.
    #[arg(value_name = "NUMBER")]
    which: Which,
    /// The folder that it was saved to; without it /var/lib/nvdiag, or ~/.local/state/nvdiag of a user who
    /// has one.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A saved fault, by number or by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Number(u64),
    Last,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(Self::Last),
            number => number.parse().map(Self::Number).map_err(|_| "expected a number, or `last`".to_owned()),
        }
    }
}

impl Args {
    /// Reads the fault and prints it.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let folder = store::folder_to_read(self.dir.as_deref())?;
        let numbers = numbers(&folder)?;
        let number = match self.which {
            Which::Number(number) => number,
            Which::Last => {
                *numbers.last().with_context(|| format!("no faults are saved in {}", folder.display()))?
            }
        };
        show(&store::open(&folder, number)?, json, out)
    }
}
