//! The registers that instructions read and write, against the life ranges that NVIDIA's disassembler prints
//! (`tools/sass-registers.py` writes them).

use std::collections::BTreeSet;

use crate::listings::{arch_of, json, word_of};
use sass::{RegisterSet, decode};

/// Instructions for which the disassembler's live ranges are wrong, by the beginning of the text.
const DIFFERENT: [(&str, &str); 5] = [
    ("ISETP.NE.U32.AND P0, PT, RZ, UR2, PT", "UR2 of the prologue is not shown"),
    ("UMOV UR2, 0x1", "UR2 of the prologue is not shown"),
    ("LDGSTS.E.BYPASS.LTC128B.128 [R17]", "the predicate source is shown as written too"),
    ("P2R", "the predicates that are read are not shown"),
    ("CALL", "what the callee may read and write is shown"),
];

/// Names of the registers of a set.
fn names(set: RegisterSet) -> BTreeSet<String> {
    set.iter().map(|register| register.to_string()).collect()
}

#[test]
fn every_word_of_the_corpus_reads_and_writes_what_the_disassembler_says() {
    let golden = json("golden/registers.json.gz");
    let rows = golden.as_array().expect("rows");
    let mut differences = Vec::new();
    for row in rows {
        let text = row["text"].as_str().expect("text");
        if DIFFERENT.iter().any(|(start, _)| text.starts_with(start)) {
            continue;
        }
        let arch = arch_of(row);
        let word = word_of(&row["word"]);
        let effects = decode(arch, word).expect("decodes").effects().expect("operands are known");
        let expected = |name: &str| -> BTreeSet<String> {
            row[name].as_str().expect("text").split_whitespace().map(str::to_owned).collect()
        };
        let (reads, writes) = (expected("reads"), expected("writes"));
        if (names(effects.reads), names(effects.writes)) != (reads.clone(), writes.clone()) {
            differences.push(format!(
                "{arch} {word} {text}\n    expected {reads:?} -> {writes:?}\n    decoded  {} -> {}",
                effects.reads, effects.writes
            ));
        }
    }
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), rows.len(), differences.join("\n"));
    assert!(rows.len() > 10_000, "{}", rows.len());
}
