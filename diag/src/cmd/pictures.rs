//! Pictures and pages of a report, written to files.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nvdiag::address_map::spaces::AddressMaps;
use nvdiag::fault::FaultList;
use nvdiag::process_map::ProcessMap;

use crate::cmd::replaced::ensure_same_kind;

/// Where to write them.
#[derive(Debug, clap::Args)]
pub struct Pictures {
    /// Draw the address map to this file too, with the addresses of the faults in it (needs a map: --map or
    /// --pid).
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    svg: Option<PathBuf>,
    /// Write the report to this file too, as one HTML page: verdict, evidence, map, disassembly.
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    html: Option<PathBuf>,
}

impl Pictures {
    /// Whether there is any picture to draw.
    pub const fn is_wanted(&self) -> bool {
        self.svg.is_some() || self.html.is_some()
    }

    /// Writes the requested pictures.
    pub fn write(&self, list: &FaultList, map: &ProcessMap) -> anyhow::Result<()> {
        if !self.is_wanted() {
            return Ok(());
        }
        ensure!(self.svg.is_none() || self.svg != self.html, "--svg and --html name the same file");
        let has_map = !map.mappings.is_empty() || !map.windows.is_empty();
        let name = map.pid.map_or("the process".to_owned(), |pid| format!("process {pid}"));
        let drawn = has_map.then(|| AddressMaps::of_documents(&name, map));
        if let Some(path) = &self.svg {
            let drawn = drawn.as_ref().context("there is no address map to draw: give one with --map")?;
            put(path, &drawn.svg(&list.marks(map.pid)))?;
        }
        match &self.html {
            Some(path) => put(path, &list.html(drawn.as_ref())),
            None => Ok(()),
        }
    }
}

/// Bytes by which pictures and pages are told from other files.
const BEGINNING: usize = 4;

/// Writes a picture or a page.
pub fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    ensure!(path != Path::new("-"), "a picture or a page goes to a file; one that is called - is ./-");
    let is_own = |start: &[u8]| text.as_bytes().starts_with(&start[..start.len().min(BEGINNING)]);
    ensure_same_kind(path, "a file of the kind that this option writes", is_own)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
