//! The binary itself: exit codes, pipes, streams.

use assert_cmd::Command;

fn nvdiag(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(args).env_remove("HCQ_DEVICE").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn output(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn exit_codes_tell_clean_from_problem_from_usage_from_failure() {
    let (code, out, err) = output(&mut nvdiag(&["qmd", &data("ga10b.qmd")]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("grid              1000 x 3 x 2 blocks"), "{out}");
    let (code, out, err) = output(&mut nvdiag(&["qmd", &data("broken.qmd")]));
    assert_eq!((code, err.as_str()), (1, ""));
    assert!(out.contains("SKEDCHECK16"), "{out}");
    let (code, out, _) = output(&mut nvdiag(&["qmd"]));
    assert_eq!((code, out.as_str()), (2, ""));
    let (code, out, err) = output(&mut nvdiag(&["qmd", "no-such-file"]));
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("nvdiag: cannot read no-such-file: "), "{err}");
}

/// A command line for each command that has something to print.
const COMMANDS: [&[&str]; 10] = [
    &["info", "--device", "sim"],
    &["esr", "--warp-esr", "0x10"],
    &["vamap", "--device", "sim"],
    &["provoke", "--list"],
    &["bringup", "--list"],
    &["doctor"],
    &["report", "--list"],
    &["completions", "bash"],
    &["--help"],
    &["esr", "--help"],
];

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
    for arguments in COMMANDS {
        let program = || {
            let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
            command.args(arguments).env_remove("HCQ_DEVICE");
            command
        };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a node of Linux");
        let run = program().stdout(full).output().expect("the binary starts");
        let why = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {why}");
        assert!(why.contains("cannot write to stdout: No space left on device"), "{arguments:?}: {why}");
        let whole = program().output().expect("the binary starts").status.code();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run = program().stdout(writer).output().expect("the binary starts");
        assert_eq!(run.status.code(), whole, "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&run.stderr), "", "{arguments:?}");
    }
}

#[test]
fn json_is_printed_or_refused() {
    for arguments in COMMANDS.iter().filter(|arguments| !arguments.contains(&"--help")) {
        let (code, out, err) = output(&mut nvdiag(&[arguments, &["--json"][..]].concat()));
        if arguments[0] == "completions" {
            assert_eq!((code, out.as_str()), (2, ""));
            assert!(err.contains("no JSON form"), "{err}");
            continue;
        }
        let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
        assert!(document["schema"].as_str().is_some_and(|s| s.starts_with("nvdiag.")), "{arguments:?}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) = output(&mut nvdiag(&["man", "--json", &folder.path().to_string_lossy()]));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn help_has_examples_and_exit_codes_and_ends_with_what_every_command_takes() {
    let commands = [
        "bringup",
        "check",
        "doctor",
        "esr",
        "info",
        "pushbuf",
        "provoke",
        "qmd",
        "report",
        "trace",
        "vamap",
        "watch",
        "list",
        "show",
        "disasm",
        "completions",
        "man",
    ];
    for command in commands {
        let (code, help, _) = output(&mut nvdiag(&[command, "--help"]));
        assert_eq!(code, 0);
        let places =
            ["Usage: ", "Options:\n", "Options of every command:\n", "Examples:\n  ", "Exit codes: "];
        let places = places.map(|text| help.find(text).unwrap_or_else(|| panic!("{command}: no {text:?}")));
        assert!(places.is_sorted(), "{command}: {help}");
        assert!(help[places[2]..places[3]].contains("--json"), "{command}: {help}");
        assert!(help[places[3]..].contains(&format!("nvdiag {command} ")), "{command}: {help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{command}: {help}");
    }
}

#[test]
fn global_options_work_before_and_after_the_command() {
    let (_, before, _) = output(&mut nvdiag(&["--json", "qmd", &data("ga10b.qmd")]));
    let (_, after, _) = output(&mut nvdiag(&["qmd", &data("ga10b.qmd"), "--json"]));
    assert_eq!(before, after);
    let document: serde_json::Value = serde_json::from_str(&before).expect("one JSON document");
    assert_eq!(document["schema"], "nvdiag.qmd/1");
    assert_eq!(document["launch"]["program"], "0x1234500080");
}

#[test]
fn colour_is_for_those_who_want_it() {
    let (_, plain, _) = output(&mut nvdiag(&["qmd", &data("ga10b.qmd")]));
    assert!(!plain.contains('\u{1b}'));
    let (_, coloured, _) = output(&mut nvdiag(&["--color", "always", "qmd", &data("ga10b.qmd")]));
    assert!(coloured.contains('\u{1b}'));
}

#[test]
fn input_comes_from_stdin_and_from_the_middle_of_a_dump() {
    let qmd = std::fs::read(data("ga10b.qmd")).expect("readable");
    let (code, from_stdin, _) = output(nvdiag(&["qmd", "-"]).write_stdin(qmd.clone()));
    assert_eq!(code, 0);
    let dump = [vec![0xee; 0x1200], qmd].concat();
    let (code, from_dump, _) = output(nvdiag(&["qmd", "-", "--offset", "0x1200"]).write_stdin(dump));
    assert_eq!((code, from_dump), (0, from_stdin));
    let (code, _, err) = output(nvdiag(&["qmd", "-", "--offset", "0x1200"]).write_stdin("short"));
    assert_eq!(code, 2);
    assert!(err.contains("past its end"), "{err}");
}

/// The cubin of `hcq`'s tests that was compiled with `-lineinfo`.
fn cubin_with_lines() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../hcq/tests/data/lines.sm_87.cubin");
    path.to_string_lossy().into_owned()
}

#[test]
fn the_source_line_of_an_instruction_is_shown_with_its_text_where_the_file_is_there() {
    let (code, out, _) = output(&mut nvdiag(&["disasm", &cubin_with_lines(), "--kernel", "scale"]));
    assert_eq!(code, 0);
    let inlined = "kernels/square.h:2 (square, inlined)\n    kernels/scale.cu:5\n";
    assert!(out.contains(inlined), "{out}");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("kernels")).expect("made");
    std::fs::write(folder.path().join("kernels/square.h"), "float square(float x) {\n    return x * x;\n}\n")
        .expect("written");
    let (_, out, _) =
        output(nvdiag(&["disasm", &cubin_with_lines(), "--kernel", "scale"]).current_dir(folder.path()));
    assert!(out.contains("kernels/square.h:2 (square, inlined)  return x * x;\n"), "{out}");
    let (_, out, _) = output(&mut nvdiag(&[
        "esr",
        "--warp-esr",
        "0x10",
        "--pc",
        "0x11c0",
        "--cubin",
        &format!("{}:scale@0x1000", cubin_with_lines()),
    ]));
    assert!(out.contains("kernels/square.h:2 (square, inlined)"), "{out}");
}

#[test]
fn an_instruction_that_does_not_wait_is_found() {
    let cubin = data("01_vecadd.sm_90.cubin");
    let (code, out, _) = output(&mut nvdiag(&["disasm", &cubin, "--lint"]));
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("every result is waited for"), "{out}");
    // No instruction waits any more: the wait masks of all are cleared.
    let mut bytes = std::fs::read(&cubin).expect("readable");
    let (_, listing, _) = output(&mut nvdiag(&["disasm", &cubin, "--json"]));
    let listing: serde_json::Value = serde_json::from_str(&listing).expect("JSON");
    let sections = listing["sections"].as_array().expect("sections");
    for section in sections.iter().filter(|s| s["name"].as_str().is_some_and(|n| n.starts_with(".text."))) {
        let start = section["file_offset"].as_str().expect("hex").trim_start_matches("0x").to_owned();
        let start = usize::from_str_radix(&start, 16).expect("hex");
        let size = usize::try_from(section["size_bytes"].as_u64().expect("a size")).expect("fits");
        for word in bytes[start..start + size].chunks_exact_mut(16) {
            let cleared = u128::from_le_bytes(word.try_into().expect("16 bytes")) & !(0x3f << 116);
            word.copy_from_slice(&cleared.to_le_bytes());
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let planted = folder.path().join("planted.cubin");
    std::fs::write(&planted, bytes).expect("written");
    let planted = planted.to_string_lossy();
    let (code, out, _) = output(&mut nvdiag(&["disasm", &planted, "--kernel", "vadd_f32", "--lint"]));
    assert_eq!(code, 1, "{out}");
    for words in
        ["read after write of R", "no instruction on the path waits for barrier", "straight on", "FADD"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (code, out, _) =
        output(&mut nvdiag(&["disasm", &planted, "--kernel", "vadd_f32", "--lint", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, report["schema"].as_str()), (1, Some("nvdiag.lint/1")));
    assert_eq!(report["kernels"][0]["findings"][0]["hazard"], "read after write");
}

/// Every cubin of the work tree, which ptxas made, is clean.
#[test]
fn every_kernel_of_the_repository_waits_for_its_results() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut folders, mut cubins) = (vec![root], std::collections::BTreeMap::<String, Vec<_>>::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable")) {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if let Some(name) = name.strip_suffix(".cubin") {
                let target = name.rsplit('.').next().unwrap_or_default();
                cubins.entry(target.to_owned()).or_default().push(path);
            }
        }
    }
    assert!(["sm_80", "sm_86", "sm_87", "sm_89", "sm_90"].iter().all(|sm| cubins.contains_key(*sm)));
    for (target, mut paths) in cubins {
        paths.sort();
        for path in ga10b_oracles::sample(format_args!("kernels of {target}"), paths, 5) {
            let lint = nvdiag::lint::Lint::read(&std::fs::read(&path).expect("readable"), None);
            let lint = lint.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
            for kernel in &lint.kernels {
                assert!(kernel.findings.is_empty(), "{}: {:#?}", path.display(), kernel.findings);
                assert!(kernel.instructions > 0, "{}: {}", path.display(), kernel.name);
            }
        }
    }
}

#[test]
fn cubins_are_disassembled() {
    let cubin = data("12_local_stack.sm_87.cubin");
    let (code, out, _) = output(&mut nvdiag(&["disasm", &cubin, "--kernel", "local_array"]));
    assert_eq!(code, 0);
    assert!(out.contains("EXIT"), "{out}");
    let (code, _, err) = output(&mut nvdiag(&["disasm", &cubin, "--kernel", "nothing"]));
    assert_eq!(code, 2);
    assert!(err.contains("there are: alloca_dyn, generic_windows"), "{err}");
    let (code, _, err) = output(&mut nvdiag(&["disasm", &data("ga10b.qmd")]));
    assert_eq!(code, 2);
    assert!(err.contains("not a readable ELF object"), "{err}");
}

#[test]
fn the_software_gpu_is_described() {
    let (code, out, err) = output(&mut nvdiag(&["info", "--device", "sim", "--json"]));
    assert_eq!(code, 0, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(document["schema"], "nvdiag.info/1");
    assert_eq!(document["backend"], "sim");
    assert_eq!(document["compute_capability"], "8.7");
    let (code, text, _) = output(nvdiag(&["info"]).env("HCQ_DEVICE", "sim"));
    assert_eq!(code, 0);
    assert!(text.contains("0xc7c0 AMPERE_COMPUTE_B"), "{text}");
    let (code, _, err) = output(&mut nvdiag(&["info", "--device", "cuda"]));
    assert_eq!(code, 2);
    assert!(err.contains("expected auto, nvgpu, rm or sim"), "{err}");
}

#[test]
fn a_device_that_is_none_is_blamed_on_where_it_was_named() {
    let bad = |arguments: &[&str]| {
        let (code, out, err) = output(nvdiag(arguments).env("HCQ_DEVICE", "gpu"));
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        err
    };
    for command in [&["info"][..], &["bringup"], &["provoke", "oob"]] {
        let err = bad(command);
        assert!(err.contains("'gpu' for 'HCQ_DEVICE'") && !err.contains("--device"), "{err}");
        assert!(err.contains("expected auto, nvgpu, rm or sim"), "{err}");
        let err = bad(&[command, &["--device", "cuda"]].concat());
        assert!(err.contains("'cuda' for '--device <DEVICE>'") && !err.contains("HCQ_DEVICE"), "{err}");
    }
    let err = bad(&["vamap", "--device=cuda"]);
    assert!(err.contains("'--device <DEVICE>'") && !err.contains("HCQ_DEVICE"), "{err}");
}

#[test]
fn completions_name_every_command() {
    let (code, out, _) = output(&mut nvdiag(&["completions", "bash"]));
    assert_eq!(code, 0);
    for command in ["info", "qmd", "disasm", "pushbuf", "vamap", "trace", "completions", "man"] {
        assert!(out.contains(command), "{command}");
    }
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) = output(&mut nvdiag(&["man", &folder.path().join("man1").to_string_lossy()]));
    assert_eq!(code, 0, "{err}");
    for command in ["", "-info", "-qmd", "-disasm", "-pushbuf", "-vamap", "-trace", "-completions", "-man"] {
        let page = std::fs::read_to_string(folder.path().join(format!("man1/nvdiag{command}.1")));
        assert!(page.expect("written").contains(".SH SYNOPSIS"), "{command}");
    }
}

#[test]
fn the_synopsis_of_a_page_has_every_option_and_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(output(&mut nvdiag(&["man", &folder.path().to_string_lossy()])).0, 0);
    let synopsis = |name: &str| {
        let page = std::fs::read_to_string(folder.path().join(format!("{name}.1"))).expect("written");
        let rest = page.split_once(".SH SYNOPSIS\n").expect("a synopsis").1;
        rest.split_once("\n.SH").expect("its end").0.replace("\\-", "-")
    };
    let whole = synopsis("nvdiag");
    assert!(whole.starts_with("nvdiag [--json] [--color WHEN] [-v|--verbose]"), "{whole}");
    assert!(whole.contains("bringup|check|doctor|esr|") && whole.contains("|report|"), "{whole}");
    for (command, options) in [
        ("doctor", vec!["[--root DIR]", "[--json]"]),
        ("report", vec!["[-o|--output FILE]", "[--yes]", "[--list]", "[--pid PID]"]),
        ("trace", vec!["--pid", "--replay", "[--log FILE]", "[--qmd DIR]", "COMMAND"]),
        ("vamap", vec!["--diff A B", "[--svg FILE]", "[--pdb ADDRESS]"]),
        ("provoke", vec!["[--device DEVICE]", "[KIND]"]),
    ] {
        let synopsis = synopsis(&format!("nvdiag-{command}"));
        assert!(synopsis.starts_with(&format!("nvdiag {command} ")), "{synopsis}");
        assert!(options.iter().all(|option| synopsis.contains(option)), "{options:?}: {synopsis}");
        assert!(!synopsis.contains("[OPTIONS]") && !synopsis.contains("-here"), "{synopsis}");
    }
}

