//! Activations that leave the range of f16 change no text, in prompts either.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Error, Mode, Model, Reference};
use ga10b_oracles::sample;

use crate::craft::Craft;
use crate::open::device;

/// Compares a prompt, which is processed in `chunks` or not, and the step after it with the reference.
fn compared(model: &Model, kv: CacheType, chunks: bool, what: &str) {
    let options = EngineOptions::new(48).with_mode(Mode::Batch).with_cache(kv);
    let mut engine = Engine::new(&device(), model, &options).unwrap();
    let mut reference = Reference::with_cache(model, 48, kv).unwrap();
    let prompt: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 1024).collect();
    let mut comparison = Comparison::new();
    engine.start_trace().unwrap();
    let found = engine.prefill(&prompt).unwrap();
    let in_chunks = engine.take_trace().iter().any(|launch| launch.name.starts_with("embed_prompt"));
    assert_eq!(in_chunks, chunks, "{what}: whether the prompt is processed in chunks");
    comparison.add(&reference.prefill(&prompt).unwrap(), &found);
    comparison.add(&reference.step(500).unwrap(), &engine.step(500).unwrap());
    let nmse = comparison.nmse();
    assert!(nmse < Bounds::of_cache(kv).nmse, "{what}: NMSE {nmse:e}");
}

#[test]
fn a_feed_forward_vector_past_the_largest_f16_changes_no_text() {
    for mix in ["q6_k", "q4_k_m", "f16"] {
        for factor in [400.0, 2000.0] {
            let name = format!("tiny-llama:{mix}");
            let model = Craft::new(&name).scaled("blk.0.ffn_norm.weight", factor).model().unwrap();
            compared(&model, CacheType::F16, true, &format!("{mix}, norm times {factor}"));
        }
    }
}

#[test]
fn activations_of_experts_past_the_largest_f16_change_no_text() {
    let craft = Craft::new("tiny-olmoe:f16").scaled("blk.0.ffn_up_exps.weight", 32768.0);
    compared(&craft.model().unwrap(), CacheType::F16, true, "experts");
}

#[test]
fn queries_past_the_largest_f16_change_no_text() {
    let craft = Craft::new("tiny-llama:f16").scaled("blk.0.attn_q.weight", 32768.0);
    let model = craft.scaled("blk.0.attn_k.weight", 1.0 / 8192.0).model().unwrap();
    compared(&model, CacheType::F16, true, "queries");
}

#[test]
fn keys_and_values_that_only_a_cache_in_q8_0_holds_change_no_text() {
    let craft = Craft::new("tiny-llama:f16").scaled("blk.0.attn_q.weight", 1.0 / 8192.0);
    let model = craft.scaled("blk.0.attn_k.weight", 32768.0).model().unwrap();
    compared(&model, CacheType::Q8_0, true, "keys");
    let model = Craft::new("tiny-llama:f16").scaled("blk.0.attn_v.weight", 40000.0).model().unwrap();
    compared(&model, CacheType::Q8_0, true, "values");
}

/// The normalized vector itself leaves f16: such a model's prompts are batch steps.
#[test]
fn norms_past_the_largest_f16_change_no_text() {
    let model = Craft::new("tiny-llama:q6_k").scaled("blk.0.ffn_norm.weight", 1e6).model().unwrap();
    compared(&model, CacheType::F16, false, "norm");
}

