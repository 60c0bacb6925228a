//! The program on the software device, as its users start it.

use assert_cmd::Command;

/// The program with `args`, on the software device unless they name another.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.env("HCQ_DEVICE", "sim").env_remove("RUST_LOG").env_remove("LLM_DEMO_API_KEY");
    command.env("LLM_DEMO_TUNING", "/nonexistent/tuning.json").args(args);
    command
}

/// Exit code, standard output and standard error of `command`.
pub fn ended(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code().expect("it exits"), text(&output.stdout), text(&output.stderr))
}

/// The same with `input` on standard input.
pub fn run(args: &[&str], input: &str) -> (i32, String, String) {
    ended(command(args).write_stdin(input))
}
