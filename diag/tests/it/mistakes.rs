//! Mistakes of users at two in the morning: wrong files, empty ones, packed ones, logs from other tools. Each
//! gets an answer that names the file and the remedy, and the documented exit code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A fault as nvgpu prints it.
const LINES: [&str; 5] = [
    "nvgpu: 17000000.gpu nvgpu_gr_intr_handle_sm_exception:365  [ERR]  sm machine check err. gpc_id(0), tpc_id(0), offset(0)",
    "nvgpu: 17000000.gpu gv11b_gr_intr_record_sm_error_state:1949 [ERR]  sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), \
     hww_global_esr 4,hww_warp_esr 15, hww_warp_esr_pc 0xff55a2a830",
    "nvgpu: 17000000.gpu nvgpu_gr_intr_handle_sm_exception:377  [ERR]  sm hww global 0x00000004 warp 0x0000000f",
    "nvgpu: 17000000.gpu gr_intr_handle_exception_interrupts:759  [ERR]  set gr exception notifier",
    "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 13 for ch 507 owned by python3",
];

fn nvdiag(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    let run = command.args(arguments).env_remove("HCQ_DEVICE").output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (run.status.code().expect("no signal"), text(run.stdout), text(run.stderr))
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A folder of files to be wrong about.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn put(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("written");
        path.to_string_lossy().into_owned()
    }
}

/// Code 2, nothing on stdout, and a message that names the file and holds the words.
fn refused(arguments: &[&str], words: &[&str]) {
    let (code, out, err) = nvdiag(arguments);
    assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
    assert!(err.starts_with("nvdiag: "), "{arguments:?}: {err}");
    for word in words {
        assert!(err.contains(word), "{arguments:?} does not say {word:?}: {err}");
    }
}

/// A way in which a tool shows a line of the log.
type Dress = fn(usize, &str) -> String;

#[test]
fn a_fault_is_found_whatever_tool_saved_the_log() {
    let dresses: [(&str, Dress); 12] = [
        ("plain dmesg", |i, line| format!("[  812.00410{i}] {line}\n")),
        ("on Windows", |i, line| format!("[  812.00410{i}] {line}\r\n")),
        ("dmesg -T", |_, line| format!("[Sat Nov 21 16:42:53 2026] {line}\n")),
        ("dmesg -x", |i, line| format!("kern  :err   : [  812.00410{i}] {line}\n")),
        ("dmesg -e", |i, line| match i {
            0 => format!("[Nov21 16:42] {line}\n"),
            _ => format!("[  +0.00001{i}] {line}\n"),
        }),
        ("dmesg --time-format iso", |i, line| format!("2026-11-21T16:42:53,00410{i}+00:00 {line}\n")),
        ("journalctl -k", |_, line| format!("Nov 21 16:42:53 tegra-ubuntu kernel: {line}\n")),
        ("journalctl -o short-iso", |_, line| {
            format!("2026-11-21T16:42:53+0000 tegra-ubuntu kernel: {line}\n")
        }),
        ("syslog", |i, line| format!("Nov 21 16:42:53 tegra-ubuntu kernel: [  812.00410{i}] {line}\n")),
        ("rsyslog", |i, line| {
            format!("2026-11-21T16:42:53.00410{i}+00:00 tegra kernel: [  812.00410{i}] {line}\n")
        }),
        ("/dev/kmsg", |i, line| format!("3,123{i},81200410{i},-;{line}\n")),
        ("a serial console", |i, line| format!("<3>[  812.00410{i}] {line}\r\n")),
    ];
    let files = Files::new();
    for (tool, dress) in dresses {
        let log: String = LINES.iter().enumerate().map(|(i, line)| dress(i, line)).collect();
        let (code, out, err) = nvdiag(&["esr", "--json", "--log", &files.put("log", log.as_bytes())]);
        assert_eq!((code, err.as_str()), (1, ""), "{tool}");
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!(document["found"], 1, "{tool}: {document}");
        let fault = &document["faults"][0];
        assert_eq!(fault["what"]["name"], "MISALIGNED_ADDR", "{tool}");
        assert_eq!(fault["evidence"].as_array().map(Vec::len), Some(5), "{tool}: {fault}");
        assert_eq!(document["unknown_found"], 0, "{tool}: {document}");
        assert!(!out.contains("\\r"), "{tool}: ends of lines are no text");
    }
}

