//! Text on a terminal: folded at its width, or at 80 columns where it does not say, as on a serial console.

#![allow(unsafe_code, reason = "the C library's function for terminals takes raw pointers")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// A terminal of that many columns: output to the second is read from the first.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize {
        ws_row: if columns == 0 { 0 } else { 24 },
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let none = std::ptr::null_mut();
    // SAFETY: the two numbers and the size outlive the call; no name is requested.
    let made = unsafe {
        libc::openpty(&raw mut ours, &raw mut theirs, none, none.cast(), &raw const size as *mut _)
    };
    assert_eq!(made, 0, "a terminal");
    // SAFETY: the call above made both just now.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Returns the output of a command on a terminal.
fn on_terminal(columns: u16, arguments: &[&str]) -> String {
    let (mut ours, theirs) = terminal(columns);
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(arguments).env_remove("COLUMNS").env("NO_COLOR", "1");
    let mut child = command.stdin(Stdio::null()).stdout(theirs).spawn().expect("the binary starts");
    // It holds a copy of the child's end.
    drop(command);
    let mut bytes = Vec::new();
    // Ends with an error when the last writer is gone.
    let _ = ours.read_to_end(&mut bytes);
    child.wait().expect("it ends");
    String::from_utf8(bytes).expect("text").replace("\r\n", "\n")
}

fn longest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn text_is_folded_at_the_terminals_width() {
    let fault = ["esr", "--warp-esr", "0x10"];
    for (columns, limit) in [(0, 80), (60, 60), (100, 100)] {
        let text = on_terminal(columns, &fault);
        assert!(text.contains("INVALID_ADDR_SPACE"), "{text}");
        let longest = longest(&text);
        assert!(longest <= limit && longest + 20 > limit, "{longest} of {limit}: {text}");
    }
    let (narrow, wide) = (on_terminal(60, &fault), on_terminal(1000, &fault));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&narrow), words(&wide));
    assert!(longest(&wide) > 100);
}

#[test]
fn help_is_folded_too_and_what_programs_read_is_not() {
    let help = on_terminal(0, &["esr", "--help"]);
    assert!(help.contains("--warp-esr"), "{help}");
    let options = help.split("Examples:").next().unwrap_or_default();
    assert!(longest(options) <= 80, "{help}");
    let json = on_terminal(40, &["esr", "--warp-esr", "0x10", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json).expect("one JSON document");
    assert_eq!(document["found"], 1);
    let script = on_terminal(40, &["completions", "bash"]);
    assert!(longest(&script) > 100);
}
