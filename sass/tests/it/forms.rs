//! Every operation in every operand form that a varied corpus compiles to, for all architectures, against
//! NVIDIA's disassembler; and surface atomics and queries, and products of warpgroups (`tools/sass-forms` writes
//! both lists).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use sass::{Arch, Word, decode};

/// A word and its text at the address 16 times its place in the list.
type Line = (Word, String);

/// Lines of `sm word text` by architecture.
fn read(text: &str) -> BTreeMap<u32, Vec<Line>> {
    let mut lines: BTreeMap<u32, Vec<Line>> = BTreeMap::new();
    for line in text.lines() {
        let (sm, rest) = line.split_once(' ').expect("an architecture");
        let (word, text) = rest.split_once(' ').expect("a word and a text");
        let word = Word(u128::from_str_radix(word, 16).expect("a hexadecimal word"));
        lines.entry(sm.parse().expect("a number")).or_default().push((word, text.to_owned()));
    }
    lines
}

/// Numbers of the architectures that code is run on.
fn run() -> impl Iterator<Item = u32> {
    Arch::ALL.into_iter().filter(|arch| arch.is_run()).map(Arch::sm)
}

fn golden() -> BTreeMap<u32, Vec<Line>> {
    list("forms.txt")
}

fn list(name: &str) -> BTreeMap<u32, Vec<Line>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(name);
    read(&std::fs::read_to_string(path).expect("the list"))
}

/// Returns the lines where the decoder's text differs from the list.
fn differences(sm: u32, lines: &[Line]) -> Vec<String> {
    let arch = Arch::from_sm(sm).expect("a known architecture");
    let differ = |((word, expected), pc): (&Line, u64)| match decode(arch, *word) {
        Ok(instruction) if instruction.text(pc) == *expected => None,
        Ok(instruction) => {
            Some(format!("sm_{sm} {word}\n    expected {expected}\n    decoded  {}", instruction.text(pc)))
        }
        Err(error) => Some(format!("sm_{sm} {expected}: {error}")),
    };
    lines.iter().zip((0..).step_by(16)).filter_map(differ).collect()
}

fn compare(lists: &BTreeMap<u32, Vec<Line>>) {
    let mut all = Vec::new();
    for (sm, lines) in lists {
        let unlike = differences(*sm, lines);
        println!("sm_{sm}: {} words, {} read differently", lines.len(), unlike.len());
        all.extend(unlike);
    }
    assert!(all.is_empty(), "{}:\n{}", all.len(), all.join("\n"));
}

#[test]
fn every_form_reads_alike() {
    let golden = golden();
    assert!(golden.keys().copied().eq(run()), "{:?}", golden.keys());
    assert!(golden.values().all(|lines| lines.len() > 1800), "a list is short");
    compare(&golden);
}

/// The words of an architecture that is only decoded: one of each operation that `ptxas` 13.5 makes of the
/// corpus in `tests/data/ptx`, with the text of `nvdisasm` 13.5.
#[test]
fn sm_88_reads_alike() {
    let words = list("sm_88.txt");
    assert!(words.len() == 1 && words[&88].len() > 400);
    compare(&words);
}

#[test]
fn surface_atomics_and_products_of_warpgroups_read_alike() {
    let words = list("words.txt");
    assert!(words.keys().copied().eq(run()), "{:?}", words.keys());
    compare(&words);
    let has = |sm: u32, name: &str| words[&sm].iter().any(|(_, text)| text.contains(name));
    // The disassembler refuses queries on sm_80.
    assert!(words.keys().all(|sm| has(*sm, "SUATOM") && (has(*sm, "SUQUERY") || *sm == 80)));
    for name in
        ["HGMMA.", "HGMMA.SP", "IGMMA.", "IGMMA.SP", "BGMMA.", "QGMMA.", "QGMMA.SP", "WARPGROUP.DEPBAR"]
    {
        assert!(has(90, name), "{name}");
    }
}

#[test]
fn textures_surfaces_and_the_code_address_are_in_the_list() {
    for (sm, lines) in golden() {
        for name in ["TEX", "TLD", "TLD4", "TXD", "TXQ", "SULD", "SUST", "SURED", "LEPC", "BRXU", "FSWZADD"] {
            let is = |(_, text): &Line| {
                let text =
                    text.strip_prefix('@').and_then(|rest| rest.split_once(' ')).map_or(&**text, |it| it.1);
                text.split([' ', '.']).next() == Some(name)
            };
            // Shuffles take its place on sm_90.
            assert!(lines.iter().any(is) || (sm, name) == (90, "FSWZADD"), "sm_{sm} has no {name}");
        }
    }
}

/// All words of the corpus, where the tool was asked for them: `SASS_WORDS` names the file.
#[test]
fn every_word_of_a_named_list_reads_alike() {
    if let Some(path) = std::env::var_os("SASS_WORDS") {
        compare(&read(
            &std::fs::read_to_string(PathBuf::from(path)).expect("SASS_WORDS names a readable file"),
        ));
    }
}

/// The lists are the disassembler's output.
#[test]
fn the_lists_are_the_disassemblers() {
    let Some(tool) = ga10b_oracles::nvdisasm() else { return };
    for (sm, lines) in golden().into_iter().chain(list("words.txt")) {
        let path = std::env::temp_dir().join(format!("sass-forms-{}-{sm}.bin", std::process::id()));
        let code: Vec<u8> = lines.iter().flat_map(|(word, _)| word.to_bytes()).collect();
        std::fs::write(&path, code).expect("temporary file");
        let out = Command::new(&tool).args(["-ndf", "-c", "-b", &format!("SM{sm}")]).arg(&path).output();
        std::fs::remove_file(&path).expect("remove");
        let out = out.expect("nvdisasm runs");
        assert!(out.status.success(), "sm_{sm}: {}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).expect("text");
        let rows = text.lines().filter_map(|line| line.trim_start().strip_prefix("/*")?.split_once("*/"));
        let rows: Vec<String> = rows.filter_map(|(_, row)| Some(squeeze(row.split_once(';')?.0))).collect();
        assert_eq!(rows.len(), lines.len(), "sm_{sm}");
        let unlike: Vec<_> = rows.iter().zip(&lines).filter(|(row, (_, text))| *row != text).collect();
        assert!(unlike.is_empty(), "sm_{sm}: {unlike:#?}");
    }
}

/// Single blanks, without the remarks that follow an address.
fn squeeze(text: &str) -> String {
    let text = text.split("(*").next().unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