#[test]
fn help_says_json_lines_where_they_are_printed_and_names_all_exit_codes() {
    let help = |arguments: &[&str]| {
        let (_, out, _) = output(&mut nvdiag(&[arguments, &["--help"]].concat()));
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for command in ["trace", "esr", "watch"] {
        assert!(help(&[command]).contains("JSON Lines"), "{command}");
    }
    for command in ["doctor", "list", "qmd", "report"] {
        let help = help(&[command]);
        assert!(
            help.contains("Print one JSON document") && !help.contains("JSON Lines"),
            "{command}: {help}"
        );
    }
    let (_, codes) =
        help(&[]).split_once("Exit codes: ").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("codes");
    for code in
        ["0 nothing", "1 a problem", "2 bad usage", "128 and the number of the signal", "code of the program"]
    {
        assert!(codes.contains(code), "{code}: {codes}");
    }
}

#[test]
fn a_user_who_has_saved_nothing_is_told_so() {
    let home = tempfile::tempdir().expect("a folder");
    let mut command = nvdiag(&["list"]);
    command.env("HOME", home.path()).env("XDG_STATE_HOME", home.path().join("state"));
    if nix::unistd::geteuid().is_root() && std::path::Path::new("/var/lib/nvdiag").exists() {
        return;
    }
    let (code, out, err) = output(&mut command);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("no faults are saved in "), "{out}");
}