#[test]
fn packed_logs_are_unpacked_or_the_tool_is_named() {
    let files = Files::new();
    let log = LINES.map(|line| format!("{line}\n")).concat();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(log.as_bytes()).expect("memory takes all");
    let packed = packed.finish().expect("packed");
    // Logs that are appended to while packed have several members.
    let twice = [&packed[..], &packed[..]].concat();
    let (code, out, _) = nvdiag(&["esr", "--json", "--log", &files.put("kern.log.2.gz", &twice)]);
    let document: Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!((code, &document["lines"]), (1, &Value::from(10)));
    let cut = files.put("cut.gz", &packed[..packed.len() / 2]);
    let (code, _, err) = nvdiag(&["esr", "--log", &cut]);
    assert!(code == 1 && err.contains("cut.gz is cut off"), "{code} {err}");
    let head = files.put("head.gz", &packed[..12]);
    refused(&["esr", "--log", &head], &["head.gz"]);
    for (start, tool) in [
        (&b"\xfd7zXZ\0\0\x04"[..], "xzcat"),
        (b"\x28\xb5\x2f\xfd\x24\0\0\0", "zstdcat"),
        (b"BZh91AY&", "bzcat"),
        (b"LPKSHHRH\0\0", "journalctl"),
        (b"\xff\xfe[\0 \0", "iconv"),
    ] {
        refused(&["esr", "--log", &files.put("log", start)], &["log", tool, "nvdiag esr --log -"]);
    }
}

#[test]
fn logs_that_are_none_are_told() {
    let files = Files::new();
    refused(&["esr", "--log", "/no/such/log"], &["/no/such/log", "No such file"]);
    refused(&["esr", "--log", "/"], &["/", "directory"]);
    refused(&["esr", "--log", &files.put("empty", b"")], &["empty is empty"]);
    assert_eq!(nvdiag(&["esr", &files.put("blank", b"\n")]).0, 0);
    for document in ["{}", "[]", "[null]", "null", "\"\"", ""] {
        let map = files.put("map", document.as_bytes());
        refused(&["vamap", "--map", &map], &["map", "nvdiag.map/1"]);
        refused(&["esr", "--warp-esr", "f", "--map", &map], &["map", "nvdiag.map/1"]);
        refused(&["trace", "--replay", &map], &["header of a trace"]);
        refused(&["bringup", "--read", &map], &["no tar.gz"]);
    }
    refused(
        &["esr", "--map", &files.put("map", b"not a map"), "--warp-esr", "f"],
        &["map", "nvdiag vamap --json"],
    );
    refused(
        &["esr", "--map", &files.put("map", b"{\"schema\": \"nvdiag.esr/1\"}"), "--warp-esr", "f"],
        &["nvdiag.esr/1"],
    );
}

