//! The fuzzer of models for a second, always on the same cases as far as it gets. `llm-fuzz` runs it for longer.
//!
//! A program of its own: a test is called as its target.

use std::process::ExitCode;
use std::time::Duration;

use ga10b_llm_checks::model_files;
use ga10b_tests::fuzz::{self, Cases};
use libtest_mimic::{Arguments, Trial};

const CASES: Cases =
    Cases { program: "llm-fuzz", seed: 1, numbers: 0..u64::MAX, time: Duration::from_secs(1), trace: false };

fn main() -> ExitCode {
    let trial = |target: &fuzz::Target| {
        let target = *target;
        Trial::test(target.name, move || {
            let outcome = fuzz::run(&target, &CASES)?;
            println!("{}: {outcome}", target.name);
            if outcome.cases == 0 { Err("no case ran".into()) } else { Ok(()) }
        })
    };
    libtest_mimic::run(&Arguments::from_args(), [model_files::GGUF].iter().map(trial).collect()).exit_code()
}
