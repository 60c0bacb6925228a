//! Models in several files, as llama.cpp's `gguf-split` writes them: each has a part of the tensors, the first
//! one also the metadata. Source: `tools/gguf-split/gguf-split.cpp` and `src/llama-model-loader.cpp` of the
//! llama.cpp repository.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::gguf::data::Data;
use crate::gguf::layout::Layout;

/// The number of a file, from 0.
const NUMBER: &str = "split.no";
/// Files of the model.
const COUNT: &str = "split.count";
/// Tensors in all files.
const TENSORS: &str = "split.tensors.count";

/// Most files: five digits.
const MOST: u64 = 99_999;

/// The files of the model that the file `first` at `path` begins, and the table of all tensors.
///
/// # Errors
/// [`Error::SplitName`], [`Error::SplitFile`], [`Error::SplitTensors`]; the errors of each file.
pub(super) fn join(path: &Path, (mut layout, first): (Layout, Data)) -> Result<(Layout, Vec<Data>)> {
    let count = count(&layout)?;
    let mut files = vec![first];
    if count <= 1 {
        return Ok((layout, files));
    }
    let name = Name::of(path, uint(&layout, NUMBER)?.unwrap_or(0), count)?;
    for number in 2..=count {
        let path = name.file(number);
        let of =
            |source: Error| Error::SplitFile { path: path.clone(), number, count, source: Box::new(source) };
        let (next, file) = Data::open(&path).map_err(of)?;
        check(&next, number, count).and_then(|()| layout.append(next, files.len())).map_err(of)?;
        files.push(file);
    }
    let found = layout.tensors.len() as u64;
    match uint(&layout, TENSORS)? {
        Some(expected) if expected != found => Err(Error::SplitTensors { expected, found, count }),
        _ => Ok((layout, files)),
    }
}

/// Refuses a file that is not the whole model.
///
/// # Errors
/// [`Error::Split`].
pub(super) fn check_whole(layout: &Layout) -> Result<()> {
    match count(layout)? {
        0 | 1 => Ok(()),
        count => Err(Error::Split { count }),
    }
}

fn count(layout: &Layout) -> Result<u64> {
    let count = uint(layout, COUNT)?.unwrap_or(1);
    let rule = "a model has at most 99999 files";
    if count <= MOST {
        Ok(count)
    } else {
        Err(Error::KeyValue { key: COUNT.into(), value: count.to_string(), rule })
    }
}

fn uint(layout: &Layout, key: &str) -> Result<Option<u64>> {
    let Some(value) = layout.metadata.get(key) else { return Ok(None) };
    let wrong = || Error::KeyType {
        key: key.into(),
        expected: "an integer that is not negative",
        found: value.kind(),
    };
    value.as_uint().map(Some).ok_or_else(wrong)
}

/// Checks that a file is number `number` of `count`.
fn check(layout: &Layout, number: u64, count: u64) -> Result<()> {
    for (key, expected, rule) in [
        (NUMBER, number - 1, "which is another file's: it was renamed, or is of another model"),
        (COUNT, count, "which is not that of the first file: it is of another model"),
    ] {
        let found = uint(layout, key)?.ok_or_else(|| Error::MissingKey { key: key.into() })?;
        if found != expected {
            return Err(Error::KeyValue { key: key.into(), value: found.to_string(), rule });
        }
    }
    Ok(())
}

/// The names of a model's files: a stem, `-00001-of-00003.gguf`.
struct Name {
    folder: PathBuf,
    stem: String,
    count: u64,
}

impl Name {
    /// Those of the model whose first file is at `path`; `number` is the one in the file, from 0.
    fn of(path: &Path, number: u64, count: u64) -> Result<Self> {
        let ending = |number: u64| format!("-{:05}-of-{count:05}.gguf", number.saturating_add(1));
        let stem = path.file_name().and_then(|name| name.to_str()?.strip_suffix(&ending(number)));
        let Some(stem) = stem else {
            return Err(Error::SplitName { number: number.saturating_add(1), count, ending: ending(number) });
        };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let name = Self { folder, stem: stem.to_owned(), count };
        if number > 0 {
            return Err(Error::SplitNumber { number: number.saturating_add(1), count, first: name.file(1) });
        }
        Ok(name)
    }

    /// The path of file `number`, from 1.
    fn file(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count))
    }
}
