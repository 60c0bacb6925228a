//! NVIDIA's disassembler.

use std::path::PathBuf;

use crate::skip::missing;

/// `nvdisasm`, named by `NVDISASM` or found in `PATH`; `None` after saying so where there is none.
///
/// # Panics
/// Where there is none and `REQUIRE_ORACLES=yes`.
#[track_caller]
pub fn nvdisasm() -> Option<PathBuf> {
    let named = std::env::var_os("NVDISASM").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = named.or_else(|| {
        std::env::split_paths(&path).map(|folder| folder.join("nvdisasm")).find(|tool| tool.is_file())
    });
    if found.is_none() {
        missing("nvdisasm", "neither NVDISASM nor PATH names one");
    }
    found
}
