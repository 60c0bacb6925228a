//! The decoder against listings made by NVIDIA's disassembler.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use sass::{Arch, Word, decode};
use serde_json::Value;

fn json(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    serde_json::from_str(&text).expect("JSON")
}

/// Compares a list of `[hex word, text]`, entry i at address 16 i; returns how many entries it has.
fn compare(arch: Arch, code: &Value) -> usize {
    let code = code.as_array().expect("a list of instructions");
    let mut differences = Vec::new();
    for (entry, pc) in code.iter().zip((0u64..).step_by(16)) {
        let word = Word(u128::from_str_radix(entry[0].as_str().expect("word"), 16).expect("hex"));
        let text = entry[1].as_str().expect("text");
        match decode(arch, word) {
            Ok(instruction) => {
                let ours = instruction.text(pc);
                if ours != text {
                    differences.push(format!("{word} {pc:#x}\n    expected {text}\n    decoded  {ours}"));
                }
            }
            Err(error) => differences.push(format!("{text}: {error}")),
        }
    }
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), code.len(), differences.join("\n"));
    code.len()
}

#[test]
fn the_published_sm_87_words_decode() {
    assert_eq!(compare(Arch::Sm87, &json("decode-sm87.json.gz")["code"]), 3950);
}

#[test]
fn the_corpus_decodes() {
    let golden = json("golden/corpus.json.gz");
    for cubin in golden["cubins"].as_array().expect("cubins") {
        let arch = Arch::from_sm(cubin["sm"].as_u64().expect("sm") as u32).expect("known");
        compare(arch, &cubin["code"]);
    }
}
