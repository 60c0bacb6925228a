//! Libraries that a program is started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The variable that has the loader load them first.
pub const VARIABLE: &str = "LD_PRELOAD";

/// A library that is installed with this program, if it is there.
pub fn find(name: &str) -> anyhow::Result<Option<PathBuf>> {
    let program = std::env::current_exe().context("cannot find the path of nvdiag")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    // `deps` is where Cargo puts it for tests.
    let places = ["", "deps", "../lib", "../lib/nvdiag"].map(|place| folder.join(place).join(name));
    Ok(places.into_iter().find(|path| path.is_file()))
}

/// Value of [`VARIABLE`] with this library in front of those that are named already.
pub fn before_others(library: PathBuf) -> OsString {
    let mut list = library.into_os_string();
    if let Some(before) = std::env::var_os(VARIABLE).filter(|list| !list.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}
