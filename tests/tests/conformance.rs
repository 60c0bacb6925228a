//! The committed programs are those that the generator writes, and both models run them alike.

use std::path::Path;

use ga10b_sim::Checks;
use ga10b_tests::conformance::{self, Comparison, Runner, exchange};
use sass::Arch;

#[test]
fn committed_programs_are_those_of_the_generator() {
    let wrong =
        conformance::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/conformance")).unwrap();
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(
        wrong.is_empty(),
        "run `hcq-conform --regenerate tests/kernels/conformance`:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn code_for_sm_87_and_for_sm_90_does_the_same_on_the_software_gpu() {
    let mut sm90 = Runner::simulated(Arch::Sm90, 1).unwrap();
    let mut sm87 = Runner::simulated(Arch::Sm87, 2).unwrap();
    let mut comparison = Comparison { same_architecture: false, ..Comparison::new("sm_90 / sm_87") };
    for case in conformance::cases() {
        let [a, b] = [&mut sm90, &mut sm87]
            .map(|runner| runner.run(&case).unwrap_or_else(|e| panic!("{case:?}: {e:#}")));
        comparison.compare(&case, &a, &b);
        // A step adds in one order, and both models approximate alike.
        assert!(case.steps.is_none() || a == b, "{case:?}: logits differ");
    }
    assert!(comparison.agrees(), "{comparison}");
}

/// Rings, packets and named barriers are right under all checks, in several orders.
#[test]
fn what_exchanges_in_order_is_clean() {
    for (arch, seed) in [(Arch::Sm87, 1), (Arch::Sm87, 2), (Arch::Sm90, 3), (Arch::Sm90, 4)] {
        let (mut runner, sim) = Runner::checked(arch, seed, Checks::all()).unwrap();
        for case in exchange::cases() {
            runner.run(&case).unwrap_or_else(|e| panic!("{case:?}, {arch}, seed {seed}: {e:#}"));
            assert!(sim.findings().is_empty(), "{case:?}, {arch}, seed {seed}: {:#?}", sim.findings());
        }
    }
}
