//! Programs that a command starts: where their files are.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::ensure;
use nix::unistd::{AccessFlags, access};

/// Finds a program as a shell does: by its path, or in the folders of `PATH`.
///
/// # Errors
/// There is none, or it is not executable.
pub fn find(name: &OsStr) -> anyhow::Result<PathBuf> {
    let folders = match name.as_bytes().contains(&b'/') {
        true => vec![PathBuf::new()],
        false => std::env::var_os("PATH").map_or(Vec::new(), |path| std::env::split_paths(&path).collect()),
    };
    let mut found = folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_file()).peekable();
    ensure!(found.peek().is_some(), "there is no program {}", name.display());
    let runnable = found.find(|path| access(path, AccessFlags::X_OK).is_ok());
    runnable.ok_or_else(|| anyhow::anyhow!("{} is not executable", name.display()))
}
