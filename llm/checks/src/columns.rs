//! Steps of several sequences by the batch kernels, for each kind of weights, each number of columns that
//! has kernels, and both caches; and a prompt in a chunk that writes to pages. Logits are compared.
//!
//! Products are those of `mma` in f16: their last bits are the architecture's own, and where an activation
//! lies near the middle of two f16 it may become either. So logits differ by a small part of their size. With
//! the cache in q8_0 a number near the middle of two codes is cached as either; logits then may differ by what
//! the rounding of the whole cache changes in the model in addition, which is more than a few codes change.

use ga10b_llm::CacheType;
use ga10b_llm::kernels::format::Format;
use hcq::{LaunchConfig, Selector};

use crate::column_steps::ColumnSteps;
use crate::steps::SEED;
use ga10b_tests::conformance::Runner;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::{Case, Place};

/// The largest difference of a logit: three times the root of what activations in f16 may change of a logit's
/// mean square, 1e-5 ([`Bounds::FLOAT`](ga10b_llm::compare::Bounds::FLOAT)); these are about 1.
const BOUND: f64 = 1e-2;

/// The models.
pub fn cases() -> Vec<Case> {
    let of = |kv: CacheType, sequences: usize, mixes: &[&'static str]| -> Vec<Case> {
        mixes.iter().map(|&mix| case(ColumnSteps { mix, kv, sequences, chunk: false })).collect()
    };
    let mut cases =
        of(CacheType::F16, 5, &["q6_k", "q4_k_m", "q5_k", "q2_k", "q8_0", "q4_0", "f16", "bf16", "f32"]);
    cases.extend(of(CacheType::F16, 5, &Format::WITH_CODEBOOK.map(Format::suffix)));
    cases.extend(of(CacheType::F16, 12, &["q6_k", "q4_k_m"]));
    cases.extend(of(CacheType::F16, 32, &["q6_k", "q4_k_m", "q8_0"]));
    cases.extend(of(CacheType::Q8_0, 5, &["q4_k_m"]));
    cases.extend(of(CacheType::Q8_0, 32, &["q6_k"]));
    cases.extend(CacheType::ALL.map(|kv| case(ColumnSteps { mix: "q6_k", kv, sequences: 2, chunk: true })));
    cases
}

/// Tolerance of the logits of each step beyond [`BOUND`].
fn slack(steps: ColumnSteps, a: &[Vec<u32>], b: &[Vec<u32>]) -> Vec<f64> {
    if steps.kv == CacheType::F16 || a == b {
        return Vec::new();
    }
    // Without a model nothing more is allowed.
    let model = Runner::open(Selector::Sim);
    model
        .and_then(|model| steps.effect_of_rounding(model.device()))
        .inspect_err(|error| tracing::error!("what the cache's rounding changes is not known: {error:#}"))
        .unwrap_or_default()
}

fn case(steps: ColumnSteps) -> Case {
    let ColumnSteps { mix, kv, sequences, chunk } = steps;
    let after = if chunk { ", after a chunk" } else { "" };
    Case {
        family: "steps of columns",
        program: format!("{sequences} columns, {mix}, cache in {kv:?}{after}"),
        seed: SEED,
        cubins: [&[]; 2],
        kernel: "columns".to_owned(),
        config: LaunchConfig::new(1, 1),
        launches: Vec::new(),
        buffers: Vec::new(),
        work: Some(Box::new(move |device| steps.run(device))),
        slack: Some(Box::new(move |a, b| slack(steps, a, b))),
        place: Box::new(|step, word| {
            let what = format!("word {word} of the logits of step {step}");
            Some(Place { what, tolerance: Tolerance::Single { ulps: 0, absolute: BOUND } })
        }),
        ..Case::blank()
    }
}
