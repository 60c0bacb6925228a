//! `nvdiag esr` as people call it: registers typed by hand, logs as other tools store them, maps of another
//! process, floods of one fault.

use std::process::{Command, Stdio};

use serde_json::Value;

fn nvdiag(arguments: &[&str], input: &str) -> (i32, String, String) {
    use std::io::Write;
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(arguments).env_remove("HCQ_DEVICE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    // It may refuse its arguments before it reads.
    match child.stdin.take().expect("a pipe").write_all(input.as_bytes()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.expect("read"),
    }
    let run = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (run.status.code().expect("no signal"), text(run.stdout), text(run.stderr))
}

/// The document that `esr --json` prints, of a problem.
fn document(arguments: &[&str], input: &str) -> Value {
    let (code, out, err) = nvdiag(&[&["esr", "--json"], arguments].concat(), input);
    assert_eq!(code, 1, "{arguments:?} {input}: {out}{err}");
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn a_register_without_0x_is_the_decimal_that_the_driver_prints() {
    for (typed, name, notes) in [
        ("16", "INVALID_ADDR_SPACE", &["0x10", "STACK_OVERFLOW", "--warp-esr 0x16"][..]),
        ("0x16", "STACK_OVERFLOW", &[]),
        ("15", "MISALIGNED_ADDR", &["WARP_EXIT"]),
        ("f", "MISALIGNED_ADDR", &[]),
        ("-2011299817", "MMU_FAULT", &[]),
    ] {
        let list = document(&["--warp-esr", typed], "");
        let fault = &list["faults"][0];
        assert_eq!(fault["what"]["name"], name, "{typed}");
        let said = fault["notes"].to_string();
        assert_eq!(fault["notes"] == Value::Array(Vec::new()), notes.is_empty(), "{typed}: {said}");
        for word in notes {
            assert!(said.contains(word), "{typed} does not say {word}: {said}");
        }
    }
    let list = document(&["--warp-esr", "0x0", "--global-esr", "-2147483648"], "");
    assert_eq!(list["faults"][0]["sms"][0]["global_esr"]["bits"][0], "TIMEOUT_ERROR");
}

/// A file beside the test.
fn file(folder: &tempfile::TempDir, name: &str, content: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("written");
    path.to_string_lossy().into_owned()
}

/// A map whose one buffer holds the address of [`XID`].
fn map_of(pid: u32) -> String {
    format!(
        r#"{{"schema": "nvdiag.map/1", "process": {{"pid": {pid}}},
            "mappings": [{{"what": "weights", "va": "0x729501400000", "size_bytes": 4096}}]}}"#
    )
}

const XID: &str = "NVRM: Xid (PCI:0000:c1:00): 31, pid=6734, name=app, channel 0x00000005, intr 00000000. MMU Fault: ENGINE GRAPHICS \
                   GPC1 GPCCLIENT_T1_6 faulted @ 0x7295_01400000. Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_WRITE\n";

#[test]
fn the_map_of_another_process_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, other) =
        (file(&folder, "own", map_of(6734).as_bytes()), file(&folder, "other", map_of(99).as_bytes()));
    let fault = |map: &str| document(&["--log", "-", "--map", map], XID)["faults"][0].clone();
    assert_eq!(fault(&own)["access"]["mapping"]["what"], "weights");
    let stranger = fault(&other);
    assert_eq!(stranger["access"], Value::Null);
    let notes = stranger["notes"].to_string();
    assert!(notes.contains("process 99") && notes.contains("process 6734"), "{notes}");
    let (code, out, err) = nvdiag(&["esr", "--log", "-", "--map", &own, "--map", &other], XID);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("process 99") && err.contains("process 6734"), "{err}");
    let (code, _, err) = nvdiag(&["esr", "--pid", "1", "--map", &other], "");
    assert_eq!(code, 2);
    assert!(err.contains("process 99, not of process 1"), "{err}");
}

