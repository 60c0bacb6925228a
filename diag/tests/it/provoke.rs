//! Every kind of provoked fault, end to end through the binary on the software ga10b; and the committed
//! kernels.

use std::path::Path;

use assert_cmd::Command;
use nvdiag::provoke::Kind;
use ptxgen::{Manifest, Ptxas, Target, sha256};
use serde_json::Value;

fn provoke(kind: Kind, extra: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    let output = command
        .args(["provoke", kind.name(), "--device", "sim"])
        .args(extra)
        .env_remove("HCQ_DEVICE")
        .output()
        .expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn every_kind_is_made_and_explained_on_the_software_ga10b() {
    for (kind, name, instruction) in [
        (Kind::Misaligned, "MISALIGNED_ADDR", "LDG.E.128"),
        (Kind::Oob, "invalid pte", "STG.E"),
        (Kind::Unmapped, "invalid pde", "LDG.E"),
        (Kind::IllegalInstruction, "ILLEGAL_INSTR_ENCODING", "0x00000000"),
        (Kind::Window, "INVALID_ADDR_SPACE", "LDG.E"),
        (Kind::Stack, "OOR_ADDR", "STL"),
        (Kind::Shared, "OOR_ADDR", "STS"),
        (Kind::Constant, "INVALID_CONST_ADDR_LDC", "LDC"),
        (Kind::Trap, "ILLEGAL_INSTR_ENCODING", "BPT.TRAP"),
        // Reported without the place.
        (Kind::Timeout, "SWITCH_TIMEOUT_HOST", ""),
    ] {
        let (code, out, err) = provoke(kind, &["--json"]);
        assert_eq!((code, err.as_str()), (0, ""), "{kind}: {out}");
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!(document["schema"], "nvdiag.provoke/1");
        assert_eq!(document["as_meant"], true, "{kind}: {out}");
        let fault = &document["fault"];
        assert_eq!(fault["what"]["name"], name, "{kind}");
        assert!(fault["causes"].as_array().is_some_and(|c| !c.is_empty()), "{kind}");
        if !instruction.is_empty() {
            let code = &fault["code"][0];
            assert_eq!(code["function"], kind.kernel(), "{kind}");
            let listing = code["listing"].as_array().expect("a listing");
            let here = listing.iter().find(|l| l["here"] == true).expect("the instruction");
            assert!(here["text"].as_str().is_some_and(|t| t.starts_with(instruction)), "{kind}: {here}");
        }
        match kind {
            Kind::Window => {
                assert_eq!(fault["window_trap"]["certain"], true);
                assert_eq!(fault["window_trap"]["window"], "shared memory");
            }
            Kind::Oob => assert_eq!(fault["access"]["distance_bytes"], 1),
            _ => assert!(fault["window_trap"].is_null(), "{kind}"),
        }
    }
}

#[test]
fn the_kernels_run_on_every_sm() {
    for arch in ["sm_80", "sm_86", "sm_89", "sm_90"] {
        for kind in [Kind::Misaligned, Kind::IllegalInstruction] {
            let output = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
                .args(["provoke", kind.name(), "--device", "sim", "--json"])
                .env("NVGPU_SIM_ARCH", arch)
                .output()
                .expect("the binary starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            let document: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{kind} on {arch}: {error}: {errors}"));
            assert_eq!(document["as_meant"], true, "{kind} on {arch}: {document}");
        }
    }
}

#[test]
fn the_report_reads_as_text_and_kinds_are_listed() {
    let (code, out, _) = provoke(Kind::Window, &[]);
    assert_eq!(code, 0);
    assert!(out.contains("memory-window trap: "), "{out}");
    assert!(out.contains("-->"), "{out}");
    let list = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
        .args(["provoke", "--list"])
        .output()
        .expect("the binary starts");
    let list = String::from_utf8(list.stdout).expect("UTF-8");
    assert!(Kind::ALL.iter().all(|kind| list.contains(kind.name())), "{list}");
}

/// A program that is run with HCQ_MAP_DIR leaves what `nvdiag esr --map` names its code and buffers by.
#[test]
fn a_process_leaves_a_map_of_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
        .args(["provoke", "window", "--device", "sim", "--json"])
        .env("HCQ_MAP_DIR", folder.path())
        .output()
        .expect("the binary starts");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let pc = document["fault"]["sms"][0]["pc"].as_str().expect("a pc").to_owned();
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).expect("the folder").flatten().map(|e| e.path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let esr = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
        .args(["esr", "--json", "--warp-esr", "0x10", "--pc", &pc, "--map"])
        .arg(&files[0])
        .output()
        .expect("the binary starts");
    assert_eq!(esr.status.code(), Some(1), "{}", String::from_utf8_lossy(&esr.stderr));
    let document: Value = serde_json::from_slice(&esr.stdout).expect("one JSON document");
    let fault = &document["faults"][0];
    assert_eq!(fault["code"][0]["function"], "load");
    assert_eq!(fault["window_trap"]["certain"], true);
    assert_eq!(fault["window_trap"]["mapping"]["va"], "0xfe00200000");
}

/// The kernels are those of the PTX files; with a ptxas of the manifest's version they are compiled anew.
#[test]
fn the_committed_kernels_are_those_of_the_source() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let manifest = Manifest::read(&dir).expect("a manifest");
    let ptxas = Ptxas::find().ok().filter(|p| p.version() == manifest.ptxas);
    if ptxas.is_none() {
        ga10b_oracles::missing("ptxas", format_args!("version {} is not found", manifest.ptxas));
    }
    assert_eq!(manifest.cubins.len(), 6);
    for cubin in &manifest.cubins {
        let module = cubin.file.split('.').next().expect("a name");
        let ptx = std::fs::read_to_string(dir.join(module).with_extension("ptx")).expect("the source");
        let bytes = std::fs::read(dir.join(&cubin.file)).expect("the cubin");
        assert_eq!(sha256(ptx.as_bytes()), cubin.ptx_sha256, "{}", cubin.file);
        assert_eq!(sha256(&bytes), cubin.cubin_sha256, "{}", cubin.file);
        if let Some(ptxas) = &ptxas {
            let target = Target::ALL.into_iter().find(|t| t.name() == cubin.target);
            let fresh = ptxas.compile(&ptx, target.expect("a target")).expect("it compiles");
            assert!(fresh == bytes, "{} differs from what ptxas makes of the source", cubin.file);
        }
    }
}