#[test]
fn files_that_are_no_cubins_are_named_for_what_they_are() {
    let files = Files::new();
    let ptx = files.put("k.ptx", b"//\n.version 8.5\n.target sm_87\n.address_size 64\n");
    let ours = assert_cmd::cargo::cargo_bin!("nvdiag").to_string_lossy().into_owned();
    let mut other = std::fs::read(data("12_local_stack.sm_87.cubin")).expect("readable");
    // The SM number is the low byte of e_flags, at 48.
    assert_eq!(other[48], 87);
    other[48] = 75;
    let other = files.put("other.cubin", &other);
    for (file, words) in [
        ("/no/such.cubin", &["No such file"][..]),
        (&files.put("empty.cubin", b""), &["an empty file"]),
        (&ptx, &["PTX text", "ptxas -arch=sm_87"]),
        (&files.put("k.sh", b"#!/bin/sh\n"), &["not a readable ELF object"]),
        (&other, &["sm_75", "sm_87"]),
    ] {
        refused(&["disasm", file], &[&[file], words].concat());
        refused(&["esr", "--warp-esr", "f", "--cubin", file], &[&[file], words].concat());
    }
    // Fat binaries and programs are read by `disasm`, which reports their defects. `esr` takes cubins.
    let fat = files.put("k.fatbin", b"\x50\xed\x55\xba\x01\x00\x10\x00");
    refused(&["disasm", &fat], &[&fat, "a fatbin ends past the end"]);
    refused(&["esr", "--warp-esr", "f", "--cubin", &fat], &[&fat, "a fatbin", "cuobjdump"]);
    refused(&["disasm", &ours], &[&ours, "a program without device code", ".nv_fatbin"]);
    refused(&["esr", "--warp-esr", "f", "--cubin", &ours], &[&ours, "machine", "190"]);
    let cubin = data("12_local_stack.sm_87.cubin").to_string_lossy().into_owned();
    refused(&["disasm", &cubin, "--kernel", "mian"], &["no kernel \"mian\"; there are: "]);
}

#[test]
fn a_cubin_for_another_gpu_is_not_believed() {
    let files = Files::new();
    let log = files.put("log", LINES.map(|line| format!("{line}\n")).concat().as_bytes());
    let cubin = data("01_vecadd.sm_90.cubin").to_string_lossy().into_owned();
    let (code, out, _) = nvdiag(&["esr", "--log", &log, "--cubin", &cubin]);
    assert_eq!(code, 1);
    assert!(out.contains("is for sm_90, which a Jetson Orin (sm_87) does not run"), "{out}");
    let cubin = data("12_local_stack.sm_87.cubin").to_string_lossy().into_owned();
    let (_, out, _) = nvdiag(&["esr", "--log", &log, "--cubin", &cubin]);
    assert!(!out.contains("does not run"), "{out}");
}

#[test]
fn a_wrong_base_is_not_believed() {
    let cubin = data("12_local_stack.sm_87.cubin").to_string_lossy().into_owned();
    let at = |base: &str| {
        let cubin = format!("{cubin}:local_array@{base}");
        let (code, out, _) =
            nvdiag(&["esr", "--json", "--warp-esr", "0xf", "--pc", "0x1000001480", "--cubin", &cubin]);
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!(code, 1);
        document["faults"][0]["code"].as_array().expect("code").clone()
    };
    // There the pc is at an instruction that accesses no memory.
    let code = at("0x1000001400");
    assert_eq!((&code[0]["doubtful"], &code[0]["certain"]), (&Value::from(true), &Value::from(false)));
    assert!(code.len() > 1, "{code:?}");
    for guess in &code[1..] {
        assert_eq!(guess["certain"], false);
        let again = at(guess["base"].as_str().expect("an address"));
        assert_eq!(again.len(), 1, "{again:?}");
        assert_eq!((&again[0]["certain"], &again[0]["offset"]), (&Value::from(true), &guess["offset"]));
        assert_eq!(again[0]["doubtful"], Value::Null);
    }
    // Outside of the program the same is offered.
    let outside = at("0x2000000000");
    assert_eq!(outside[..code.len() - 1], code[1..]);
    let argument = format!("{cubin}:local_array@0x1000001400");
    let (_, out, _) = nvdiag(&["esr", "--warp-esr", "0xf", "--pc", "0x1000001480", "--cubin", &argument]);
    assert!(out.contains("it cannot raise this error: the base given is doubtful"), "{out}");
}

