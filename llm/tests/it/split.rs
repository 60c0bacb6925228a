//! Models in several files.

use std::fs;
use std::path::{Path, PathBuf};

use ga10b_llm::gguf::{Gguf, Value, Writer};
use ga10b_llm::{Decoder, Error, Model, Reference};
use tempfile::TempDir;

use crate::craft::Craft;

/// The parts of a file, as llama.cpp's `gguf-split` writes them: so many tensors in each, the metadata in the
/// first.
fn parts(whole: &Gguf, sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut tensors = whole.tensors().iter();
    let part = |(number, size): (usize, &usize)| {
        let mut writer = Writer::new();
        if number == 0 {
            whole.metadata().iter().for_each(|(key, value)| writer.key(key, value.clone()));
        }
        writer.key("split.no", Value::U16(number as u16));
        writer.key("split.count", Value::U16(sizes.len() as u16));
        writer.key("split.tensors.count", Value::I32(whole.tensors().len() as i32));
        let own: Vec<_> = tensors.by_ref().take(*size).collect();
        own.iter().for_each(|t| writer.tensor(&t.name, t.ty, &t.dims));
        let mut out = writer.begin(Vec::new()).unwrap();
        own.iter().for_each(|t| out.write(whole.tensor(&t.name).unwrap().data).unwrap());
        out.finish().unwrap()
    };
    sizes.iter().enumerate().map(part).collect()
}

fn path(folder: &TempDir, number: usize, count: usize) -> PathBuf {
    folder.path().join(format!("m-{number:05}-of-{count:05}.gguf"))
}

/// Writes parts by their names; the path of the first.
fn write(folder: &TempDir, parts: &[Vec<u8>]) -> PathBuf {
    for (at, part) in parts.iter().enumerate() {
        fs::write(path(folder, at + 1, parts.len()), part).unwrap();
    }
    path(folder, 1, parts.len())
}

fn whole() -> Gguf {
    Craft::new("tiny-llama:q8_0").gguf()
}

/// The sizes of three parts of `whole`, the first without a tensor (`--no-tensor-first-split`).
fn sizes(whole: &Gguf) -> [usize; 3] {
    [0, 7, whole.tensors().len() - 7]
}

/// The error and its causes in one line.
fn refused(path: &Path) -> String {
    let error = Gguf::open(path).unwrap_err();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

#[test]
fn the_first_file_is_the_whole_model() {
    let whole = whole();
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(&whole, &sizes(&whole));
    let first = write(&folder, &parts);
    let joined = Gguf::open(&first).unwrap();
    assert_eq!((joined.files(), joined.len()), (3, parts.iter().map(|p| p.len() as u64).sum()));
    assert_eq!(joined.tensors().len(), whole.tensors().len());
    for tensor in whole.tensors() {
        assert_eq!(joined.tensor(&tensor.name).unwrap().data, whole.tensor(&tensor.name).unwrap().data);
    }
    let (joined, whole) = (Model::new(joined).unwrap(), Model::new(whole).unwrap());
    let logits = |model: &Model| Reference::new(model, 8).unwrap().prefill(&[1, 7, 500]).unwrap();
    assert_eq!(logits(&joined), logits(&whole));
    assert_eq!(joined.tensor_bytes(), whole.tensor_bytes());

    // Every file counts in the fingerprint.
    let hash = joined.gguf.fingerprint();
    assert_eq!(Gguf::open(&first).unwrap().fingerprint(), hash);
    for number in 1..=3 {
        let mut changed = parts[number - 1].clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(path(&folder, number, 3), &changed).unwrap();
        assert_ne!(Gguf::open(&first).unwrap().fingerprint(), hash, "file {number}");
        fs::write(path(&folder, number, 3), &parts[number - 1]).unwrap();
    }
    drop(joined);
}

#[test]
fn missing_and_foreign_files_are_named() {
    let whole = whole();
    let parts = parts(&whole, &sizes(&whole));
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, &parts);
    let [second, third] = [2, 3].map(|number| path(&folder, number, 3));
    let refused = |wanted: &[&str]| {
        let text = refused(&first);
        wanted.iter().for_each(|part| assert!(text.contains(part), "{part:?} in {text}"));
    };
    fs::remove_file(&third).unwrap();
    refused(&["file 3 of the 3", "m-00003-of-00003.gguf", "one folder", "No such file"]);
    fs::write(&third, &parts[1]).unwrap();
    refused(&["m-00003-of-00003.gguf", "\"split.no\" is 1", "renamed"]);
    fs::write(&third, &parts[2][..parts[2].len() - 100]).unwrap();
    refused(&["m-00003-of-00003.gguf", "cut short"]);
    fs::write(&third, "").unwrap();
    refused(&["m-00003-of-00003.gguf", "not a GGUF file"]);
    fs::write(&third, Craft::new("tiny-llama:q8_0").bytes()).unwrap();
    refused(&["m-00003-of-00003.gguf", "\"split.no\" is missing"]);
    fs::write(&third, &parts[2]).unwrap();
    // Of a model that is split elsewhere: a tensor twice, or too few.
    let others = |first: usize| self::parts(&whole, &[0, first, whole.tensors().len() - first]);
    fs::write(&second, &others(8)[1]).unwrap();
    refused(&["m-00003-of-00003.gguf", "appears twice"]);
    fs::write(&second, &others(6)[1]).unwrap();
    refused(&["split.tensors.count", &format!("hold {} tensors", whole.tensors().len() - 1)]);
    let four = self::parts(&whole, &[0, 7, 1, whole.tensors().len() - 8]);
    fs::write(&second, &four[1]).unwrap();
    refused(&["m-00002-of-00003.gguf", "\"split.count\" is 4"]);
}

#[test]
fn a_file_that_is_not_the_first_or_has_another_name_is_refused() {
    let whole = whole();
    let parts = parts(&whole, &sizes(&whole));
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, &parts);
    let text = refused(&path(&folder, 2, 3));
    assert!(text.contains("file 2 of the 3") && text.contains(&*first.to_string_lossy()), "{text}");
    let renamed = folder.path().join("model.gguf");
    fs::rename(&first, &renamed).unwrap();
    let text = refused(&renamed);
    assert!(text.contains("file 1 of the 3") && text.contains("-00001-of-00003.gguf"), "{text}");
    assert!(matches!(Gguf::from_bytes(parts[0].clone()), Err(Error::Split { count: 3 })));
}

#[test]
fn counts_that_no_model_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (count, wanted) in [
        (Value::U32(100_000), "at most 99999"),
        (Value::U64(u64::MAX), "at most 99999"),
        (Value::String("3".into()), "split.count"),
        (Value::U16(34_463), "of the 34463"),
    ] {
        let file = folder.path().join("m.gguf");
        fs::write(&file, Craft::new("tiny-llama:q8_0").key("split.count", count).bytes()).unwrap();
        let text = refused(&file);
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
    // One file, or no part of a split model.
    for count in [0, 1] {
        let one = Craft::new("tiny-llama:q8_0").key("split.count", Value::U16(count));
        assert_eq!(one.gguf().files(), 1);
    }
}
