//! Faults: what stopped the GPU, decoded, and the files that other programs explain it by.

use std::path::PathBuf;

pub(crate) mod core_file;
pub(crate) mod decode;
pub(crate) mod map_file;
mod new_file;

/// The folder that a variable of the environment names.
fn folder(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
