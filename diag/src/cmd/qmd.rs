//! `nvdiag qmd`: decodes queue metadata from a dump.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use nvdiag::queue_metadata::Metadata;

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::input::{number, read_input};

/// Decode a QMD (the description of one launch) from a memory dump.
///
/// Shows the launch, every field that is not zero, and the values the hardware rejects or silently hangs on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag qmd launch.qmd
  nvdiag qmd dump.bin --offset 0x1200 --hex

Exit codes: 0 nothing wrong in it; 1 values that the hardware rejects; 2 bad usage, or no QMD.")]
pub struct Args {
    /// The dump, raw bytes as in memory; `-` for stdin.
    file: PathBuf,
    /// Where the QMD starts in the dump, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = number, default_value = "0")]
    offset: u64,
    /// The layout, instead of what the version fields say.
    #[arg(long, value_name = "VERSION")]
    layout: Option<Layout>,
    /// Show the bytes too.
    #[arg(long)]
    hex: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Layout {
    /// v3.0, Ampere.
    V3,
    /// v4.0, Hopper.
    V4,
}

impl Args {
    /// Decodes and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let dump = read_input(&self.file)?;
        let name = self.file.display();
        let bytes = usize::try_from(self.offset).ok().and_then(|at| dump.get(at..)).with_context(|| {
            format!("{name} has {} bytes, offset {:#x} is past its end", dump.len(), self.offset)
        })?;
        let metadata = match self.layout {
            None => Metadata::read(bytes),
            Some(Layout::V3) => Metadata::read_as(qmd::Version::V03, bytes),
            Some(Layout::V4) => Metadata::read_as(qmd::Version::V04, bytes),
        };
        let metadata = metadata.with_context(|| format!("no QMD at offset {:#x} of {name}", self.offset))?;
        if self.hex && !json {
            for (i, line) in metadata.image.as_bytes().chunks(16).enumerate() {
                let words: Vec<String> = line
                    .chunks_exact(4)
                    .map(|w| format!("{:08x}", u32::from_le_bytes([w[0], w[1], w[2], w[3]])))
                    .collect();
                writeln!(out, "word {:>2}  {}", i * 4, words.join(" "))?;
            }
        }
        show(&metadata, json, out)
    }
}
