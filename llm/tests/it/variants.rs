//! Files of a known architecture with more than its usual tensors: biases of attention in `llama`, factors for
//! short and long contexts (longrope).
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::engine::check;
use ga10b_llm::gguf::Value;
use ga10b_llm::session::{Reader, Session};
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Error, Mode, Model, Reference};

use crate::craft::Craft;
use crate::open::device;

/// More tokens than the trained context of [`longrope`] has positions.
const STORY: [u32; 10] = [1, 7, 500, 1022, 7, 3, 9, 11, 200, 31];
/// The trained context.
const TRAINED: usize = 8;

fn reference(model: &Model, context: usize) -> Vec<Vec<f32>> {
    let mut reference = Reference::new(model, context).unwrap();
    STORY[..context.min(STORY.len())].iter().map(|token| reference.step(*token).unwrap()).collect()
}

fn nmse(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let mut comparison = Comparison::new();
    a.iter().zip(b).for_each(|(a, b)| comparison.add(a, b));
    comparison.nmse()
}

/// Steps and a prompt in `context` positions, in a mode.
fn agrees(model: &Model, mode: Mode, context: usize, name: &str) {
    let wanted = reference(model, context);
    let options = EngineOptions::new(context).with_mode(mode);
    let mut engine = Engine::new(&device(), model, &options).unwrap();
    assert_eq!(engine.mode(), mode, "{name}");
    let story = &STORY[..wanted.len()];
    let steps: Vec<_> = story.iter().map(|token| engine.step(*token).unwrap()).collect();
    engine.reset().unwrap();
    let prompt = engine.prefill(story).unwrap();
    let found = [nmse(&wanted, &steps), nmse(&wanted[wanted.len() - 1..], &[prompt])];
    eprintln!("{name}, {mode:?}: NMSE {:.1e} of steps, {:.1e} of a prompt", found[0], found[1]);
    let bound = Bounds::of_cache(CacheType::F16).nmse;
    assert!(found.iter().all(|nmse| *nmse < bound), "{name} {mode:?}: {found:?}");
}

/// Numbers that differ from each other and from zero.
fn numbers(count: usize, least: f32, most: f32) -> Vec<f32> {
    (0..count).map(|i| least + (most - least) * (i * 37 % 101) as f32 / 101.0).collect()
}

/// Biases of both layers, of the second alone with one missing, and of attention's results.
#[test]
fn biases_of_attention_in_llama_agree_with_the_reference() {
    let lengths = [("attn_q", 512), ("attn_k", 128), ("attn_v", 128), ("attn_output", 512)];
    let with = |craft: Craft, layer: usize, roles: &[usize]| {
        roles.iter().map(|role| lengths[*role]).fold(craft, |craft, (role, count)| {
            craft.with(&format!("blk.{layer}.{role}.bias"), numbers(count, -0.5, 0.4))
        })
    };
    let base = |mix: &str| Craft::new(&format!("tiny-llama:{mix}"));
    let plain = reference(&base("q8_0").model().unwrap(), 10);
    let heads = with(with(base("q8_0"), 0, &[0, 1, 2]), 1, &[0, 1, 2]).model().unwrap();
    let some = with(base("q8_0"), 1, &[0, 2]).model().unwrap();
    let all = with(with(base("q8_0"), 0, &[0, 1, 2, 3]), 1, &[3]).model().unwrap();
    for (name, model) in [("queries, keys, values", &heads), ("no keys", &some), ("results", &all)] {
        let changed = nmse(&plain, &reference(model, 10));
        assert!(changed > 10.0 * Bounds::FLOAT.nmse, "{name}: biases change {changed:e}");
        agrees(model, Mode::Batch, 10, name);
    }
    agrees(&heads, Mode::Stream, 10, "queries, keys, values");
    agrees(&some, Mode::Stream, 10, "no keys");
    assert_eq!(Engine::step_kernel_lacks(&all.config, 10), Some("biases of attention's results"));

    let short = base("q8_0").with("blk.0.attn_q.bias", vec![0.5; 500]).model();
    assert!(matches!(short, Err(Error::TensorShape { name, .. }) if name == "blk.0.attn_q.bias"));
    let other = base("q8_0").with("blk.0.ffn_up.bias", vec![0.5; 1024]).model();
    assert!(matches!(other, Err(Error::UnexpectedTensor { name, .. }) if name == "blk.0.ffn_up.bias"));
}

