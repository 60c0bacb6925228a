//! `nvdiag xid`: the desktop driver's error numbers.

use std::io::Write;

use anyhow::Context;
use nvdiag::catalogue::{self, Xids};

use crate::cmd::finding::{Finding, show};

/// Say what an Xid means, whose fault it is, and what to do.
///
/// Without a number, lists all of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag xid 79
  nvdiag xid --json > xids.json

Exit codes: 0 shown; 2 bad usage, or no Xid has this number.")]
pub struct Args {
    /// The number, as in `Xid (PCI:0000:01:00): 79`.
    #[arg(value_name = "NUMBER")]
    number: Option<u32>,
}

impl Args {
    /// Looks it up.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let xids = match self.number {
            Some(number) => {
                let last = catalogue::xids().last().map_or(0, |error| error.number);
                vec![
                    catalogue::xid(number)
                        .with_context(|| format!("no Xid {number}: 1 to {last} are known"))?,
                ]
            }
            None => catalogue::xids().iter().collect(),
        };
        show(&Xids { xids }, json, out)
    }
}
