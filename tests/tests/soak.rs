//! The short form of `tools/soak.sh`.
//!
//! A program of its own, with one test, because it counts the descriptors of its process.

use std::time::Duration;

use ga10b_tests::soak::{self, Plan};

#[test]
fn a_device_endures_launches_threads_queues_drops_failures_and_processes() {
    let plan = Plan {
        launches: 5000,
        threads: 4,
        time: Duration::from_secs(1),
        queues: 100,
        orders: 24,
        failures: 1,
        kills: 3,
        program: env!("CARGO_BIN_EXE_hcq-soak").into(),
        seed: 1,
    };
    let mut parts = 0;
    let result = soak::run(&plan, &mut |part| {
        println!("{part}");
        parts += 1;
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(parts, soak::PARTS);
}
