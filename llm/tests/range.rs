//! Activations that leave the range of f16 change no text, in prompts either.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

mod craft;
mod open;

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Mode, Model, Reference};

use craft::Craft;
use open::device;

/// Compares a prompt, and the step after it, with the reference. Returns the logits after the prompt.
fn compared(model: &Model, kv: CacheType, what: &str) -> Vec<f32> {
    let options = EngineOptions::new(32).with_mode(Mode::Operations).with_cache(kv);
    let mut engine = Engine::new(&device(), model, &options).unwrap();
    let mut reference = Reference::with_cache(model, 32, kv).unwrap();
    let prompt: Vec<u32> = (0..20).map(|i| (i * 37 + 11) % 1024).collect();
    let mut comparison = Comparison::new();
    let found = engine.prefill(&prompt).unwrap();
    comparison.add(&reference.prefill(&prompt).unwrap(), &found);
    comparison.add(&reference.step(500).unwrap(), &engine.step(500).unwrap());
    let nmse = comparison.nmse();
    assert!(nmse < Bounds::of_cache(kv).nmse, "{what}: NMSE {nmse:e}");
    found
}

#[test]
fn a_feed_forward_vector_past_the_largest_f16_changes_no_text() {
    for mix in ["q6_k", "q4_k_m", "f16"] {
        for factor in [400.0, 2000.0] {
            let name = format!("tiny-llama:{mix}");
            let model = Craft::new(&name).scaled("blk.0.ffn_norm.weight", factor).model().unwrap();
            compared(&model, CacheType::F16, &format!("{mix}, norm times {factor}"));
        }
    }
}

#[test]
fn queries_past_the_largest_f16_change_no_text() {
    let craft = Craft::new("tiny-llama:f16").scaled("blk.0.attn_q.weight", 32768.0);
    let model = craft.scaled("blk.0.attn_k.weight", 1.0 / 8192.0).model().unwrap();
    compared(&model, CacheType::F16, "queries");
}

#[test]
fn keys_and_values_that_only_a_cache_in_q8_0_holds_change_no_text() {
    let craft = Craft::new("tiny-llama:f16").scaled("blk.0.attn_q.weight", 1.0 / 8192.0);
    let model = craft.scaled("blk.0.attn_k.weight", 32768.0).model().unwrap();
    compared(&model, CacheType::Q8_0, "keys");
    let model = Craft::new("tiny-llama:f16").scaled("blk.0.attn_v.weight", 40000.0).model().unwrap();
    compared(&model, CacheType::Q8_0, "values");
}

/// The normalized vector itself leaves f16: such a model's prompts go token by token.
#[test]
fn norms_past_the_largest_f16_change_no_text() {
    let model = Craft::new("tiny-llama:q6_k").scaled("blk.0.ffn_norm.weight", 1e6).model().unwrap();
    compared(&model, CacheType::F16, "norm");
}
