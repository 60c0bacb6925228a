//! Each fuzzer for a second, always on the same cases as far as it gets. `hcq-fuzz` runs them for longer.
//!
//! A program of its own: one test for each target of the table.

use std::process::ExitCode;
use std::time::Duration;

use ga10b_tests::fuzz::{self, Cases};
use libtest_mimic::{Arguments, Trial};

const CASES: Cases =
    Cases { program: "hcq-fuzz", seed: 1, numbers: 0..u64::MAX, time: Duration::from_secs(1), trace: false };

fn main() -> ExitCode {
    let trial = |target: &fuzz::Target| {
        let target = *target;
        Trial::test(target.name, move || {
            let outcome = fuzz::run(&target, &CASES)?;
            println!("{}: {outcome}", target.name);
            if outcome.cases == 0 { Err("no case ran".into()) } else { Ok(()) }
        })
    };
    libtest_mimic::run(&Arguments::from_args(), fuzz::targets().iter().map(trial).collect()).exit_code()
}
