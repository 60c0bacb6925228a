//! The committed programs are those that the generator writes, and both models run them alike: a sample of the
//! cases, or all with `NIGHTLY=1`.

use std::path::Path;

use ga10b_sim::Checks;
use ga10b_tests::conformance::{self, Comparison, Runner, exchange, links, suite, warpgroup};
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
    for case in ga10b_oracles::sample("conformance", conformance::cases(), 4) {
        let [a, b] = [&mut sm90, &mut sm87]
            .map(|runner| runner.run(&case).unwrap_or_else(|e| panic!("{case:?}: {e:#}")));
        comparison.compare(&case, &a, &b);
        [&a, &b].iter().for_each(|result| comparison.check(&case, result));
    }
    assert!(comparison.agrees(), "{comparison}");
}

/// Rings, packets, named barriers, dependent launches and small products of warpgroups are right under all checks,
/// in several orders.
#[test]
fn what_exchanges_in_order_is_clean() {
    for (arch, seed) in [(Arch::Sm87, 1), (Arch::Sm87, 2), (Arch::Sm90, 3), (Arch::Sm90, 4)] {
        let (mut runner, sim) = Runner::checked(arch, seed, Checks::all()).unwrap();
        let products = warpgroup::cases().into_iter().take(2);
        for case in exchange::cases().into_iter().chain(links::cases()).chain(products) {
            runner.run(&case).unwrap_or_else(|e| panic!("{case:?}, {arch}, seed {seed}: {e:#}"));
            assert!(sim.findings().is_empty(), "{case:?}, {arch}, seed {seed}: {:#?}", sim.findings());
        }
    }
}

/// A launch that reads before it waits: what its predecessor wrote, and what the one before that wrote, which may
/// still run where its own successor gave way before it waited.
#[test]
fn reads_before_the_wait_for_a_launch_are_found() {
    let (mut runner, sim) = Runner::checked(Arch::Sm90, 1, Checks::ORDER).unwrap();
    for (number, case) in links::wrong_lines().iter().enumerate() {
        runner.run(case).unwrap();
        let found = sim.findings();
        let finding = found.get(number).unwrap_or_else(|| panic!("{case:?}: {found:#?}"));
        assert_eq!(finding.text, "reads memory that other work writes, and nothing orders the two");
        assert!(finding.detail.contains("no griddepcontrol.wait before the access orders"), "{finding:#?}");
    }
    // Where there is no such instruction, nothing begins early.
    let (mut runner, sim) = Runner::checked(Arch::Sm87, 1, Checks::ORDER).unwrap();
    links::wrong_lines().iter().for_each(|case| drop(runner.run(case).unwrap()));
    assert!(sim.findings().is_empty(), "{:#?}", sim.findings());
}

/// All checks of the software GPU: each kernel stays within the buffers of its case, and reads what has been written.
#[test]
fn kernels_of_the_device_suite_do_what_their_cases_say() {
    for (arch, seed) in [(Arch::Sm87, 5), (Arch::Sm90, 6)] {
        let (mut runner, sim) = Runner::checked(arch, seed, Checks::all()).unwrap();
        for case in ga10b_oracles::sample(format_args!("suite, {arch}"), suite::cases(), 2) {
            let found = runner.run(&case).unwrap_or_else(|e| panic!("{case:?}, {arch}: {e:#}"));
            assert!(sim.findings().is_empty(), "{case:?}, {arch}: {:#?}", sim.findings());
            assert_ne!(found, case.buffers, "{case:?}, {arch}: nothing is written");
        }
    }
}
