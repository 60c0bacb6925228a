//! Whole decode steps by the step kernel, for each kind of weights and of cache.
//!
//! The two models must agree in every bit: code for sm_87 and for sm_90 adds in the same order. A GPU's
//! approximations (square root, exponential, sine) are its own, and an input near the middle of two integers
//! may become either: its logits differ by a small part of their size.

use ga10b_llm::CacheType;
use hcq::LaunchConfig;

use crate::conformance::case::{Case, Place};
use crate::conformance::steps::{SEED, Steps};
use crate::conformance::tolerance::Tolerance;

/// The largest difference of a logit, of which most are below 4.
const BOUND: f64 = 4e-3;

/// The models.
pub fn cases() -> Vec<Case> {
    let with = |kv: CacheType, mixes: &[&'static str]| -> Vec<Case> {
        mixes.iter().map(|&mix| case(Steps { mix, kv })).collect()
    };
    let mut cases = with(CacheType::F16, &["q6_k", "q4_k_m", "q5_k", "q8_0", "q4_0", "f16", "bf16", "f32"]);
    cases.extend(with(CacheType::Q8_0, &["q4_k_m", "f16"]));
    cases
}

fn case(steps: Steps) -> Case {
    Case {
        family: "decode steps",
        program: format!("stream, {}, cache in {:?}", steps.mix, steps.kv),
        seed: SEED,
        cubins: [&[]; 2],
        kernel: "stream".to_owned(),
        config: LaunchConfig::new(1, 1),
        launches: Vec::new(),
        buffers: Vec::new(),
        steps: Some(steps),
        expected: None,
        by_architecture: false,
        place: Box::new(|step, token| {
            let what = format!("logit of token {token} after step {step}");
            Some(Place { what, tolerance: Tolerance::Single { ulps: 0, absolute: BOUND } })
        }),
    }
}
