//! The fuzzer of models for a second, always on the same cases as far as it gets. `llm-fuzz` runs it for longer.

use std::time::Duration;

use ga10b_llm_checks::model_files;
use ga10b_tests::fuzz::{self, Cases};

const CASES: Cases =
    Cases { program: "llm-fuzz", seed: 1, numbers: 0..u64::MAX, time: Duration::from_secs(1), trace: false };

#[test]
fn damaged_models_are_errors() {
    let outcome = fuzz::run(&model_files::GGUF, &CASES).unwrap();
    println!("{outcome}");
    assert!(outcome.cases > 0, "no case ran");
}
