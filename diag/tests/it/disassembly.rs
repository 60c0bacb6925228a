//! `nvdiag disasm`: functions of their own section, names in the place of addresses, fat binaries.

use std::path::Path;
use std::process::Command;

use nvdiag::disassembly::Disassembly;
use serde_json::Value;

/// A kernel that calls a recursive function, compiled separately (`ptxas -c`).
const FIB: &[u8] = include_bytes!("../data/fib.sm_87.cubin");

/// Returns the output of `nvdiag disasm` for a file of the `hcq` crate's test data, and its exit code.
fn disasm(file: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hcq/tests/data").join(file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvdiag"));
    let out = command.arg("disasm").arg(path).args(arguments).output().expect("nvdiag runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

/// The instructions of a cubin: section by section, offset and text.
fn instructions(cubin: &[u8]) -> Vec<(u64, String)> {
    let all = Disassembly::read(cubin, None, &mut |_| None).expect("a cubin");
    let listings = all.functions.iter().chain(&all.kernels);
    let lines = listings.flat_map(|listing| &listing.instructions);
    lines.map(|line| (line.offset.0, line.text.clone().expect("decodes"))).collect()
}

#[test]
fn functions_in_sections_of_their_own_are_shown() {
    let all = Disassembly::read(FIB, None, &mut |_| None).expect("a cubin");
    let names = |listings: &[nvdiag::disassembly::Listing]| -> Vec<(String, usize)> {
        listings.iter().map(|listing| (listing.name.clone(), listing.code_bytes)).collect()
    };
    assert_eq!(names(&all.kernels), [("recurse".to_owned(), 640)]);
    assert_eq!(names(&all.functions), [("fib".to_owned(), 896)]);
    let one = Disassembly::read(FIB, Some("fib"), &mut |_| None).expect("a function");
    assert_eq!((one.kernels.len(), one.functions.len()), (0, 1));
}

#[test]
fn addresses_that_the_loader_fills_in_are_named() {
    let lines = instructions(FIB);
    for expected in [
        (0x1a0, "CALL.ABS.NOINC `(fib)"),
        (0x180, "MOV R20, 32@lo(recurse + 0x1b0)"),
        (0x190, "MOV R21, 32@hi(recurse + 0x1b0)"),
        (0x1f0, "CALL.REL.NOINC `(fib)"),
    ] {
        assert!(lines.iter().any(|(at, text)| (*at, &**text) == expected), "{expected:?} in {lines:#?}");
    }
}

/// The labels aside, the lines are NVIDIA's.
#[test]
fn names_read_as_in_the_disassembler() {
    let Some(tool) = ga10b_oracles::nvdisasm() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fib.sm_87.cubin");
    let out = Command::new(tool).args(["-ndf", "-c"]).arg(path).output().expect("nvdisasm runs");
    let text = String::from_utf8(out.stdout).expect("text");
    let rows = text.lines().filter_map(|line| {
        let (at, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
        let row = rest.split_once(';')?.0.split_whitespace().collect::<Vec<_>>().join(" ");
        Some((u64::from_str_radix(at, 16).ok()?, row))
    });
    let rows: Vec<(u64, String)> = rows.collect();
    let mut ours = instructions(FIB);
    assert_eq!(rows.len(), ours.len());
    let compared = rows.iter().filter(|(_, row)| !row.contains(".L_"));
    for row in compared.clone() {
        let at = ours.iter().position(|line| line == row).unwrap_or_else(|| panic!("{row:?} in {ours:#?}"));
        ours.remove(at);
    }
    println!("{} of {} lines without labels, all alike", compared.count(), rows.len());
}

#[test]
fn a_fat_binary_is_listed_and_a_cubin_is_chosen() {
    for file in ["triple.lz4.fatbin", "triple.zstd.fatbin"] {
        let (code, list, _) = disasm(file, &[]);
        assert_eq!(code, Some(0));
        assert!(list.starts_with("fat binary, 3 images\n"), "{list}");
        let (code, chosen, _) = disasm(file, &["--arch", "sm_87"]);
        assert_eq!(code, Some(0));
        assert!(
            chosen.starts_with("cubin for sm_87, ") && chosen.contains("kernel triple(int*)\n"),
            "{chosen}"
        );
        let number = list.lines().find(|line| line.contains("sm_89") && line.contains("cubin"));
        let number = number.and_then(|line| line.split_whitespace().next()).expect("a number");
        let (_, chosen, _) = disasm(file, &["--index", number]);
        assert!(chosen.starts_with("cubin for sm_89, "), "{chosen}");
        let (_, json, _) = disasm(file, &["--json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["schema"], "nvdiag.fatbin/1");
        assert_eq!(json["images"].as_array().expect("images").len(), 3);
    }
}

#[test]
fn the_only_cubin_of_an_object_needs_no_choice() {
    let (code, text, _) = disasm("triple.o", &[]);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("cubin for sm_89, ") && text.contains("IMAD"), "{text}");
}

#[test]
fn names_are_demangled_and_documents_keep_both() {
    let arch = ["--arch", "sm_87"];
    let (_, raw, _) = disasm("triple.lz4.fatbin", &[&arch[..], &["--no-demangle"]].concat());
    assert!(raw.contains("kernel _Z6triplePi\n"), "{raw}");
    for spelled in ["_Z6triplePi", "triple(int*)", "triple"] {
        let (code, json, err) =
            disasm("triple.lz4.fatbin", &[&arch[..], &["--kernel", spelled, "--json"]].concat());
        assert_eq!(code, Some(0), "{spelled}: {err}");
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let kernel = &json["kernels"][0];
        assert_eq!((&kernel["name"], &kernel["demangled"]), (&"_Z6triplePi".into(), &"triple(int*)".into()));
    }
    let (_, list, _) = disasm("triple.lz4.fatbin", &["--json"]);
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let images = list["images"].as_array().expect("images");
    assert!(
        images
            .iter()
            .filter(|image| image["kind"] == "cubin")
            .all(|image| { image["kernels"][0] == "_Z6triplePi" && image["demangled"][0] == "triple(int*)" })
    );
    let (_, plain, _) = disasm("01_vecadd.sm_87.cubin", &["--json"]);
    let plain: Value = serde_json::from_str(&plain).expect("JSON");
    assert_eq!(plain["kernels"][0].get("demangled"), None, "a name that is not mangled");
}

#[test]
fn a_choice_that_leads_nowhere_says_what_there_is() {
    for (file, arguments, expected) in [
        ("triple.lz4.fatbin", ["--arch", "80"], "no cubin is for sm_80; there are: sm_"),
        ("triple.lz4.fatbin", ["--index", "4"], "there is no image 4; there are 3"),
        ("01_vecadd.sm_87.cubin", ["--index", "1"], "is no fat binary"),
    ] {
        let (code, _, error) = disasm(file, &arguments);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
