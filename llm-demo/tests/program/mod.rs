//! The program on the software device, as its users start it.

use assert_cmd::Command;

/// Exit code, standard output and standard error with `input` on standard input.
pub fn run(args: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.env_remove("HCQ_DEVICE").env_remove("RUST_LOG");
    command.env("LLM_DEMO_TUNING", "/nonexistent/tuning.json").args(["--device", "sim"]).args(args);
    let output = command.write_stdin(input).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code().expect("it exits"), text(&output.stdout), text(&output.stderr))
}