#[test]
fn the_software_gpus_own_line_names_instruction_and_threads() {
    let line = "ga10b: warp error 0x0f at pc 0xff55a2a830, block [3, 0, 1], warp 2, lanes 0x0000000f: LDG.E.128 R8, [R2.64]";
    let files = Files::new();
    let driver = LINES[1..].iter().map(|line| format!("[  812.004100] {line}"));
    let log = [line.to_owned()].into_iter().chain(driver).collect::<Vec<_>>().join("\n");
    for (log, evidence) in [(log.as_str(), 5), (line, 1)] {
        let path = files.put("log", log.as_bytes());
        let (code, out, _) = nvdiag(&["esr", "--json", "--log", &path]);
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!((code, &document["found"]), (1, &Value::from(1)), "{document}");
        let fault = &document["faults"][0];
        assert_eq!(fault["what"]["name"], "MISALIGNED_ADDR");
        assert_eq!(fault["evidence"].as_array().map(Vec::len), Some(evidence));
        assert_eq!(fault["time_us"].as_u64(), (evidence > 1).then_some(812_004_100));
        assert_eq!(fault["code"][0]["listing"][0]["text"], "LDG.E.128 R8, [R2.64]");
        let notes = fault["notes"].to_string();
        assert!(notes.contains("4 threads of warp 2 of block (3, 0, 1), lanes 0x0000000f"), "{notes}");
        assert!(!notes.contains("does not run"), "{notes}");
        assert!(fault["causes"][0].as_str().is_some_and(|c| c.contains("multiple of 16")), "{fault}");
    }
}

#[test]
fn a_host_pointer_is_called_one() {
    let files = Files::new();
    let fault = |address: &str, engine: u32, client: &str| {
        let log = format!(
            "nvgpu: 17000000.gpu f:1 [ERR]  [MMU FAULT] mmu engine id:  {engine}, ch id:  507, fault addr: {address}, \
             fault addr aperture: 0, fault type: invalid pte, access type: virt read, \n\
             nvgpu: 17000000.gpu f:1 [ERR]  [MMU FAULT] protected mode: 0, client type: hub, client id:  {client}, \
             gpc id if client type is gpc: 0, \n"
        );
        files.put("log", log.as_bytes())
    };
    let first_cause = |arguments: &[&str]| {
        let (code, out, _) = nvdiag(&[&["esr", "--json"], arguments].concat());
        let document: Value = serde_json::from_str(&out).expect("one JSON document");
        assert_eq!(code, 1, "{document}");
        document["faults"][0]["causes"][0].as_str().expect("a cause").to_owned()
    };
    let map = files.put(
        "map",
        br#"{"schema": "nvdiag.vamap/1", "mappings": [{"va": "0x1000000000", "size_bytes": 4096}],
             "host": [{"name": "[heap]", "start": "0x3000000000", "end": "0x3000100000"}]}"#,
    );
    let log = fault("0x3000001000", 15, "ce0");
    let cause = first_cause(&["--log", &log, "--map", &map]);
    assert!(cause.starts_with("a host pointer was given to the copy engine: "), "{cause}");
    assert!(cause.contains("[heap] at 0x3000000000..0x3000100000"), "{cause}");
    let (_, out, _) = nvdiag(&["esr", "--log", &log, "--map", &map]);
    assert!(out.contains("is a host address, in the process's own [heap]"), "{out}");
    // Without a map the address alone decides.
    let cause = first_cause(&["--log", &fault("0xffff8c001000", 15, "ce0")]);
    assert!(cause.starts_with("a host pointer was given to the copy engine: "), "{cause}");
    let cause = first_cause(&["--log", &fault("0xff00001000", 15, "ce0")]);
    assert!(!cause.contains("host pointer"), "{cause}");
}

