//! The message of a test that cannot run.

use std::fmt::Display;
use std::io::Write;

/// The environment variable that makes absent oracles failures: `yes`.
pub const REQUIRE: &str = "REQUIRE_ORACLES";

/// An oracle is not there: the test, or a part of it, is left out.
///
/// # Panics
/// With `REQUIRE_ORACLES=yes`.
#[track_caller]
pub fn missing(oracle: &str, why: impl Display) {
    let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "yes");
    assert!(!required, "no {oracle}, and {REQUIRE}=yes: {why}");
    skipped(format_args!("no {oracle}: {why}"));
}

/// The machine does not let a test run: it is left out, whatever is required.
pub fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not by a macro: their output is captured while a test passes. A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {why} ({test})");
}
