//! Files that anyone may have sent: small ones do not take much memory, whatever is in them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Address space of the reading process, in KiB (`RLIMIT_AS`), program and libraries included.
const ENOUGH: u32 = 512 << 10;

/// Runs `nvdiag` in a process that may not have more memory.
fn nvdiag(arguments: &[&str]) -> Output {
    let limited = format!("ulimit -v {ENOUGH} && exec \"$0\" \"$@\"");
    let program = assert_cmd::cargo::cargo_bin!("nvdiag");
    let mut command = Command::new("sh");
    command.args(["-c", &limited]).arg(program).args(arguments).env_remove("HCQ_DEVICE");
    command.output().expect("it starts")
}

/// `before`, then so many bytes of an array of zeros, then `after`.
fn zeros(before: &str, bytes: usize, after: &str) -> Vec<u8> {
    [before.as_bytes(), b"[0", &b",0".repeat(bytes / 2), b"]", after.as_bytes()].concat()
}

/// A file of a bring-up with these results.
fn bundle(path: &Path, results: &[u8]) {
    let mut file = Vec::new();
    nvdiag::archive::pack(&[("bringup.json", results.to_vec())], &mut file).expect("memory takes everything");
    fs::write(path, file).expect("written");
}

#[test]
fn a_report_of_a_bring_up_takes_no_more_memory_than_one_can_need() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bringup.tar.gz");
    let unknown = zeros(r#"{"schema":"nvdiag.bringup/2","x":"#, 60 << 20, "}");
    // A member that no step has is kept until the step has been read.
    let step = zeros(r#"{"schema":"nvdiag.bringup/2","steps":[{"x":"#, 3 << 20, "}]}");
    for (results, told) in [(unknown, "larger than"), (step, "more than 262144 values")] {
        bundle(&path, &results);
        assert!(fs::metadata(&path).expect("a file").len() < 100 << 10, "it is small");
        let run = nvdiag(&["bringup", "--read", &path.to_string_lossy()]);
        let why = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{told}: {why}");
        assert!(why.contains(told), "{told}: {why}");
    }
}

#[test]
fn maps_traces_and_saved_faults_take_no_more_memory_than_they_can_need() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, bytes).expect("written");
        path.to_string_lossy().into_owned()
    };
    let map = write("map.json", &zeros(r#"{"schema":"nvdiag.map/1","x":"#, 40 << 20, "}"));
    let huge = write("huge.json", &zeros("", 70 << 20, ""));
    let header = r#"{"schema":"nvdiag.trace/1","arch":"x86_64","command":[],"method":"ptrace"}"#;
    let log = write("log.jsonl", &zeros(&format!("{header}\n{{\"x\":"), 15 << 20, "}\n"));
    let entry = serde_json::to_vec(&nvdiag::saved::Entry::default()).expect("JSON");
    write("saved/000001/entry.json", &entry);
    write("saved/000001/report.txt", b"");
    write("saved/000001/report.json", &zeros("", 15 << 20, ""));
    let saved = folder.path().join("saved").to_string_lossy().into_owned();
    for (arguments, code, told) in [
        (vec!["vamap", "--diff", &map, &map], 2, "more than 4194304 values"),
        (vec!["vamap", &huge], 2, "larger than 64 MiB"),
        (vec!["esr", "--warp-esr", "0x10", "--map", &map], 2, "more than 4194304 values"),
        (vec!["trace", "--replay", &log], 1, "1 line is left out"),
        (vec!["show", "1", "--dir", &saved], 2, "more than 1048576 values"),
    ] {
        let run = nvdiag(&arguments);
        let why = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(code), "{arguments:?}: {why}");
        assert!(why.contains(told), "{arguments:?}: {why}");
    }
}

#[test]
fn a_packed_archive_is_unpacked_up_to_its_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bringup.tar.gz");
    // Another entry, of 256 MiB of zeros, in front of the results.
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(256 << 20);
    header.set_cksum();
    let zeros = std::io::Read::take(std::io::repeat(0), 256 << 20);
    archive.append_data(&mut header, "gpu.json", zeros).expect("memory takes everything");
    fs::write(&path, archive.into_inner().and_then(GzEncoder::finish).expect("it ends")).expect("written");
    let run = nvdiag(&["bringup", "--read", &path.to_string_lossy()]);
    let why = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(2), "{why}");
    assert!(why.contains("larger than"), "{why}");
}