#[test]
fn a_guess_is_an_instruction_that_can_raise_the_error() {
    let cubin = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/provoke.sm_87.cubin");
    let guesses = |code: &str, pc: &str| {
        let list = document(&["--warp-esr", code, "--pc", pc, "--cubin", cubin], "");
        let code = list["faults"][0]["code"].as_array().expect("a list").clone();
        let text = |c: &Value| c["listing"][0]["text"].as_str().expect("a text").to_owned();
        code.iter().map(text).collect::<Vec<_>>()
    };
    let (mut offered, mut any) = (0, 0);
    for offset in (0..128).step_by(16) {
        let pc = format!("0x7295000{offset:05x}");
        let loads = guesses("0xf", &pc);
        for text in &loads {
            let is_access = ["LD", "ST", "ATOM", "RED", "TEX", "SU"].iter().any(|name| text.contains(name));
            assert!(is_access, "{pc}: {text} accesses nothing");
        }
        offered += loads.len();
        any += guesses("0x9", &pc).len();
    }
    assert!(offered > 0 && any > offered, "{offered} of {any}");
}

/// A fault of `channel`, a second after the one before.
fn fault_of(second: usize, channel: usize) -> String {
    let line = |message: &str| format!("[{second:5}.000100] nvgpu: 17000000.gpu f:1 [ERR]  {message}\n");
    let state = |sm: u32, warp: u32| {
        format!(
            "sm err state gpc_id(0), tpc_id(0), offset({}), sm_id({sm}), hww_global_esr 0,hww_warp_esr {warp}, \
             hww_warp_esr_pc 0xff55a2a830",
            sm * 128
        )
    };
    line(&state(0, 0))
        + &line(&state(1, 15))
        + &line(&format!("error notifier set to 13 for ch {channel} owned by app"))
}

#[test]
fn equal_faults_are_one_report_with_count_times_and_channels() {
    let log: String = (0..500).map(|i| fault_of(1 + i, 505 + i % 3)).collect();
    let (code, out, _) = nvdiag(&["esr", "--log", "-"], &log);
    assert_eq!(code, 1);
    let first = out.lines().next().expect("a line");
    assert!(first.ends_with("[app] on 17000000.gpu at 1.000100 s"), "{first}");
    assert!(out.contains("500 times, from 1.000100 s to 500.000100 s, channels 505 to 507\n"), "{out}");
    assert!(!out.contains("earlier faults") && !out.contains("fault 1 of"), "{out}");
    let list = document(&["--log", "-"], &log);
    assert_eq!((&list["found"], list["faults"].as_array().map(Vec::len)), (&Value::from(500), Some(1)));
    let repeats = &list["faults"][0]["repeats"];
    assert_eq!((&repeats["count"], &repeats["last_time_us"]), (&Value::from(500), &Value::from(500_000_100)));
    // Another process is another fault.
    let both = fault_of(1, 505) + &fault_of(3, 506).replace("app", "other") + &fault_of(5, 505);
    let list = document(&["--log", "-"], &both);
    let counts: Vec<_> =
        list["faults"].as_array().expect("faults").iter().map(|f| &f["repeats"]["count"]).collect();
    assert_eq!(counts, [2, 1]);
}

#[test]
fn the_sm_that_failed_is_first_and_the_others_are_folded() {
    let list = document(&["--log", "-"], &fault_of(1, 505));
    let sms = &list["faults"][0]["sms"];
    assert_eq!((&sms[0]["sm_id"], &sms[1]["sm_id"]), (&Value::from(1), &Value::from(0)));
    let (_, out, _) = nvdiag(&["esr", "--log", "-"], &fault_of(1, 505));
    assert_eq!(out.matches("SM number").count(), 1, "{out}");
    assert!(out.contains("and 1 SM only stopped"), "{out}");
}

