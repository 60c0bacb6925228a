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
    assert!(err.contains("not a readable ELF file"), "{err}");
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
fn completions_name_every_command() {
    let (code, out, _) = output(&mut nvdiag(&["completions", "bash"]));
    assert_eq!(code, 0);
    for command in ["info", "qmd", "disasm", "completions"] {
        assert!(out.contains(command), "{command}");
    }
}
