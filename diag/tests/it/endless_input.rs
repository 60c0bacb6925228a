//! Input that has no end: every command refuses it, in bounded memory.

use std::fs::File;
use std::process::{Command, Stdio};

#[test]
fn input_without_an_end_is_bounded() {
    let zero = || Stdio::from(File::open("/dev/zero").expect("a node of Linux"));
    for arguments in [
        &["qmd", "/dev/zero"][..],
        &["disasm", "/dev/urandom"],
        &["pushbuf", "/dev/zero"],
        &["vamap", "/dev/zero"],
        &["esr", "--warp-esr", "0x10", "--cubin", "/dev/zero"],
        &["esr", "--warp-esr", "0x10", "--map", "/dev/zero"],
        &["qmd", "-"],
        &["disasm", "-"],
    ] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        let run = command.args(arguments).env_remove("HCQ_DEVICE").stdin(zero()).output().expect("it starts");
        let why = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {why}");
        assert!(why.contains("64 MiB") && why.contains("end"), "{arguments:?}: {why}");
    }
}

#[test]
fn a_log_that_is_none_ends_whatever_it_is_read_from() {
    let program = || {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        command.args(["esr", "--log", "-"]);
        command
    };
    for (node, told) in [("/dev/zero", "a device"), ("/dev/urandom", "a device"), ("/dev/null", "empty")] {
        let run = program().stdin(File::open(node).expect("a node")).output().expect("it starts");
        let why = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{node}: {why}");
        assert!(why.contains(told), "{node}: {why}");
    }
    let mut endless = Command::new("cat");
    let mut endless = endless.arg("/dev/zero").stdout(Stdio::piped()).spawn().expect("cat");
    let run = program().stdin(endless.stdout.take().expect("a pipe")).output().expect("it starts");
    endless.wait().expect("it ends with its reader");
    let why = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(2), "{why}");
    assert!(why.contains("a line of more than 64 MiB"), "{why}");
}
