//! The reference reads the file by itself: a mistake in the configuration that an engine reads is found.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::gguf::Value;
use ga10b_llm::{Decoder, Model, Reference};

use crate::craft::Craft;

/// Logits of a story.
fn logits(model: &Model) -> Vec<Vec<f32>> {
    let mut reference = Reference::new(model, 16).unwrap();
    (0..12).map(|i| reference.step(i * 31 % 1024).unwrap()).collect()
}

fn nmse(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let mut comparison = Comparison::new();
    a.iter().zip(b).for_each(|(a, b)| comparison.add(a, b));
    comparison.nmse()
}

#[test]
fn the_reference_shares_no_scaling_with_the_configuration() {
    let scaled = Craft::new("tiny-llama:f16").key("llama.rope.scaling.factor", Value::F32(4.0));
    let mut model = scaled.model().unwrap();
    let wanted = logits(&model);
    let plain = logits(&Craft::new("tiny-llama:f16").model().unwrap());
    assert!(nmse(&wanted, &plain) > 100.0 * Bounds::FLOAT.nmse, "the factor changes nothing");
    // A configuration that missed the key.
    model.config.rope_factors = None;
    model.config.rope_base = 1.0;
    assert_eq!(logits(&model), wanted);
}

#[test]
fn the_two_readings_of_scaling_agree() {
    let text = |v: &str| Value::String(v.into());
    let key = |name: &str| format!("llama.rope.{name}");
    for keys in [
        vec![],
        vec![("scaling.factor", Value::F32(4.0))],
        vec![("scale_linear", Value::F32(2.0))],
        vec![("scaling.type", text("linear")), ("scaling.factor", Value::F32(8.0))],
        vec![("scaling.type", text("none")), ("scaling.factor", Value::F32(8.0))],
        vec![("scaling.type", text("llama3"))],
        vec![
            ("scaling.type", text("yarn")),
            ("scaling.factor", Value::F32(4.0)),
            ("scaling.original_context_length", Value::U32(1000)),
        ],
        vec![
            ("scaling.type", text("llama3")),
            ("scaling.factor", Value::F32(32.0)),
            ("scaling.original_context_length", Value::U32(8192)),
            ("without the tensor", Value::Bool(true)),
        ],
    ] {
        let mut craft = Craft::new("tiny-llama:f16");
        let (keys, flags): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|(name, _)| name.starts_with("scal"));
        if !flags.is_empty() {
            craft = craft.without("rope_freqs.weight");
        }
        for (name, value) in &keys {
            craft = craft.key(&key(name), value.clone());
        }
        let model = craft.model().unwrap();
        let found = Reference::new(&model, 1).unwrap().frequencies().to_vec();
        for (a, b) in found.iter().zip(model.config.rope_frequencies(false, 1)) {
            assert!((a - b).abs() <= 1e-6 * b, "{keys:?}: {a} {b}");
        }
    }
}