#[test]
fn a_pushbuffer_and_its_ring_are_decoded_from_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let words: Vec<u8> =
        [0x2001_20ad_u32, 0x1234_5678, 0x2001_20b0, 9].iter().flat_map(|w| w.to_le_bytes()).collect();
    std::fs::write(path("pb"), &words).expect("written");
    std::fs::write(path("ring"), (0x10_0020_0000u64 | 4 << 42).to_le_bytes()).expect("written");
    let (code, out, err) = output(&mut nvdiag(&["pushbuf", &path("pb")]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("  0000 1 SEND_PCAS_A ") && out.contains("QMD at 0x1234567800"), "{out}");
    let memory = format!("{}@0x1000200000", path("pb"));
    let ring = ["pushbuf", "--gpfifo", &path("ring"), "--memory", &memory, "--json"];
    let (code, out, _) = output(&mut nvdiag(&ring));
    assert_eq!(code, 0);
    let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(document["schema"], "nvdiag.pushbuf/1");
    assert_eq!(document["segments"][0]["commands"][0]["writes"][0]["name"], "SEND_PCAS_A");
    let (code, _, err) = output(&mut nvdiag(&["pushbuf", &path("pb"), "--length", "100"]));
    assert_eq!(code, 2);
    assert!(err.contains("which offset and length do not fit in"), "{err}");
}

