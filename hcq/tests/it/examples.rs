//! The examples, as a user runs them, on the software ga10b.

use std::path::PathBuf;
use std::process::{Command, Output};

/// The folder of the examples that cargo has built: beside that of the tests.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.parent().and_then(|deps| deps.parent()).expect("the folder of the build").join("examples")
}

fn run(name: &str) -> Output {
    run_on(name, "sm_87")
}

fn run_on(name: &str, arch: &str) -> Output {
    let path = folder().join(name);
    assert!(path.exists(), "`cargo test -p hcq` builds {name}; `--test it` alone does not");
    // No ptxas: what runs is the same on every machine.
    let environment = [("HCQ_DEVICE", "sim"), ("PTXAS", "/nowhere"), ("NVGPU_SIM_ARCH", arch)];
    Command::new(path).envs(environment).output().expect("an example that starts")
}

/// Runs an example that has to succeed; what it printed.
fn succeed(name: &str) -> String {
    let output = run(name);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{text}{errors}", output.status);
    text.into_owned()
}

#[test]
fn they_run_on_every_sm() {
    for arch in ["sm_80", "sm_86", "sm_89", "sm_90"] {
        for name in ["01_vecadd", "02_graph_replay", "03_two_queues", "04_ptxgen", "06_persistent"] {
            let output = run_on(name, arch);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} on {arch}: {}\n{errors}", output.status);
        }
    }
}

#[test]
fn vecadd() {
    assert_eq!(succeed("01_vecadd"), "ga10b (sim)\n1000 sums are right\n");
}

#[test]
fn graph_replay() {
    assert_eq!(succeed("02_graph_replay"), "11 replays of 2 launches: every element is 122\n");
}

#[test]
fn two_queues() {
    assert_eq!(succeed("03_two_queues"), "131072 floats doubled in 8 parts\n");
}

#[test]
fn ptxgen() {
    assert_eq!(succeed("04_ptxgen"), "1000 floats halved\n");
}

#[test]
fn fault() {
    let report = succeed("05_fault");
    assert!(report.starts_with("the GPU stopped: access to unmapped memory at 0x"), "{report}");
    assert!(report.contains("past the end of the buffer of 4 MiB at 0x"), "{report}");
    assert!(report.contains("in kernel vecadd+0x") && report.contains(": LDG"), "{report}");
}

#[test]
fn persistent() {
    let text = succeed("06_persistent");
    assert!(text.ends_with("100 generations of 4096 cells in one launch\n"), "{text}");
}