#[test]
fn the_exit_code_does_not_depend_on_who_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = file(&folder, "fault.log", fault_of(1, 505).as_bytes());
    let clean = file(&folder, "clean.log", b"[    1.000000] usb 1-1: new device\n");
    let code = |log: &str, json: bool, out: Stdio| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        command.args(["esr", "--log", log]).args(json.then_some("--json"));
        let run = command.stdout(out).stderr(Stdio::null()).status().expect("the binary starts");
        run.code().expect("no signal")
    };
    for json in [false, true] {
        for (log, expected) in [(&log, 1), (&clean, 0)] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            assert_eq!(code(log, json, writer.into()), expected, "nobody reads, json {json}");
        }
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        assert_eq!(code(&log, json, full.into()), 2, "no space, json {json}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_bad_usage() {
    let (code, out, err) = nvdiag(&["doctor", "--root", "/nonexistent"], "");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("/nonexistent"), "{err}");
}

#[test]
fn one_line_is_not_lines() {
    let dump = "[    1.000200] __ga10b__ Channel Status - chip ga10b\n";
    let (_, out, _) = nvdiag(&["esr", "--log", "-"], &(fault_of(1, 505) + dump));
    assert!(out.contains("and 1 line of the dump"), "{out}");
}

#[test]
fn an_address_that_nvgpu_does_not_give_out_is_called_a_host_pointer() {
    let fault = |address: &str| {
        let log = format!(
            "[   60.0] nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:294  [ERR]  [MMU FAULT] mmu engine id:  15, \
             ch id:  510, fault addr: {address}, fault addr aperture: 0, fault type: invalid pde, access type: \
             virt read, \n\
             [   60.0] nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:307  [ERR]  [MMU FAULT] protected mode: 0, \
             client type: hub, client id:  ce0, gpc id if client type is gpc: 0, \n"
        );
        document(&["--log", "-"], &log)["faults"][0]["causes"].to_string()
    };
    for address in ["0x7fc22b1d6000", "0xffff8c210000"] {
        assert!(fault(address).contains("a host pointer"), "{address}: {}", fault(address));
    }
    assert!(!fault("0xffffdff000").contains("host pointer"));
}

#[test]
fn a_fault_is_drawn_into_the_map_and_written_as_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let map = file(&folder, "map", map_of(6734).as_bytes());
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (svg, html) = (path("a.svg"), path("a.html"));
    let plain = nvdiag(&["esr", "--log", "-", "--map", &map], XID);
    let drawn = nvdiag(&["esr", "--log", "-", "--map", &map, "--svg", &svg, "--html", &html], XID);
    assert_eq!(plain, drawn, "what is printed does not depend on the files");
    let read = |path: &str| std::fs::read_to_string(path).expect("written");
    assert!(read(&svg).contains("fault at 0x729501400000") && read(&svg).contains("weights"));
    assert!(read(&html).contains("<svg ") && read(&html).contains("FAULT_PTE"));
    let (code, out, err) = nvdiag(&["esr", "--log", "-", "--svg", &svg], XID);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("--map"), "{err}");
    let (code, _, err) = nvdiag(&["esr", "--log", "-", "--html", "/nonexistent/a.html"], XID);
    assert_eq!(code, 2);
    assert!(err.contains("/nonexistent/a.html"), "{err}");
}

#[test]
fn maps_that_were_saved_are_shown_and_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = file(&folder, "before", map_of(6734).as_bytes());
    let after = file(&folder, "after", map_of(6734).replace("weights", "cache").as_bytes());
    let (code, out, _) = nvdiag(&["vamap", "--map", &before], "");
    assert_eq!(code, 0);
    assert!(out.contains("0x729501400000") && out.contains("weights"), "{out}");
    let (code, out, _) = nvdiag(&["vamap", "--diff", &before, &before], "");
    assert_eq!(code, 0, "{out}");
    let (code, out, _) = nvdiag(&["vamap", "--diff", &before, &after, "--json"], "");
    assert_eq!(code, 1);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(document["schema"], "nvdiag.vamap-diff/1");
    assert_eq!(document["changes"][0]["how"], "changed");
    assert_eq!(document["changes"][0]["name"], serde_json::json!(["weights", "cache"]));
    let (code, _, err) = nvdiag(&["vamap", "--diff", &before, "/nonexistent"], "");
    assert_eq!(code, 2);
    assert!(err.contains("/nonexistent"), "{err}");
}