#[test]
fn an_address_space_is_shown_from_a_device_and_from_a_dump() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let device = ["vamap", "--device", "sim", "--json", "--svg", &path("map.svg")];
    let (code, out, err) = output(&mut nvdiag(&device));
    assert_eq!(code, 0, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(document["schema"], "nvdiag.vamap/1");
    assert!(document["mappings"].as_array().is_some_and(|m| m.len() > 1));
    assert!(std::fs::read_to_string(path("map.svg")).expect("written").contains("<rect"));
    // One page table that names itself, in a dump of LiME.
    let words = [0x8000_0000u64, 0x8000_0fff, 0, (0x8000_0000 >> 12) << 8 | 0xe];
    let mut dump = b"EMiL\x01\0\0\0".to_vec();
    dump.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    dump.resize(32 + 4096, 0);
    std::fs::write(path("dump"), dump).expect("written");
    let file = path("dump");
    let dump = ["vamap", "--dump", &file];
    let (code, out, _) = output(&mut nvdiag(&[&dump[..], &["--pdb", "0x80000000"]].concat()));
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("which is in use for 0x0 already"), "{out}");
    let (code, _, err) = output(&mut nvdiag(&dump));
    assert_eq!(code, 2);
    assert!(err.contains("give their root with --pdb"), "{err}");
    assert_eq!(output(&mut nvdiag(&["vamap"])).0, 2);
}

