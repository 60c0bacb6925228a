//! Every kernel of the language model has a case, and both models run them alike: a sample of the cases, or all
//! with `NIGHTLY=1`.

use ga10b_llm::compare::{self, Bounds};
use ga10b_llm::kernels::stream::variant::VARIANTS;
use ga10b_llm::{Decoder, Engine, EngineOptions, Error, Mode, Reference, embedded};
use ga10b_llm_checks::{built_in, cases, decode};
use ga10b_sim::{Checks, Defects, Sim, SimConfig};
use ga10b_tests::conformance::{Comparison, Runner};
use hcq::DeviceOptions;
use sass::Arch;

#[test]
fn code_for_sm_87_and_for_sm_90_does_the_same_on_the_software_gpu() {
    let mut sm90 = Runner::simulated(Arch::Sm90, 1).unwrap();
    let mut sm87 = Runner::simulated(Arch::Sm87, 2).unwrap();
    let mut comparison = Comparison { same_architecture: false, ..Comparison::new("sm_90 / sm_87") };
    for case in ga10b_oracles::sample("conformance of the language model", cases(), 4) {
        let [a, b] = [&mut sm90, &mut sm87]
            .map(|runner| runner.run(&case).unwrap_or_else(|e| panic!("{case:?}: {e:#}")));
        comparison.compare(&case, &a, &b);
        [&a, &b].iter().for_each(|result| comparison.check(&case, result));
        assert!(case.family != decode::FAMILY || a == b, "{case:?}: logits differ");
    }
    assert!(comparison.agrees(), "{comparison}");
}

/// Kernels of whole steps run as an engine launches them.
#[test]
fn every_other_kernel_of_the_language_model_has_a_case() {
    let (steps, others): (Vec<String>, Vec<String>) =
        built_in::undriven().into_iter().partition(|kernel| kernel.ends_with("/stream"));
    assert!(others.is_empty(), "without a case: {}", others.join(", "));
    assert_eq!(steps.len(), VARIANTS.len(), "{steps:?}");
}

/// All checks of the software GPU: each kernel stays within the buffers of its case, and reads what has been written.
#[test]
fn kernels_of_the_model_do_what_their_cases_say() {
    for (arch, seed) in [(Arch::Sm87, 5), (Arch::Sm90, 6)] {
        let (mut runner, sim) = Runner::checked(arch, seed, Checks::all()).unwrap();
        for case in ga10b_oracles::sample(format_args!("kernels, {arch}"), built_in::cases(), 4) {
            let found = runner.run(&case).unwrap_or_else(|e| panic!("{case:?}, {arch}: {e:#}"));
            assert!(sim.findings().is_empty(), "{case:?}, {arch}: {:#?}", sim.findings());
            assert_ne!(found, case.buffers, "{case:?}, {arch}: nothing is written");
        }
    }
}

/// The bounds of `llm-demo verify`, and with it of the bring-up's step of the language model.
#[test]
fn a_gpu_without_special_functions_is_past_the_bounds() {
    let within = |defects: Defects| {
        let model = embedded::model().unwrap();
        let sim = Sim::new(SimConfig { defects, ..SimConfig::default() });
        let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
        let options = EngineOptions::new(4).with_mode(Mode::Batch);
        let mut engine = Engine::new(&device, &model, &options).unwrap();
        let mut reference = Reference::new(&model, 4).unwrap();
        let mut comparison = compare::Comparison::new();
        for token in [1, 31, 62] {
            match engine.step(token) {
                Ok(found) => comparison.add(&reference.step(token).unwrap(), &found),
                Err(Error::NotFinite { .. }) => return false,
                Err(other) => panic!("{other}"),
            }
        }
        comparison.is_within(Bounds::FLOAT)
    };
    assert!(within(Defects::empty()));
    assert!(!within(Defects::FUNCTIONS));
}
