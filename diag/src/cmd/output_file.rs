//! Files that a command leaves behind: archives and profiles.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use nvdiag::archive;

use crate::cmd::input::open_regular;
use crate::cmd::replaced::{behind, is_same};

/// A file, open, and complete whenever it was written.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
}

/// Mode of new files: logs and states of a machine are their owner's.
const OWN: u32 = 0o600;
/// Names of this program's own streams, whatever a machine has there.
const STREAMS: [&str; 2] = ["/dev/stdout", "/dev/stderr"];

/// Whether a file of that name lies in `/dev`, but for its folder of shared memory.
fn is_in_dev(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A folder that is not there is an error of `open`.
    let folder = folder.canonicalize().unwrap_or_default();
    folder.starts_with("/dev") && !folder.starts_with("/dev/shm")
}

impl OutputFile {
    /// The file that the user named by an option, whose content it replaces.
    pub fn named(path: &Path, option: &str) -> anyhow::Result<Self> {
        ensure!(path != Path::new("-"), "{option} takes a file's name; one that is called - is ./-");
        let cannot = || format!("cannot write {}", path.display());
        let printed =
            || format!("{} takes what this command prints; the file needs another name", path.display());
        ensure!(STREAMS.iter().all(|name| Path::new(name) != path), printed());
        let is_special = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        // Memory that the next boot clears. A file there may also be in the place of a stream's link.
        ensure!(
            is_special || !is_in_dev(path),
            "{} is in /dev, whose files are lost with the next boot",
            path.display()
        );
        let file = open_regular(path, OpenOptions::new().write(true).create(true).truncate(false).mode(OWN));
        let file = file.with_context(cannot)?;
        let own = file.metadata().with_context(cannot)?;
        let streams = [behind(&io::stdout()), behind(&io::stderr())];
        ensure!(!streams.iter().flatten().any(|stream| is_same(stream, &own)), printed());
        Ok(Self { path: path.to_owned(), file })
    }

    /// A file of the usual name, with a number if there is one of that name already.
    pub fn usual(stem: &str, extension: &str) -> anyhow::Result<Self> {
        for number in 1_u32.. {
            let path = PathBuf::from(match number {
                1 => format!("{stem}.{extension}"),
                _ => format!("{stem}-{number}.{extension}"),
            });
            match OpenOptions::new().write(true).create_new(true).mode(OWN).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot write {}", path.display())),
                Ok(file) => return Ok(Self { path, file }),
            }
        }
        bail!("there is a file of every name that begins with {stem}")
    }

    /// Whether `other` is this file, by whatever name.
    pub fn is(&self, other: &Self) -> io::Result<bool> {
        Ok(is_same(&self.file.metadata()?, &other.file.metadata()?))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces its content by those entries, on the disk: the machine may stop in the next step.
    pub fn write(&mut self, entries: &[(impl AsRef<str>, Vec<u8>)]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        archive::pack(entries, &mut bytes).context("cannot pack the report")?;
        self.replace(&bytes)
    }

    /// Replaces its content, on the disk.
    pub fn replace(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let written = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(bytes))
            .and_then(|()| self.file.set_len(bytes.len() as u64))
            .and_then(|()| self.file.sync_data());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}
