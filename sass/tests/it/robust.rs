//! The decoder on words that no compiler made.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::listings::{arch_of, json, word_of};
use proptest::prelude::*;
use sass::{Arch, Listing, Word, decode};

/// Words of the corpus, every `step`-th one.
fn corpus(arch: Arch, step: usize) -> Vec<u128> {
    let golden = json("golden/corpus.json.gz");
    let cubins = golden["cubins"].as_array().expect("cubins").clone();
    let code = cubins.iter().filter(|cubin| arch_of(cubin) == arch).flat_map(|cubin| {
        cubin["code"].as_array().expect("code").iter().map(word_of).map(|word| word.0).collect::<Vec<_>>()
    });
    code.step_by(step).collect()
}

fn arch() -> impl Strategy<Value = Arch> {
    prop_oneof![Just(Arch::Sm87), Just(Arch::Sm90)]
}

/// Decodes, prints and calls every query.
fn exercise(arch: Arch, word: Word, pc: u64) {
    match decode(arch, word) {
        Ok(instruction) => {
            assert_eq!(instruction.word, word);
            assert!(!instruction.text(pc).is_empty());
            let _ = (
                instruction.branch_target(pc),
                instruction.memory_access(),
                instruction.control().to_string(),
            );
        }
        Err(error) => {
            assert_eq!(error.word(), word);
            assert!(error.to_string().contains(&word.to_string()), "{error}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_word_decodes_or_is_shown(arch in arch(), word: u128, pc: u64) {
        exercise(arch, Word(word), pc);
    }

    #[test]
    fn any_bytes_make_a_listing(arch in arch(), code: Vec<u8>, base: u64) {
        let lines: Vec<String> = Listing::new(arch, &code, base).map(|line| line.to_string()).collect();
        prop_assert_eq!(lines.len(), code.len() / 16);
    }
}

#[test]
fn flipping_a_bit_never_panics() {
    for arch in [Arch::Sm87, Arch::Sm90] {
        for word in corpus(arch, 7) {
            for bit in 0..128 {
                exercise(arch, Word(word ^ 1 << bit), 0x100);
            }
        }
    }
}

#[test]
fn a_change_of_the_scheduling_field_changes_no_operand() {
    for word in corpus(Arch::Sm87, 11) {
        let plain = decode(Arch::Sm87, Word(word)).expect("compiled");
        let other = decode(Arch::Sm87, Word(word & !(0x1f << 105) | 3 << 105)).expect("a stall of 3");
        assert_eq!(
            (plain.opcode, plain.dst, plain.a, plain.b, plain.c),
            (other.opcode, other.dst, other.a, other.b, other.c)
        );
    }
}

/// A word that both read as NOP, in place of one that is refused.
const NOP: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7918;

/// Returns nvdisasm's text of `words` at addresses 16 `first`, ...; `None` for a word that it refuses.
///
/// It prints nothing at all while a word is refused, but names the addresses of all that are: the second run
/// is without them.
fn nvdisasm(tool: &Path, arch: Arch, first: usize, words: &[u128]) -> Vec<Option<String>> {
    let path = std::env::temp_dir().join(format!(
        "sass-{}-{:?}.bin",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut refused = vec![false; words.len()];
    loop {
        let mut file = std::fs::File::create(&path).expect("temporary file");
        file.write_all(&NOP.to_le_bytes().repeat(first)).expect("write");
        for (word, refused) in words.iter().zip(&refused) {
            file.write_all(&if *refused { NOP } else { *word }.to_le_bytes()).expect("write");
        }
        drop(file);
        let args = ["-ndf", "-c", "-b", &format!("SM{}", arch.sm())];
        let out = Command::new(tool).args(args).arg(&path).output().expect("nvdisasm runs");
        std::fs::remove_file(&path).expect("remove");
        let text = String::from_utf8_lossy(&out.stdout);
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("/*")?.split_once("*/"));
        let texts = lines.filter(|(_, text)| text.contains(';')).map(|(_, text)| squeeze(text)).skip(first);
        let texts: Vec<_> = texts.collect();
        if out.status.success() && texts.len() == words.len() {
            let read = |(text, refused): (String, &bool)| {
                (!refused && !text.contains("INVALID") && !text.contains("???")).then_some(text)
            };
            return texts.into_iter().zip(&refused).map(read).collect();
        }
        let mut found = false;
        for address in String::from_utf8_lossy(&out.stderr).split(" at address 0x").skip(1) {
            let digits: String = address.chars().take_while(char::is_ascii_hexdigit).collect();
            let at = usize::from_str_radix(&digits, 16).expect("an address") / 16;
            if let Some(refused) = at.checked_sub(first).and_then(|at| refused.get_mut(at)) {
                found |= !std::mem::replace(refused, true);
            }
        }
        if found {
            continue;
        }
        if let [_] = words {
            return vec![None];
        }
        // It names no address for some refusals: halve until each is alone.
        let half = words.len() / 2;
        let (low, high) = words.split_at(half);
        return [nvdisasm(tool, arch, first, low), nvdisasm(tool, arch, first + half, high)].concat();
    }
}

/// Single blanks, no semicolon, no remark.
fn squeeze(text: &str) -> String {
    let text = text.split(';').next().unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words that both accept read the same.
#[test]
fn mutated_words_read_as_nvdisasm_reads_them() {
    let Some(tool) = ga10b_oracles::nvdisasm() else { return };
    for arch in [Arch::Sm87, Arch::Sm90] {
        let words: Vec<u128> =
            corpus(arch, 3).into_iter().zip((9..105).cycle()).map(|(word, bit)| word ^ 1 << bit).collect();
        let (mut same, mut ours, mut theirs, mut unlike) = (0, 0, 0, Vec::new());
        let texts = nvdisasm(&tool, arch, 0, &words);
        for ((word, expected), pc) in words.iter().zip(texts).zip((0..).step_by(16)) {
            match (decode(arch, Word(*word)), expected) {
                (Ok(instruction), Some(text)) => {
                    let read = instruction.text(pc);
                    same += usize::from(read == text);
                    if read != text {
                        unlike.push(format!(
                            "{word:#034x} at {pc:#x}\n    nvdisasm {text}\n    decoded  {read}"
                        ));
                    }
                }
                (Ok(_), None) => ours += 1,
                (Err(_), Some(_)) => theirs += 1,
                (Err(_), None) => {}
            }
        }
        println!("{arch}: {same} read alike, {ours} accepted here only, {theirs} accepted by nvdisasm only");
        assert!(unlike.is_empty(), "{} of {}:\n{}", unlike.len(), words.len(), unlike.join("\n"));
        assert!(ours * 100 <= words.len(), "{ours} of {} words are accepted here only", words.len());
    }
}
