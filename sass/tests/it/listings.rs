//! Reads the committed listings.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use sass::{Arch, Word};
use serde_json::Value;

/// A gzipped JSON file of tests/data.
pub fn json(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    serde_json::from_str(&text).expect("JSON")
}

/// The word of an `[hex, text]` entry.
pub fn word_of(entry: &Value) -> Word {
    Word(u128::from_str_radix(entry[0].as_str().expect("word"), 16).expect("hex"))
}

/// The instruction set of a listed cubin.
pub fn arch_of(cubin: &Value) -> Arch {
    let sm = cubin["sm"].as_u64().and_then(|sm| u32::try_from(sm).ok()).expect("sm");
    Arch::from_sm(sm).expect("known")
}
