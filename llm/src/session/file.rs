//! Files of sessions: replaced as a whole, and readable by their owner alone.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::session::summary::MAGIC;

/// Bytes that are written at a time.
const BUFFER: usize = 1 << 20;

/// Whether the file at `path` begins as a session does.
///
/// # Errors
/// [`Error::File`].
pub fn is_session(path: &Path) -> Result<bool> {
    let read = || -> io::Result<bool> {
        let mut begin = Vec::new();
        File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
        Ok(begin == MAGIC)
    };
    read().map_err(|source| Error::File { action: "read", path: path.to_owned(), source })
}

/// Writes a file beside `path`, with permissions for its owner alone, and renames it to `path` when it is on
/// the disk. Whatever fails, `path` has the old contents or the new.
///
/// # Errors
/// [`Error::File`]; what `write` returns.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = |source| Error::File { action: "write", path: path.to_owned(), source: system(source) };
    // The target of a link is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = folder(&target);
    let file = NamedTempFile::new_in(&folder).map_err(failed)?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    write(&mut out)?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&target).map_err(|error| failed(error.error))?;
    // The new name is on the disk with the folder.
    File::open(&folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Whether [`replace`] can write beside `path`: before much is computed that is to be saved there.
///
/// # Errors
/// [`Error::File`].
pub fn check_writable(path: &Path) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let file = NamedTempFile::new_in(folder(&target)).and_then(NamedTempFile::close);
    file.map_err(|source| Error::File { action: "write", path: path.to_owned(), source: system(source) })
}

/// The system's error, without the name of the temporary file that `tempfile` adds.
fn system(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((system, _)) => io::Error::new(error.kind(), system),
        None => error,
    }
}

fn folder(path: &Path) -> PathBuf {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}