#[test]
fn notices_that_were_cut_are_counted_and_numbers_that_no_driver_prints_are_not_explained() {
    let notice = |of: &str| format!("nvgpu: 17000000.gpu f:1  [ERR]  error notifier set to {of}\n");
    for cut in ["13 for ch 507", "13 for ch 507 owned by app"] {
        let list = document(&["--log", "-"], &notice(cut).repeat(2000));
        assert_eq!((&list["lines"], &list["found"]), (&2000.into(), &2000.into()), "{cut}");
        assert_eq!(list["faults"][0]["repeats"]["count"], 2000, "{cut}");
        assert_eq!(list["faults"][0]["evidence"].as_array().map(Vec::len), Some(1), "{cut}");
    }
    let list = document(
        &["--log", "-"],
        &[notice("-13 for ch 507 owned by a"), notice("31 for ch -5 owned by b")].concat(),
    );
    assert_eq!((&list["found"], &list["messages"][0]["count"]), (&0.into(), &2.into()), "{list}");
    // The line was cut off before the code, the channel and its owner.
    let (_, out, _) = nvdiag(&["esr", "--log", "-"], &notice("13").replace("to 13", "to"));
    assert!(!out.contains("\n  who           \n"), "{out}");
}

#[test]
fn a_device_is_no_log() {
    let (code, out, err) = nvdiag(&["esr", "--log", "/dev/zero"], "");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("/dev/zero is a device, which may have no end"), "{err}");
}

#[test]
fn a_log_is_an_argument_or_what_is_piped_in_and_an_empty_one_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = file(&folder, "fault.log", fault_of(1, 505).as_bytes());
    let read = nvdiag(&["esr", "--log", &log], "");
    assert_eq!((read.0, &nvdiag(&["esr", &log], "")), (1, &read));
    assert_eq!(document(&[], &fault_of(1, 505))["found"], 1);
    for empty in [&["esr"][..], &["esr", "-"], &["esr", "--log", "-", "--json"]] {
        let (code, out, err) = nvdiag(empty, "");
        assert_eq!((code, out.as_str(), err.contains("stdin is empty")), (2, "", true), "{err}");
    }
    assert_eq!(nvdiag(&["esr", &log, "--log", &log], "").0, 2);
}

#[test]
fn an_option_that_is_none_is_not_taken_for_the_program() {
    let (code, out, err) = nvdiag(&["trace", "--all-calls", "--", "ls"], "");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("unexpected argument '--all-calls'"), "{err}");
    let (_, _, err) = nvdiag(&["trace", "no-such-program", "--its", "-o"], "");
    assert!(err.contains("no program no-such-program"), "{err}");
}

#[test]
fn a_window_is_given_as_to_vamap() {
    let window = ["--window", "shared@0x729500000000"];
    let list =
        document(&[&["--log", "-"], &window[..]].concat(), &XID.replace("7295_01400000", "7295_00400000"));
    assert_eq!(list["faults"][0]["access"]["window"], "shared", "{list}");
}

#[test]
fn the_lines_of_a_packed_log_that_is_cut_off_are_read() {
    use std::io::Write;
    let folder = tempfile::tempdir().expect("a folder");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    let fault = "nvgpu: 17000000.gpu f:1 [ERR]  sm hww global 0x00000004 warp 0x0000000e\n";
    let filler = "usb 1-1: new device\n".repeat(8000);
    packed.write_all((fault.to_owned() + &filler).as_bytes()).expect("packed");
    let bytes = packed.finish().expect("packed");
    let path = file(&folder, "log.gz", &bytes[..bytes.len() / 2]);
    let (code, out, err) = nvdiag(&["esr", &path], "");
    assert!(code == 1 && out.contains("OOR_ADDR") && err.contains("is cut off"), "{code} {out}{err}");
}
