//! New files in a folder that others may write to as well.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Names that are tried.
const MOST: u32 = 1000;

/// Writes a new file that its owner alone can read, of the first of the numbered names that is free. No link is
/// followed, and no file is changed that is there: `O_EXCL` refuses both (`open(2)`).
pub(crate) fn write(name: impl Fn(u32) -> PathBuf, bytes: &[u8]) -> io::Result<PathBuf> {
    let (path, mut file) = create(name)?;
    let written = file.write_all(bytes);
    if written.is_err() {
        // Half a file helps nobody.
        let _ = std::fs::remove_file(&path);
    }
    written.map(|()| path)
}

fn create(name: impl Fn(u32) -> PathBuf) -> io::Result<(PathBuf, File)> {
    let mut taken = io::Error::from(ErrorKind::AlreadyExists);
    for path in (0..MOST).map(name) {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_are_new_private_and_behind_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |number: u32| folder.path().join(format!("map.{number}"));
        let target = folder.path().join("target");
        symlink(&target, name(0)).expect("a link");
        std::fs::write(name(1), "an earlier one").expect("a file");
        assert_eq!(write(name, b"dump").expect("written"), name(2));
        assert_eq!(std::fs::read(name(1)).expect("a file"), b"an earlier one");
        assert!(!target.exists(), "no link is followed");
        let mode = std::fs::metadata(name(2)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let none = write(|_| folder.path().join("none/map"), b"dump").expect_err("no folder");
        assert_eq!(none.kind(), ErrorKind::NotFound);
        let full = write(|_| name(1), b"dump").expect_err("no name is free");
        assert_eq!(full.kind(), ErrorKind::AlreadyExists);
    }
}