/// A model with factors for contexts of up to [`TRAINED`] positions and for longer ones, of `rope_dim` of the 64
/// values of a head.
fn longrope(shape: &str, mix: &str, rope_dim: usize) -> Craft {
    let name = if shape == "tiny-phi4" { "phi3" } else { "llama" };
    let key = |key: &str| format!("{name}.rope.{key}");
    let craft = Craft::new(&format!("{shape}:{mix}"));
    let craft = if name == "llama" { craft.without("rope_freqs.weight") } else { craft };
    craft
        .key(&key("dimension_count"), Value::U32(rope_dim as u32))
        .key(&key("scaling.attn_factor"), Value::F32(1.19))
        .key(&key("scaling.original_context_length"), Value::U32(TRAINED as u32))
        .with("rope_factors_short.weight", numbers(rope_dim / 2, 1.0, 1.5))
        .with("rope_factors_long.weight", numbers(rope_dim / 2, 2.0, 40.0))
}

/// Phi-4 mini rotates three quarters of a head: the rest is not lengthened.
#[test]
fn longrope_agrees_with_the_reference_on_both_sides_of_the_trained_context() {
    for (shape, mix, rope_dim) in
        [("tiny-phi4", "q6_k", 64), ("tiny-phi4", "q4_k_m", 48), ("tiny-llama", "q8_0", 48)]
    {
        let model = longrope(shape, mix, rope_dim).model().unwrap();
        for (context, mode) in
            [(TRAINED, Mode::Stream), (TRAINED, Mode::Batch), (10, Mode::Stream), (10, Mode::Batch)]
        {
            agrees(&model, mode, context, &format!("{shape}:{mix}, {rope_dim} of 64, {context} positions"));
        }
    }
}

#[test]
fn each_part_of_longrope_changes_the_logits() {
    let craft = || longrope("tiny-phi4", "f16", 48);
    let base = craft().model().unwrap();
    let (short, long) = (reference(&base, TRAINED), reference(&base, 10));
    let far = |a: &[Vec<f32>], b: &[Vec<f32>], what: &str| {
        let nmse = nmse(a, b);
        assert!(nmse > 10.0 * Bounds::FLOAT.nmse, "{what} changes the logits by {nmse:e}");
    };
    far(&short, &long[..TRAINED], "the context");
    let plain = craft().key("phi3.rope.scaling.attn_factor", Value::F32(1.0)).model().unwrap();
    far(&long, &reference(&plain, 10), "the attention factor");
    // Each side has its own factors alone.
    let halved = craft().scaled("rope_factors_long.weight", 0.5);
    assert_eq!(halved.model().unwrap().config.rope_factors, base.config.rope_factors);
    let (first, second) =
        (base.config.rope_frequencies(false, TRAINED), base.config.rope_frequencies(false, 9));
    assert!(first.iter().zip(&second).skip(1).all(|(a, b)| a > b), "{first:?} {second:?}");
    for context in [1, TRAINED, TRAINED + 1] {
        let of_reference = Reference::new(&base, context).unwrap().frequencies().to_vec();
        for (a, b) in of_reference.iter().zip(base.config.rope_frequencies(false, context)) {
            assert!((a - b).abs() <= 1e-6 * b, "{context}: {a} {b}");
        }
    }
}