#[test]
fn two_qmds_are_compared_and_what_cannot_be_is_usage() {
    let (good, broken) = (data("ga10b.qmd"), data("broken.qmd"));
    let (code, out, err) = output(&mut nvdiag(&["qmd", "--diff", &good, &broken]));
    assert_eq!((code, err.as_str()), (1, ""));
    assert!(out.contains("CTA_THREAD_DIMENSION0") && out.contains("unnamed bits of word 10"), "{out}");
    let (code, out, _) = output(&mut nvdiag(&["qmd", "--diff", &good, &good]));
    assert!(code == 0 && out.contains("No difference"), "{out}");
    let (code, json, _) = output(&mut nvdiag(&["qmd", "--diff", &good, &broken, "--json"]));
    let document: serde_json::Value = serde_json::from_str(&json).expect("one JSON document");
    assert_eq!((code, &document["schema"]), (1, &"nvdiag.qmd-diff/1".into()));
    // Two places in one dump.
    let dump = [std::fs::read(&good).expect("readable"), std::fs::read(&broken).expect("readable")].concat();
    let folder = tempfile::tempdir().expect("a folder");
    let both = folder.path().join("both");
    std::fs::write(&both, dump).expect("written");
    let both = both.to_str().expect("UTF-8");
    let (code, out, _) = output(&mut nvdiag(&["qmd", "--diff", both, "--offset", "0", "--offset", "0x100"]));
    assert!(code == 1 && out.contains(&format!("{both} at 0x100")), "{out}");
    for wrong in [
        &["qmd", &good, &broken][..],
        &["qmd", "--diff", &good],
        &["qmd", &good, "--offset", "0", "--offset", "0"],
        &["qmd", "--diff", &good, "no-such-file"],
    ] {
        let (code, out, err) = output(&mut nvdiag(wrong));
        assert!(code == 2 && out.is_empty() && !err.is_empty(), "{wrong:?}: {err}");
    }
}
