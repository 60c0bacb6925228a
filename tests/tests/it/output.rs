//! The programs' standard output and options, as a shell meets them.

use std::fs::File;
use std::process::{Command, Output, Stdio};

/// Every part of `hcq-soak`, as short as it gets.
const SHORT: [&str; 7] = [
    "--launches=1",
    "--threads=1",
    "--seconds=0",
    "--queues=1",
    "--orders=1",
    "--failures=100000",
    "--kills=0",
];

fn soak() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hcq-soak"));
    command.env("HCQ_DEVICE", "sim").args(SHORT);
    command
}

fn fuzz() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hcq-fuzz"));
    command.arg("--list");
    command
}

fn conform() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hcq-conform"));
    command.args(["--device=sim", "--only=convergence"]);
    command
}

fn run(command: &mut Command, stdout: Stdio) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        command.stdout(stdout).stderr(Stdio::piped()).output().expect("the program starts");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

fn version() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hcq-bench"));
    command.arg("--version");
    command
}

#[test]
fn a_closed_reader_ends_quietly_with_the_code_and_a_full_disk_is_an_error() {
    for mut command in [soak(), fuzz(), conform(), version()] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = run(&mut command, writer.into());
        assert_eq!(closed, (Some(0), String::new()), "{command:?}");
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let (code, text) = run(&mut command, full.into());
        assert_eq!(code, Some(2), "{command:?}: {text}");
        assert!(text.contains("cannot write to stdout"), "{command:?}: {text}");
        assert!(!text.contains("panicked"), "{command:?}: {text}");
    }
}

#[test]
fn a_number_that_makes_no_sense_is_a_usage_error_that_says_what_does() {
    let soak = env!("CARGO_BIN_EXE_hcq-soak");
    let fuzz = env!("CARGO_BIN_EXE_hcq-fuzz");
    for (program, option, bounds) in [
        (soak, "--seconds=18446744073709551615", "0..=604800"),
        (soak, "--failures=0", "1.."),
        (soak, "--threads=4294967295", "0..=256"),
        (soak, "--orders=721", "0..=720"),
        (fuzz, "--seconds=1e18", "from 0 to 604800"),
        (fuzz, "--seconds=-1", "from 0 to 604800"),
        (env!("CARGO_BIN_EXE_hcq-bench"), "--launches=0", "1.."),
        (env!("CARGO_BIN_EXE_hcq-bench"), "--copy-mib=0", "1.."),
        (env!("CARGO_BIN_EXE_hcq-conform"), "--sweep=0", "1.."),
    ] {
        let (code, text) = run(Command::new(program).arg(option), Stdio::null());
        assert_eq!(code, Some(2), "{option}: {text}");
        assert!(text.contains(bounds), "{option}: {text}");
    }
}

#[test]
fn what_cannot_be_used_is_named_with_advice_and_ends_with_2() {
    let [bench, conform] = [env!("CARGO_BIN_EXE_hcq-bench"), env!("CARGO_BIN_EXE_hcq-conform")];
    for (program, args, variable, words) in [
        (conform, "--only=convergense", ("HCQ_DEVICE", "sim"), "near are convergence"),
        (conform, "--device=sim", ("NVGPU_SIM_SMS", "3"), "NVGPU_SIM_SMS"),
        (conform, "--device=sim", ("NVGPU_SIM_WHATIF", ","), "NVGPU_SIM_WHATIF"),
        (bench, "--device=sim", ("HCQ_CONSERVATIVE", "x"), "HCQ_CONSERVATIVE"),
        (bench, "--device=sim", ("HCQ_PROFILE", "/nowhere"), "\n  `nvdiag bringup` writes"),
        (env!("CARGO_BIN_EXE_hcq-fuzz"), "nosuch", ("HCQ_DEVICE", "sim"), "expected one of"),
    ] {
        let (code, text) = run(Command::new(program).arg(args).env(variable.0, variable.1), Stdio::null());
        assert_eq!(code, Some(2), "{args}: {text}");
        assert!(text.contains(words), "{args}: {text}");
    }
}
