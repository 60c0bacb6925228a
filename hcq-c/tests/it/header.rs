//! The header is that of the code, and its codes are those of the library's errors.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::path::PathBuf;

use crate::installed::folder;

fn header() -> String {
    fs::read_to_string(folder().join("include/hcq.h")).unwrap()
}

/// The files that declare something, in the order of the header.
const FILES: [&str; 10] =
    ["status", "errors", "device", "buffer", "program", "args", "launch", "point", "graph", "queue"];

fn generated() -> String {
    let src = folder().join("src");
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let files = FILES.iter().map(|name| src.join(format!("{name}.rs")));
    let builder = files.fold(cbindgen::Builder::new().with_config(config), |builder, file: PathBuf| {
        assert!(file.exists(), "{}", file.display());
        builder.with_src(file)
    });
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_committed_header_is_that_of_the_code() {
    let (path, header) = (folder().join("include/hcq.h"), generated());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == header, "hcq.h differs: UPDATE=1 cargo test --profile ci -p hcq-c --test it header");
}

/// The codes of the header, with their numbers.
fn codes() -> Vec<(String, i32)> {
    let header = header();
    let block = header.split_once("typedef enum hcq_status {").unwrap().1.split_once('}').unwrap().0;
    let mut next = 0;
    let lines = block.lines().map(str::trim).filter(|line| line.starts_with("HCQ_"));
    lines
        .map(|line| {
            let (name, number) = line.trim_end_matches(',').split_once(" = ").unwrap_or((line, ""));
            next = number.parse().unwrap_or(next) + 1;
            (name.trim_end_matches(',').to_owned(), next - 1)
        })
        .collect()
}

#[test]
fn each_code_has_its_own_number_and_its_name() {
    let codes = codes();
    assert!(codes.len() > 60, "{codes:?}");
    let numbers: BTreeSet<i32> = codes.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers.len(), codes.len());
    for (name, number) in codes {
        // SAFETY: the library's names end with a NUL and are never freed.
        let found = unsafe { CStr::from_ptr(hcq_c::hcq_status_name(number)) };
        assert_eq!(found.to_str(), Ok(name.as_str()));
    }
}

/// `OutOfBounds` as `OUT_OF_BOUNDS`.
fn upper(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

#[test]
fn every_error_of_the_library_has_a_code() {
    let api = fs::read_to_string(folder().join("../hcq/api.txt")).unwrap();
    let codes: BTreeSet<String> = codes().into_iter().map(|(name, _)| name).collect();
    let groups = ["Open", "Driver", "Memory", "Program", "Cubin", "Launch", "Queue", ""];
    let mut found = 0;
    for group in groups {
        let head = format!("enum hcq::{group}Error\n");
        let variants = api.split_once(&head).unwrap_or_else(|| panic!("{head}")).1.lines();
        let variants = variants.take_while(|line| line.starts_with("    ") && !line.contains("fn "));
        for variant in variants.map(str::trim).filter(|line| !line.contains("#[from]")) {
            let variant = variant.split([' ', '(']).next().unwrap();
            let name = upper(&format!("{group}{variant}"));
            assert!(
                codes.contains(&format!("HCQ_ERROR_{name}")),
                "{group}Error::{variant} has no code {name}"
            );
            found += 1;
        }
    }
    assert!(found > 60, "{found} errors");
}
