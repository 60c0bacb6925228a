//! Whole persistent steps, for each kind of weights and of cache: logits, and what was cached.
//!
//! The two models must agree in every bit: code for sm_87 and for sm_90 adds in the same order. A GPU's
//! approximations (square root, exponential, sine) are its own, and an input near the middle of two integers
//! may become either: its logits differ by a small part of their size.
//!
//! The cache in q8_0 is the one place where such a difference stays: a number near the middle of two codes is
//! cached as either, and enters its step and every later one. So codes may differ by one, and scales by a unit in
//! the last place, and what that does to the logits is not guessed: the model repeats each step with what either
//! side had cached before it, and the difference is added to the bound. What a step itself caches enters it with
//! the attention that it pays to its own position; that is taken from the step after it, doubled, since the first
//! step pays all of its attention there and the second about half. Where nothing differs, nothing is added.

use ga10b_llm::CacheType;
use ga10b_llm::kernels::format::Format;
use hcq::{LaunchConfig, Selector};

use crate::steps::{Cached, SEED, STEPS, Steps};
use ga10b_tests::conformance::Runner;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::{Case, Place};

/// The largest difference of a logit, of which most are below 4, where all codes are the same.
const BOUND: f64 = 4e-3;

/// Their row of the table. The persistent step adds in one order, and both models approximate alike: the two
/// agree in every bit.
pub const FAMILY: &str = "decode steps";

/// The models.
pub fn cases() -> Vec<Case> {
    let with = |kv: CacheType, mixes: &[&'static str]| -> Vec<Case> {
        mixes.iter().map(|&mix| case(Steps { mix, kv })).collect()
    };
    let mut cases =
        with(CacheType::F16, &["q6_k", "q4_k_m", "q5_k", "q2_k", "q8_0", "q4_0", "f16", "bf16", "f32"]);
    cases.extend(with(CacheType::F16, &Format::WITH_CODEBOOK.map(Format::suffix)));
    cases.extend(with(CacheType::Q8_0, &["q4_k_m", "f16"]));
    cases
}

/// The largest difference of a cached number in f16: as much as the kernels that rotate and cache may differ by.
const HALF: f64 = 1e-3;

/// Tolerance of the logits of each step beyond [`BOUND`], for two results: where their q8_0 caches differ,
/// the effect of that in the model.
fn effect_of_caches(steps: Steps, a: &[Vec<u32>], b: &[Vec<u32>]) -> Vec<f64> {
    if steps.kv == CacheType::F16 || a[STEPS..] == b[STEPS..] {
        return Vec::new();
    }
    // Without a model nothing more is allowed.
    let model = Runner::open(Selector::Sim);
    let effects = model.and_then(|model| steps.effect_of_caches(model.device(), a, b));
    effects
        .inspect_err(|error| tracing::error!("what caches change is not known: {error:#}"))
        .unwrap_or_default()
}

fn case(steps: Steps) -> Case {
    // An empty list names no word, which then counts as one that nothing set: the run reports why.
    let cached = steps.cached().unwrap_or_default();
    Case {
        family: FAMILY,
        program: format!("stream, {}, cache in {:?}", steps.mix, steps.kv),
        seed: SEED,
        cubins: [&[]; 2],
        kernel: "stream".to_owned(),
        config: LaunchConfig::new(1, 1),
        launches: Vec::new(),
        buffers: Vec::new(),
        work: Some(Box::new(move |device| steps.run(device))),
        slack: Some(Box::new(move |a, b| effect_of_caches(steps, a, b))),
        place: Box::new(move |buffer, word| match buffer.checked_sub(STEPS) {
            None => {
                let what = format!("logit of token {word} after step {buffer}");
                Some(Place { what, tolerance: Tolerance::Single { ulps: 0, absolute: BOUND } })
            }
            Some(step) => {
                let (name, tolerance) = match cached.get(word)? {
                    Cached::Half => ("f16", Tolerance::Halves { ulps: 1, absolute: HALF }),
                    Cached::Code => ("code", Tolerance::Steps { steps: 1 }),
                    Cached::Scale => ("scale", Tolerance::Halves { ulps: 1, absolute: 0.0 }),
                };
                Some(Place { what: format!("{name} {word} that step {step} caches"), tolerance })
            }
        }),
        ..Case::blank()
    }
}