fn failure(craft: &Craft, mode: Mode, kv: CacheType, prompt: &[u32]) -> Error {
    let options = EngineOptions::new(48).with_mode(mode).with_cache(kv);
    let model = craft.model().unwrap();
    let mut engine = match Engine::new(&device(), &model, &options) {
        Ok(engine) => engine,
        Err(error) => return error,
    };
    match engine.prefill(prompt) {
        Ok(_) => engine.step_greedy(7).unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn weights_that_are_no_numbers_stop_with_the_layer_and_the_phase() {
    let long: Vec<u32> = (0..40).collect();
    for (value, tensor, layer, phase) in [
        (f32::NAN, "blk.1.ffn_down.weight", 1, "down"),
        (f32::INFINITY, "blk.0.ffn_up.weight", 0, "gate up"),
        (f32::NAN, "blk.0.attn_k.weight", 0, "q k v"),
        (f32::NAN, "blk.1.attn_norm.weight", 1, "attention norm"),
    ] {
        let craft = Craft::new("tiny-llama:f16").value(tensor, 5, value);
        for (mode, prompt) in [(Mode::Batch, &long[..]), (Mode::Batch, &[3]), (Mode::Stream, &[3])] {
            let error = failure(&craft, mode, CacheType::F16, prompt);
            let text = error.to_string();
            assert!(text.contains(&format!("layer {layer} ")) && text.contains(phase), "{tensor}: {text}");
        }
    }
}

#[test]
fn keys_past_the_cache_are_named() {
    let long: Vec<u32> = (0..40).collect();
    for tensor in ["blk.1.attn_k.weight", "blk.1.attn_v.weight"] {
        let craft = Craft::new("tiny-llama:f16").scaled(tensor, 1e5);
        for prompt in [&long[..], &[3, 1]] {
            let error = failure(&craft, Mode::Batch, CacheType::F16, prompt);
            assert!(matches!(error, Error::CacheRange { layer: 1, .. }), "{tensor}: {error}");
            assert!(error.to_string().contains("--kv q8_0"), "{error}");
        }
    }
}

#[test]
fn an_engine_goes_on_after_values_that_are_no_numbers() {
    // The embedding of one token alone is damaged.
    let craft = Craft::new("tiny-llama:f16").value("token_embd.weight", 512 * 9, f32::NAN);
    let model = craft.model().unwrap();
    let mut engine = Engine::new(&device(), &model, &EngineOptions::new(32).with_mode(Mode::Batch)).unwrap();
    let error = engine.prefill(&[3, 9, 4]).unwrap_err();
    assert!(matches!(error, Error::NotFinite { phase: "embedding", layer: None, position: 1 }), "{error}");
    assert_eq!(engine.position(), 0);
}

/// A cap makes a number of an infinity.
#[test]
fn an_infinite_logit_is_found_under_a_cap() {
    let craft = Craft::new("tiny-gemma2:f16").value("token_embd.weight", 512 * 5 + 3, f32::INFINITY);
    let long: Vec<u32> = (10..50).collect();
    for prompt in [&long[..], &[11]] {
        let error = failure(&craft, Mode::Batch, CacheType::F16, prompt);
        assert!(matches!(error, Error::NotFinite { .. }), "{error}");
    }
}

/// A whole step computes in integers, so what is no number in the cache need not be seen in the logits.
#[test]
fn a_value_past_the_cache_in_the_middle_of_a_text_is_found_at_its_end() {
    let craft = Craft::new("tiny-llama:f16").value("token_embd.weight", 9 * 512 + 5, 20000.0);
    let model = craft.value("blk.0.attn_v.weight", 5, 6000.0).model().unwrap();
    let options = EngineOptions::new(32).with_mode(Mode::Stream);
    let mut engine = Engine::new(&device(), &model, &options).unwrap();
    engine.prefill(&[3]).unwrap();
    engine.step(7).unwrap();
    engine.check().unwrap();
    let found = engine.step(9).and_then(|_| engine.step(4)).and_then(|_| engine.check());
    let error = found.unwrap_err();
    assert!(matches!(error, Error::CacheRange { layer: 0, position: 2, .. }), "{error}");
    assert_eq!(engine.position(), 0);
}

/// The squares of such embeddings leave single precision, and such weights leave f16, to which batch steps round
/// numbers.
#[test]
fn values_that_are_far_too_large_stop_with_the_layer_and_the_phase() {
    let long: Vec<u32> = (0..40).collect();
    let cases = vec![
        ("tiny-llama", "token_embd.weight", "layer 0", "attention norm"),
        ("tiny-llama", "blk.0.attn_output.weight", "layer 0", "attention output"),
        ("tiny-llama", "blk.1.ffn_down.weight", "layer 1", "down"),
        ("tiny-qwen3", "blk.1.attn_q.weight", "layer 1", "q k v"),
        ("tiny-gpt2", "blk.0.attn_output.weight", "layer 0", "attention output"),
    ];
    for (shape, tensor, layer, phase) in sample("values that are far too large", cases, 2) {
        let craft = Craft::new(&format!("{shape}:f32")).scaled(tensor, 1e22);
        for (mode, prompt) in Mode::ALL.iter().flat_map(|mode| [(*mode, &long[..]), (*mode, &[3])]) {
            let text = failure(&craft, mode, CacheType::Q8_0, prompt).to_string();
            assert!(text.contains(layer) && text.contains(phase), "{tensor}, {mode:?}: {text}");
        }
    }
}

/// One token alone has such an embedding: the persistent step gives zeros for it, and keys of zeros.
#[test]
fn a_token_whose_squares_are_infinite_is_found_at_once_or_at_the_end_of_the_text() {
    // The output matrix is another.
    let width = Craft::new("tiny-phi4:f32").model().unwrap().config.hidden;
    let craft = Craft::new("tiny-phi4:f32").value("token_embd.weight", width * 9 + 5, 1e25);
    let model = craft.model().unwrap();
    let options = EngineOptions::new(32).with_mode(Mode::Stream);
    let mut engine = Engine::new(&device(), &model, &options).unwrap();
    assert_eq!(engine.mode(), Mode::Stream);
    let named = |error: Error| {
        let named =
            matches!(error, Error::NotFinite { phase: "attention norm", layer: Some(0), position: 1 });
        assert!(named, "{error}");
    };
    engine.prefill(&[3]).unwrap();
    named(engine.step_greedy(9).unwrap_err());
    assert_eq!(engine.position(), 0);
    engine.prefill(&[3]).unwrap();
    named(engine.step(9).unwrap_err());
    engine.prefill(&[3]).unwrap();
    engine.check().unwrap();
    named(engine.prefill(&[9, 4]).unwrap_err());
}

/// Zeros that the model computes are no error.
#[test]
fn logits_of_zeros_are_an_answer_where_the_output_is_zero() {
    let model = Craft::new("tiny-llama:f32").scaled("output_norm.weight", 0.0).model().unwrap();
    for mode in Mode::ALL {
        let options = EngineOptions::new(32).with_mode(mode);
        let mut engine = Engine::new(&device(), &model, &options).unwrap();
        assert_eq!(engine.prefill(&[3, 9]).unwrap(), vec![0.0; 1024]);
        assert_eq!(engine.step_greedy(7).unwrap(), 0);
        assert_eq!(engine.step_greedy(0).unwrap(), 0);
        assert_eq!(engine.position(), 4);
        engine.check().unwrap();
    }
}