#[test]
fn a_half_of_longrope_and_unusual_beside_it_are_refused_by_name() {
    let refused = |craft: Craft, wanted: &str| {
        let text = craft.model().unwrap_err().to_string();
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    };
    let text = |v: &str| Value::String(v.into());
    refused(
        longrope("tiny-phi4", "f16", 64).without("rope_factors_long.weight"),
        "\"rope_factors_long.weight\"",
    );
    refused(
        longrope("tiny-phi4", "f16", 64).without("rope_factors_short.weight"),
        "\"rope_factors_short.weight\"",
    );
    let alone = Craft::new("tiny-phi4:f16").key("phi3.rope.scaling.type", text("longrope"));
    refused(alone, "\"rope_factors_short.weight\" is missing");
    refused(
        longrope("tiny-phi4", "f16", 64).key("phi3.rope.dimension_count", Value::U32(62)),
        "the metadata implies [31]",
    );
    refused(
        longrope("tiny-phi4", "f16", 64).key("phi3.rope.scaling.type", text("su")),
        "longrope are supported",
    );
    let both = longrope("tiny-phi4", "f16", 64).with("rope_freqs.weight", vec![1.0; 32]);
    refused(both, "\"rope_factors_");
    for (shape, name) in [("tiny-qwen3", "qwen3"), ("tiny-smollm3", "smollm3"), ("tiny-gemma3", "gemma3")] {
        let craft =
            Craft::new(&format!("{shape}:f16")).key(&format!("{name}.rope.dimension_count"), Value::U32(16));
        let key = format!("{name}.rope.scaling.attn_factor");
        refused(craft.key(&key, Value::F32(1.2)), &key);
    }
}

#[test]
fn a_model_without_kernels_is_refused_without_a_device() {
    let synthesis = "tiny-llama:f16".parse::<Synthesis>().unwrap();
    let refused = |head: usize, kv| check(&synthesis.clone().with_head_dim(head).model(3).unwrap(), kv);
    for (head, kv, wanted) in [
        (98, CacheType::F16, "is 98"),
        (260, CacheType::F16, "is 260"),
        (264, CacheType::F16, "is 264"),
        (40, CacheType::Q8_0, "q8_0"),
    ] {
        let text = refused(head, kv).unwrap_err().to_string();
        assert!(text.contains("llama.attention.key_length") && text.contains(wanted), "{text}");
    }
    refused(40, CacheType::F16).unwrap();
    refused(100, CacheType::F16).unwrap();
    let normed = "tiny-qwen3:f16".parse::<Synthesis>().unwrap().with_head_dim(100).model(3).unwrap();
    let text = check(&normed, CacheType::F16).unwrap_err().to_string();
    assert!(text.contains("qwen3.attention.key_length") && text.contains("normalized"), "{text}");
}

/// OpenLLaMA 3B has heads of 100, which take 104 values on a device. Neighbours and halves of a head rotate; prompts
/// of the last two go in chunks.
#[test]
fn heads_that_are_padded_agree_with_the_reference() {
    for (shape, heads, head) in [
        ("tiny-llama:q4_0", 8, 100),
        ("tiny-qwen2:q8_0", 8, 60),
        ("tiny-llama:q8_0", 16, 12),
        ("tiny-qwen2:q4_0", 16, 20),
    ] {
        let synthesis: Synthesis = shape.parse().unwrap();
        let model = synthesis.with_heads(heads).with_head_dim(head).model(3).unwrap();
        for mode in Mode::ALL {
            agrees(&model, mode, 10, &format!("{shape}, {heads} heads of {head}"));
        }
    }
}

/// Keys of a short context are rotated otherwise than those of a long one.
#[test]
fn a_session_stays_on_its_side_of_the_trained_context() {
    let model = longrope("tiny-phi4", "q6_k", 64).model().unwrap();
    let engine = |context| {
        Engine::new(&device(), &model, &EngineOptions::new(context).with_mode(Mode::Batch)).unwrap()
    };
    let mut short = engine(6);
    short.prefill(&STORY[..3]).unwrap();
    let mut file = Vec::new();
    short.save(&model, &Session { tokens: STORY[..3].to_vec(), messages: None }, &mut file).unwrap();
    let mut same = engine(TRAINED);
    same.load(&model, Reader::begin(&file[..]).unwrap()).unwrap();
    let wanted = short.step(7).unwrap();
    assert_eq!(same.step(7).unwrap(), wanted);
    let error = engine(TRAINED + 1).load(&model, Reader::begin(&file[..]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("rotates otherwise in long contexts"), "{error}");
}
