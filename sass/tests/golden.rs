//! The decoder against listings made by NVIDIA's disassembler (`tools/sass-golden.py` writes them).

mod listings;

use std::collections::HashSet;

use listings::{arch_of, json, word_of};
use sass::{Arch, Word, decode};
use serde_json::Value;

/// Compares a list of `[hex word, text]`, entry i at address 16 i; returns how many entries it has.
fn compare(arch: Arch, code: &Value) -> usize {
    let code = code.as_array().expect("a list of instructions");
    let mut differences = Vec::new();
    for (entry, pc) in code.iter().zip((0u64..).step_by(16)) {
        let (word, text) = (word_of(entry), entry[1].as_str().expect("text"));
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

/// Compares every cubin of a file; returns the number of instructions per architecture.
fn compare_cubins(name: &str) -> [usize; 2] {
    let golden = json(name);
    let mut counts = [0; 2];
    for cubin in golden["cubins"].as_array().expect("cubins") {
        counts[usize::from(arch_of(cubin) == Arch::Sm90)] += compare(arch_of(cubin), &cubin["code"]);
    }
    println!("{name}: sm_87 {}, sm_90 {} instructions", counts[0], counts[1]);
    counts
}

#[test]
fn the_published_sm_87_words_read_alike() {
    assert_eq!(compare(Arch::Sm87, &json("decode-sm87.json.gz")["code"]), 3950);
}

#[test]
fn the_corpus_reads_alike() {
    assert_eq!(compare_cubins("golden/corpus.json.gz"), [12016, 9904]);
}

#[test]
fn other_optimisation_levels_read_alike() {
    let [sm87, sm90] = compare_cubins("golden/variants.json.gz");
    assert!(sm87 > 20_000 && sm90 > 20_000, "{sm87}, {sm90}");
}

/// Words that ptxas makes of the corpus for other SMs of the same encoding, and not for sm_87.
#[test]
fn words_of_sm_80_86_and_89_read_alike() {
    let golden = json("golden/generations.json.gz");
    let counts = golden["cubins"].as_array().expect("cubins").iter().map(|cubin| {
        let arch = arch_of(cubin);
        (arch.sm(), compare(arch, &cubin["code"]))
    });
    let counts: Vec<_> = counts.collect();
    assert!(counts.iter().map(|(sm, _)| *sm).eq([80, 86, 89]), "{counts:?}");
    assert!(counts.iter().all(|(_, words)| *words > 500), "{counts:?}");
}

#[test]
fn every_cubin_of_the_repository_reads_alike() {
    compare_cubins("golden/repository.json.gz");
}

/// Hand-made words that ran on a Hopper GPU, with operands and modifiers that the compiler does not choose.
#[test]
fn words_that_hardware_executed_decode() {
    let golden = json("hardware-sm90.json.gz");
    let words: Vec<Word> = golden.as_array().expect("words").iter().map(word_of).collect();
    let refused: Vec<_> = words.iter().filter_map(|&word| decode(Arch::Sm90, word).err()).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(words.len() > 700);
}

#[test]
fn the_corpus_uses_most_operations() {
    let golden = json("golden/corpus.json.gz");
    let mut used = HashSet::new();
    for cubin in golden["cubins"].as_array().expect("cubins") {
        let code = cubin["code"].as_array().expect("code");
        used.extend(code.iter().map(|entry| decode(arch_of(cubin), word_of(entry)).expect("decodes").opcode));
    }
    assert!(used.len() > 115, "{}", used.len());
}
