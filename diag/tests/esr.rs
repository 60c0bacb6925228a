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
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("read");
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
