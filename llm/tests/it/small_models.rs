//! The persistent step where a phase has less work than warps: many of them leave early, others still wait at
//! barriers with a count.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Mode, Reference};

use crate::open::device;

#[test]
fn steps_of_models_smaller_than_a_block_agree_with_the_reference() {
    let device = device();
    for (seed, (mix, head, hidden, ff)) in [
        ("q8_0", 48, 96, 64),
        ("f16", 48, 64, 32),
        ("q8_0", 64, 128, 96),
        ("f16", 80, 128, 96),
        ("q8_0", 96, 96, 96),
        ("f16", 112, 128, 64),
    ]
    .into_iter()
    .enumerate()
    {
        let synthesis: Synthesis = format!("tiny-llama:{mix}").parse().unwrap();
        let synthesis = synthesis.with_sizes(2, hidden, ff).with_head_dim(head);
        let model = synthesis.model(seed as u64 % 3).unwrap();
        let mut engine =
            Engine::new(&device, &model, &EngineOptions::new(16).with_mode(Mode::Stream)).unwrap();
        let mut reference = Reference::new(&model, 16).unwrap();
        let mut comparison = Comparison::new();
        for token in [1, 7, 500, 1022, 7] {
            comparison.add(&reference.step(token).unwrap(), &engine.step(token).unwrap());
        }
        let nmse = comparison.nmse();
        let bound = Bounds::of_cache(CacheType::F16).nmse;
        assert!(nmse < bound, "{mix}, heads of {head}, width {hidden}, feed-forward {ff}: NMSE {nmse:e}");
    }
}
