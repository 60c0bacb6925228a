//! `nvdiag qmd`: decodes queue metadata from a dump.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nvdiag::queue_metadata::{Comparison, Metadata};

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::input::{number, read_input};

/// Decode a QMD (the description of one launch) from a memory dump.
///
/// Shows the launch, every field that is not zero, and the values the hardware rejects or silently hangs on;
/// or, with --diff, the fields in which two QMDs differ.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag qmd launch.qmd
  nvdiag qmd dump.bin --offset 0x1200

Exit codes: 0 nothing wrong in it; 1 values that the hardware rejects; 2 bad usage, or no QMD.")]
pub struct Args {
    /// The dump, raw bytes as in memory; `-` for stdin. With --diff, two dumps, or two places in one.
    #[arg(value_name = "FILE", num_args = 1..=2, required = true)]
    files: Vec<PathBuf>,
    /// Where the QMD starts in the dump, in bytes; given twice, where it starts in each of two.
    #[arg(long, value_name = "BYTES", value_parser = number, default_value = "0")]
    offset: Vec<u64>,
    /// Compare two QMDs field by field; exits with 1 if they differ.
    #[arg(long)]
    diff: bool,
}

impl Args {
    /// Decodes and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        match (self.diff, &self.files[..], &self.offset[..]) {
            (_, _, [_, _, _, ..]) => bail!("--offset is given more than twice"),
            (true, [_], [_]) => {
                bail!("--diff compares two FILEs, or two --offset of one");
            }
            (true, [first, .., second] | [first @ second], offsets) => {
                let places = [(first, offsets[0]), (second, offsets[offsets.len() - 1])];
                let [first, second] = places.map(|(file, offset)| read(file, offset));
                let names = places.map(|(file, offset)| match offset {
                    0 => file.display().to_string(),
                    _ => format!("{} at {offset:#x}", file.display()),
                });
                return show(&Comparison::of(names, &first?, &second?), json, out);
            }
            (false, [_, _, ..], _) => bail!("two FILEs are compared with --diff"),
            (false, _, [_, _]) => bail!("--offset is given twice without --diff"),
            _ => {}
        }
        show(&read(&self.files[0], self.offset[0])?, json, out)
    }
}

fn read(file: &Path, offset: u64) -> anyhow::Result<Metadata> {
    let dump = read_input(file)?;
    let name = file.display();
    let bytes = usize::try_from(offset)
        .ok()
        .and_then(|at| dump.get(at..))
        .with_context(|| format!("{name} has {} bytes, offset {offset:#x} is past its end", dump.len()))?;
    Metadata::read(bytes).with_context(|| format!("no QMD at offset {offset:#x} of {name}"))
}
