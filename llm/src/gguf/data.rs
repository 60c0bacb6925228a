//! The bytes of a file.

use std::borrow::Cow;
use std::path::Path;

use crate::error::{Error, Result};
use crate::gguf::layout::Layout;
use crate::gguf::parse::parse;

/// The bytes of a file.
pub(super) enum Data {
    Mapped(memmap2::Mmap),
    Memory(Cow<'static, [u8]>),
}

impl Data {
    /// Maps and parses the file at `path`.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be opened or mapped, otherwise what is wrong with its contents.
    pub fn open(path: &Path) -> Result<(Layout, Self)> {
        let failed = |action| move |source| Error::File { action, path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed("open"))?;
        let kind = file.metadata().map_err(failed("examine"))?;
        if !kind.is_file() {
            return Err(failed("map")(std::io::Error::other("it is not a regular file")));
        }
        if kind.len() == 0 {
            return Err(Error::NotGguf { found: Vec::new() });
        }
        // SAFETY: the mapping is private and only read. Another process that shortens or rewrites the file
        // while it is mapped can break this; as in every program that maps its model, the documentation
        // forbids it.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed("map"))?;
        Ok((parse(&map)?, Self::Mapped(map)))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }

    /// Has the system read `part` ahead of its use, if it is of this file and the file is mapped. Does not wait.
    pub fn fetch(&self, part: &[u8]) {
        let Self::Mapped(map) = self else { return };
        let Some(at) = part.as_ptr().addr().checked_sub(map.as_ptr().addr()) else { return };
        if at >= map.len() {
            return;
        }
        if let Err(error) = map.advise_range(memmap2::Advice::WillNeed, at, part.len().min(map.len() - at)) {
            tracing::debug!(%error, "the file is not read ahead");
        }
    }
}