#[test]
fn dumps_that_are_none_are_told() {
    let files = Files::new();
    let text = files.put("dump.txt", &b"not a dump at all\n".repeat(100));
    for (arguments, words) in [
        (&["vamap", "--dump", "/no/such/dump"][..], &["No such file"][..]),
        (&["vamap", "--dump", &files.put("empty", b"")], &["empty"]),
        (&["vamap", "--dump", &text], &["LiME"]),
        (&["qmd", &files.put("short", &[0; 16])], &["short"]),
        (&["qmd", &files.put("none", b"")], &["none"]),
        (&["pushbuf", &files.put("none", b"")], &["nothing to decode"]),
        (&["vamap", "--dump", "/"], &["/"]),
    ] {
        refused(arguments, words);
    }
}

#[test]
fn files_of_others_are_told_from_files_that_are_not_there() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let path = files.put("secret", b"x");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("ours");
    if std::fs::read(&path).is_ok() {
        ga10b_oracles::skipped("nothing is forbidden to this user");
        return;
    }
    for command in
        [&["esr", "--log", &path][..], &["disasm", &path], &["qmd", &path], &["vamap", "--dump", &path]]
    {
        refused(command, &["secret", "Permission denied"]);
    }
}

#[test]
fn a_number_below_the_least_is_refused_as_one() {
    for (arguments, option) in [
        (&["provoke", "oob", "--deadline", "-1"][..], "--deadline"),
        (&["esr", "--last", "-1"], "--last"),
        (&["trace", "--pid", "-1"], "--pid"),
        (&["esr", "--pid", "-1"], "--pid"),
        (&["vamap", "--pid", "-1"], "--pid"),
        (&["qmd", "x", "--offset", "-1"], "--offset"),
    ] {
        let (code, _, err) = nvdiag(arguments);
        assert!(code == 2 && err.contains("invalid value '-1'") && err.contains(option), "{err}");
        let says_least = err.contains("a process's number, 1 or more, is expected");
        assert_eq!(says_least, option == "--pid", "{err}");
    }
    refused_by_the_parser(&["esr", "--pid", "0"], &["a process's number, 1 or more, is expected"]);
}

/// Code 2, and a message of the command line's parser that holds the words.
fn refused_by_the_parser(arguments: &[&str], words: &[&str]) {
    let (code, _, err) = nvdiag(arguments);
    assert_eq!(code, 2, "{arguments:?}: {err}");
    assert!(
        err.starts_with("error: ") && words.iter().all(|word| err.contains(word)),
        "{arguments:?}: {err}"
    );
}

#[test]
fn a_tip_names_no_option_that_the_help_does_not() {
    for option in ["--step", "--cell", "--figures", "--step-her"] {
        let (code, _, err) = nvdiag(&["bringup", option, "1"]);
        assert!(code == 2 && err.contains("unexpected argument"), "{err}");
        assert!(!err.contains("-here") && !err.contains("tip"), "{err}");
    }
    refused_by_the_parser(&["bringup", "--bisekt"], &["a similar argument exists: '--bisect'"]);
}

#[test]
fn a_file_of_another_kind_is_not_overwritten() {
    let files = Files::new();
    let map = data("maps/app.json").to_string_lossy().into_owned();
    let (own, empty) = (files.put("thesis.tex", b"\\documentclass"), files.put("empty.svg", b""));
    refused(&["vamap", &map, "--svg", &own], &["thesis.tex is there", "another name"]);
    refused(&["esr", "--warp-esr", "f", "--html", &own], &["thesis.tex is there"]);
    refused(&["trace", "--log", &own, "--", "true"], &["thesis.tex is there"]);
    refused(&["bringup", "--device", "sim", "--bisect", "--profile", &own], &["thesis.tex is there"]);
    assert_eq!(std::fs::read(&own).expect("kept"), b"\\documentclass");
    // The same command again writes its own file anew.
    for _ in 0..2 {
        // Its mapping lies in a window.
        assert_eq!(nvdiag(&["vamap", &map, "--svg", &empty]).0, 1);
        let log = files.0.path().join("calls.jsonl").to_string_lossy().into_owned();
        assert_eq!(nvdiag(&["trace", "--log", &log, "--", "true"]).0, 0);
    }
}
