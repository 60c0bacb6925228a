//! Hardware facts stand in `nv-hw` alone: no other crate's sources have a number of its tables under its name, a
//! row of a number and a name that is there, a class by its number, or an enumeration of SMs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nv_hw::class::{self, CLASSES};
use nv_hw::{Names, fault};

/// Lists of `nv-hw`, with all that numbers are called.
const LISTS: [Names; 27] = [
    class::NAMES,
    fault::warp_esr::NAMES,
    fault::warp_esr::XID_TEXTS,
    fault::global_esr::NAMES,
    fault::fault_type::NAMES,
    fault::fault_type::TEXTS,
    fault::fault_type::TEXTS_GV11B,
    fault::fault_type::XID_TEXTS,
    fault::access_type::NAMES,
    fault::access_type::TEXTS,
    fault::hub_client::NAMES,
    fault::hub_client::TEXTS,
    fault::gpc_client::NAMES,
    fault::gpc_client::TEXTS,
    fault::pbdma_intr_0::NAMES,
    fault::pbdma_intr_0::TEXTS,
    fault::pbdma_intr_1::NAMES,
    fault::pbdma_intr_1::TEXTS,
    fault::ce_intr::NAMES,
    fault::ce_launch_error::NAMES,
    fault::fe_esr::NAMES,
    fault::mme_esr::NAMES,
    fault::memfmt_esr::NAMES,
    fault::class_error::NAMES,
    fault::notifier::NAMES,
    fault::xid::NAMES,
    fault::pri_error::TEXTS,
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Lines of code of the crates above `nv-hw`: without comments, tests and generated files.
fn lines() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in [
        "capture",
        "diag",
        "core-dump",
        "hcq",
        "llm",
        "llm-demo",
        "ptxgen",
        "qmd",
        "sass",
        "sim",
        "sim/preload",
    ] {
        rust_files(&workspace().join(folder).join("src"), &mut files);
    }
    let mut lines = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        if text.starts_with("// @generated")
            || path.ends_with("tests.rs")
            || path.components().any(|c| c.as_os_str() == "tests")
        {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let name = path.strip_prefix(workspace()).unwrap().display().to_string();
        let of_code = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        lines.extend(of_code.map(|(i, line)| (format!("{name}:{}", i + 1), line.to_owned())));
    }
    lines
}

/// A literal as a number.
fn number(text: &str) -> Option<u32> {
    let text = text.trim().replace('_', "");
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The numbers that each name of `nv-hw` has.
fn numbers() -> BTreeMap<&'static str, BTreeSet<u32>> {
    let mut numbers: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (number, name) in LISTS.into_iter().flatten() {
        numbers.entry(name).or_default().insert(*number);
    }
    for method in CLASSES.iter().flat_map(|class| class.methods) {
        numbers.entry(method.name).or_default().insert(method.offset);
    }
    numbers
}

fn check(what: &str, found: impl Iterator<Item = (String, String)>) {
    let found: Vec<String> = found.map(|(place, line)| format!("{place}: {}", line.trim())).collect();
    assert!(found.is_empty(), "{what}, which nv-hw has:\n{}", found.join("\n"));
}

/// `const NAME: u32 = 0x10;`, also as a bit, `1 << 4`.
fn constant(line: &str) -> Option<(&str, u32)> {
    let (name, value) = line.split_once("const ")?.1.split_once(": u32 = ")?;
    let value = value.split(';').next()?;
    Some((name, number(value.strip_prefix("1 << ").unwrap_or(value))?))
}

/// `(0x10, "NAME")`.
fn row(line: &str) -> Option<(u32, &str)> {
    let (value, name) = line.trim_start().strip_prefix('(')?.split_once(", \"")?;
    Some((number(value)?, name.split_once("\")")?.0))
}

#[test]
fn no_constant_has_a_name_and_a_number_of_the_hardware() {
    let numbers = numbers();
    let is_known = |(name, value): (&str, u32)| numbers.get(name).is_some_and(|known| known.contains(&value));
    check("constants", lines().into_iter().filter(|(_, line)| constant(line).is_some_and(is_known)));
}

#[test]
fn no_list_has_a_number_beside_its_name() {
    let numbers = numbers();
    let is_known = |(value, name): (u32, &str)| numbers.get(name).is_some_and(|known| known.contains(&value));
    check("rows", lines().into_iter().filter(|(_, line)| row(line).is_some_and(is_known)));
}

#[test]
fn no_method_and_no_code_is_matched_by_a_bare_number() {
    let matches_hex =
        |line: &str| line.contains("=>") && line.trim_start().trim_start_matches("| ").starts_with("0x");
    let of = [
        "sim/src/gpu/methods/",
        "sim/src/gpu/pbdma.rs",
        "sim/src/driver/recovery.rs",
        "capture/src/scanner.rs",
        "hcq/src/error/",
        "hcq/src/fault/",
        "diag/src/fault/sm.rs",
        "diag/src/fault/mmu.rs",
    ];
    let is_there = |place: &str| of.iter().any(|folder| place.starts_with(folder));
    // Low bits of a register's address, in `Place::from_register`.
    let is_address = |line: &str| line.contains("=> place(");
    let found =
        lines().into_iter().filter(|(place, line)| is_there(place) && matches_hex(line) && !is_address(line));
    check("numbers in a match", found);
}

#[test]
fn no_class_stands_as_a_number() {
    let classes: BTreeSet<u32> = class::NAMES.iter().map(|(number, _)| *number).collect();
    let has_class = |line: &str| {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words
            .filter(|word| word.len() == 6 && word.starts_with("0x"))
            .filter_map(number)
            .any(|n| classes.contains(&n))
    };
    // Texts of the command line show numbers as they are typed.
    let is_text = |place: &str| place.starts_with("diag/src/cmd/");
    check(
        "numbers of classes",
        lines().into_iter().filter(|(place, line)| has_class(line) && !is_text(place)),
    );
}

#[test]
fn sms_are_enumerated_once() {
    check("an enumeration of SMs", lines().into_iter().filter(|(_, line)| line.trim() == "Sm87,"));
}
