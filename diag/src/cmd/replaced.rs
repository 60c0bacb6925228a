//! Files that a command replaces: of which kind they may be, and whether two names mean one.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::cmd::input::open_regular;

/// Most bytes of a file that are read to know its kind.
const BEGINNING: u64 = 4 << 10;

/// Refuses a file of another kind, which is not to be lost by a mistyped name: one whose beginning `is_own`
/// does not know. An empty one, pipes and devices lose nothing.
pub fn ensure_same_kind(path: &Path, kind: &str, is_own: impl FnOnce(&[u8]) -> bool) -> anyhow::Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let mut start = Vec::new();
    open_regular(path, OpenOptions::new().read(true))
        .and_then(|file| file.take(BEGINNING).read_to_end(&mut start))
        .with_context(|| format!("cannot read {}, to know whether it is {kind}", path.display()))?;
    ensure!(
        start.is_empty() || is_own(&start),
        "{} is there, and is not {kind}: give another name",
        path.display()
    );
    Ok(())
}

/// Whether two are the same file, by whatever names.
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The file behind an open stream.
pub fn behind(stream: &impl AsFd) -> io::Result<Metadata> {
    File::from(stream.as_fd().try_clone_to_owned()?).metadata()
}
