//! Every architecture on every way of running it, against the CPU reference, which knows no table of
//! architectures.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::engine::Work;
use ga10b_llm::gguf::Value;
use ga10b_llm::kernels::format::Format;
use ga10b_llm::model::Architecture;
use ga10b_llm::synthesize::{SHAPES, Synthesis};
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Decoder, Engine, EngineOptions, Error, Mode, Model, Reference,
};
use ga10b_oracles::sample;
use hcq::Device;

use crate::craft::Craft;
use crate::open::device;

/// Tokens of a story; the software device is slow.
const STORY: [u32; 5] = [1, 7, 500, 1022, 7];

/// The tiny shapes of all architectures but `llama`, which the other tests take.
fn shapes() -> Vec<&'static str> {
    let tiny = SHAPES.iter().filter(|name| name.starts_with("tiny-") && **name != "tiny-llama");
    tiny.copied().collect()
}

/// Positions of the context.
const CONTEXT: usize = 48;

fn model(shape: &str, mix: &str) -> Model {
    format!("{shape}:{mix}").parse::<Synthesis>().unwrap().model(3).unwrap()
}

fn engine(device: &Device, model: &Model, mode: Mode, kv: CacheType) -> Engine {
    let options = EngineOptions::new(CONTEXT).with_mode(mode).with_cache(kv);
    Engine::new(device, model, &options).unwrap()
}

/// The modes that an architecture has.
fn modes(model: &Model) -> Vec<Mode> {
    let in_one_launch = Engine::step_kernel_lacks(&model.config, CONTEXT).is_none();
    Mode::ALL.into_iter().filter(|mode| in_one_launch || *mode == Mode::Batch).collect()
}

/// The difference that a cache of type `kv` makes after a prompt, beside one in f16.
fn rounding(model: &Model, prompt: &[u32], kv: CacheType) -> Comparison {
    let logits = |kv| {
        let mut reference = Reference::with_cache(model, CONTEXT, kv).unwrap();
        [reference.prefill(prompt).unwrap(), reference.step(500).unwrap()]
    };
    let mut comparison = Comparison::new();
    for (exact, rounded) in logits(CacheType::F16).iter().zip(&logits(kv)) {
        comparison.add(exact, rounded);
    }
    comparison
}

/// Steps, a prompt, and what follows it, within the bounds of `kv`.
fn agrees(device: &Device, model: &Model, mode: Mode, kv: CacheType) {
    let name = model.name().unwrap().to_owned();
    let mut engine = engine(device, model, mode, kv);
    assert_eq!(engine.mode(), mode, "{name}");
    let mut reference = Reference::with_cache(model, CONTEXT, kv).unwrap();
    let mut comparison = Comparison::new();
    for token in STORY {
        comparison.add(&reference.step(token).unwrap(), &engine.step(token).unwrap());
    }
    let steps = comparison.nmse();
    engine.reset().unwrap();
    reference.reset().unwrap();
    let prompt: Vec<u32> = (0..41).map(|i| (i * 37 + 11) % 1024).collect();
    let mut comparison = Comparison::new();
    comparison.add(&reference.prefill(&prompt).unwrap(), &engine.prefill(&prompt).unwrap());
    comparison.add(&reference.step(500).unwrap(), &engine.step(500).unwrap());
    let prompts = comparison.nmse();
    eprintln!("{name}, {mode:?}, {kv:?}: NMSE {steps:.1e} of steps, {prompts:.1e} after a prompt");
    let bounds = Bounds::of_cache(kv);
    // The bounds are those of two dense layers. A deeper model rounds more often, and the shares of experts pass
    // differences on: as in `llm-demo verify`, what is computed from activations in f16 may differ by a part of
    // what the rounding of the cache changes.
    let of_depth = |tokens: &[u32]| match model.config.layers {
        0..=2 if model.config.experts == 0 => bounds,
        _ => bounds.beside(&rounding(model, tokens, kv), 0.75),
    };
    let of_steps = if mode == Mode::Batch { of_depth(&STORY) } else { bounds };
    let of_prompt = of_depth(&prompt);
    let good = steps < of_steps.nmse && prompts < of_prompt.nmse;
    let most = [of_steps.nmse, of_prompt.nmse];
    assert!(good, "{name} {mode:?} {kv:?}: NMSE {steps:e}, {prompts:e} of {most:?}");
}

#[test]
fn every_architecture_agrees_with_the_reference_in_every_mode() {
    let device = device();
    for shape in shapes() {
        let model = model(shape, "q6_k");
        let modes = modes(&model);
        let of = modes.len();
        for mode in sample(format!("modes of {shape}"), modes, of) {
            agrees(&device, &model, mode, CacheType::F16);
        }
    }
}

/// A chunk with several tiles of tokens per expert, whose lists differ in length; the sums have a fixed order.
#[test]
fn a_prompt_through_experts_agrees_and_gives_the_same_bits() {
    let device = device();
    let prompt: Vec<u32> = (0..200).map(|i| (i * 37 + 11) % 1024).collect();
    for mix in sample("experts", vec!["q6_k", "f16"], 2) {
        let model = model("tiny-olmoe", mix);
        let options = EngineOptions::new(256).with_mode(Mode::Batch);
        let mut engine = Engine::new(&device, &model, &options).unwrap();
        engine.start_trace().unwrap();
        let traced = engine.prefill(&prompt).unwrap();
        let trace = engine.take_trace();
        assert!(trace.iter().all(|launch| launch.work == Work::Prompt), "{mix}: not all in chunks");
        assert!(trace.iter().any(|launch| launch.name.starts_with("experts_gemm")), "{mix}: no experts");
        let mut engine = Engine::new(&device, &model, &options).unwrap();
        let found = engine.prefill(&prompt).unwrap();
        assert!(found.iter().zip(&traced).all(|(a, b)| a.to_bits() == b.to_bits()), "{mix}: other bits");
        let mut comparison = Comparison::new();
        comparison.add(&Reference::new(&model, 256).unwrap().prefill(&prompt).unwrap(), &found);
        let nmse = comparison.nmse();
        eprintln!("{mix}: NMSE {nmse:.1e} after a prompt of {} tokens", prompt.len());
        assert!(nmse < Bounds::FLOAT.nmse, "{mix}: NMSE {nmse:e}");
    }
}

/// Files before April 2024 have a tensor for each expert, and may have experts of several types.
#[test]
fn experts_in_tensors_of_their_own_are_those_of_one_tensor() {
    let device = device();
    let prompt: Vec<u32> = (0..40).map(|i| (i * 37 + 11) % 1024).collect();
    for mix in ["q6_k", "f16"] {
        let craft = || Craft::new(&format!("tiny-mixtral:{mix}"));
        let (whole, apart) = (craft().model().unwrap(), craft().experts_apart(4).model().unwrap());
        let reference = |model| Reference::new(model, CONTEXT).unwrap().prefill(&STORY).unwrap();
        assert_eq!(reference(&whole), reference(&apart), "{mix}");
        let logits = |model: &Model| {
            let mut engine = engine(&device, model, Mode::Batch, CacheType::F16);
            [engine.prefill(&prompt).unwrap(), engine.step(7).unwrap()]
        };
        assert_eq!(logits(&whole), logits(&apart), "{mix}, on a device");
    }
    let of_another_type = "blk.1.ffn_down.2.weight";
    let craft = Craft::new("tiny-mixtral:f16").experts_apart(4).mixed(of_another_type, "tiny-mixtral:f32");
    let model = craft.model().unwrap();
    let error = Engine::new(&device, &model, &EngineOptions::new(CONTEXT)).map(drop).unwrap_err();
    assert!(matches!(&error, Error::ExpertTypes { name, .. } if name == of_another_type), "{error}");
}

/// Consumers without a column, with a part of one, and with more than the kernel takes.
#[test]
fn layer_norms_of_any_width_agree_with_the_reference() {
    let device = device();
    let cases = vec![
        (256, "q6_k", Mode::Stream),
        (1600, "q8_0", Mode::Stream),
        (1600, "f16", Mode::Stream),
        (2048, "q4_k_m", Mode::Stream),
        (2112, "q8_0", Mode::Batch),
    ];
    for (hidden, mix, mode) in sample("layer norms of any width", cases, 3) {
        let synthesis: Synthesis = format!("tiny-gpt2:{mix}").parse().unwrap();
        let model = synthesis.with_sizes(2, hidden, 1024).model(5).unwrap();
        assert_eq!(engine(&device, &model, Mode::Stream, CacheType::F16).mode(), mode, "{hidden}");
        agrees(&device, &model, mode, CacheType::F16);
    }
}

/// A residual stream whose mean is 25 times its deviation.
#[test]
fn a_large_mean_costs_a_layer_norm_no_digits() {
    let device = device();
    let hidden = 512;
    let craft = (0..48 * hidden).fold(Craft::new("tiny-gpt2:f16"), |craft, at| {
        craft.value("position_embd.weight", at, 8.0 + (at * 37 % 101) as f32 / 100.0)
    });
    agrees(&device, &craft.model().unwrap(), Mode::Stream, CacheType::F16);
}

#[test]
fn columns_agree_with_the_reference() {
    let device = device();
    for shape in shapes() {
        let model = model(shape, "q6_k");
        let options = ColumnsOptions::new(2, CONTEXT);
        let mut columns = Columns::new(&device, &model, &options).unwrap();
        let ids = [columns.admit().unwrap(), columns.admit().unwrap()];
        let mut references = [0, 1].map(|_| Reference::with_cache(&model, CONTEXT, CacheType::F16).unwrap());
        let mut comparison = Comparison::new();
        for token in STORY {
            columns.step(&[(ids[0], token), (ids[1], token + 1)]).unwrap();
            for (i, reference) in references.iter_mut().enumerate() {
                let expected = reference.step(token + i as u32).unwrap();
                comparison.add(&expected, &columns.logits(i).unwrap());
            }
        }
        let nmse = comparison.nmse();
        assert!(nmse < Bounds::of_cache(CacheType::F16).nmse, "{shape}: NMSE {nmse:e}");
    }
}

#[test]
fn every_architecture_agrees_with_a_quantized_cache_and_other_types() {
    let device = device();
    let types = [("q4_k_m", CacheType::Q8_0), ("f16", CacheType::F16)];
    let cases = shapes().into_iter().flat_map(|shape| types.map(|(mix, kv)| (shape, mix, kv)));
    for (shape, mix, kv) in sample("architectures, other types", cases.collect(), 4) {
        let model = model(shape, mix);
        agrees(&device, &model, modes(&model)[0], kv);
    }
}

/// Types without a format of their own are others on the device, with the same values.
#[test]
fn types_that_are_stored_as_others_agree_with_the_reference() {
    let device = device();
    let mixes = ["q4_1", "q5_0", "q5_1", "q3_k", "iq4_nl", "iq4_xs", "mxfp4", "iq1_s"];
    let cases = mixes.into_iter().flat_map(|mix| ["tiny-llama", "tiny-qwen2"].map(|shape| (shape, mix)));
    for (shape, mix) in sample("types stored as others", cases.collect(), 4) {
        agrees(&device, &model(shape, mix), Mode::Stream, CacheType::F16);
    }
}

/// Types with a codebook take the file's bytes on the device, and have a persistent step of their own.
#[test]
fn types_with_a_codebook_agree_with_the_reference() {
    let device = device();
    let mixes = Format::WITH_CODEBOOK.map(Format::suffix);
    let cases: Vec<_> = mixes.into_iter().flat_map(|mix| Mode::ALL.map(|mode| (mix, mode))).collect();
    for (mix, mode) in sample("types with a codebook", cases, 3) {
        agrees(&device, &model("tiny-llama", mix), mode, CacheType::F16);
    }
    // As llama.cpp mixes types in a file of IQ2_XXS, and some more.
    let mixed = [
        ("attn_k", "iq2_s"),
        ("attn_v", "q4_k"),
        ("attn_output", "iq3_xxs"),
        ("ffn_down", "q2_k"),
        ("token_embd", "iq3_s"),
        ("output.weight", "q5_k"),
    ];
    let craft = mixed.into_iter().fold(Craft::new("tiny-llama:iq2_xxs"), |craft, (part, mix)| {
        craft.mixed(part, &format!("tiny-llama:{mix}"))
    });
    agrees(&device, &craft.model().unwrap(), Mode::Stream, CacheType::Q8_0);
    // Layers that the step kernel has no codebooks for.
    let plain = engine(&device, &model("tiny-gpt2", mixes[0]), Mode::Stream, CacheType::F16);
    assert_eq!(plain.mode(), Mode::Batch);
}

/// Yarn slows some pairs down, and lengthens queries and keys.
#[test]
fn yarn_agrees_with_the_reference_in_every_mode() {
    let device = device();
    for (shape, name) in [("tiny-llama", "llama"), ("tiny-qwen3", "qwen3")] {
        let key = |name_of: &str| format!("{name}.rope.scaling.{name_of}");
        let base = || Craft::new(&format!("{shape}:f16")).without("rope_freqs.weight");
        let craft = base()
            .key(&key("type"), Value::String("yarn".into()))
            .key(&key("factor"), Value::F32(4.0))
            .key(&key("original_context_length"), Value::U32(64));
        let model = craft.model().unwrap();
        for mode in Mode::ALL {
            agrees(&device, &model, mode, CacheType::F16);
        }
        let logits = |model: &Model| Reference::new(model, 16).unwrap().prefill(&STORY).unwrap();
        let mut comparison = Comparison::new();
        comparison.add(&logits(&base().model().unwrap()), &logits(&model));
        assert!(
            comparison.nmse() > 10.0 * Bounds::FLOAT.nmse,
            "{shape}: yarn changes {:e}",
            comparison.nmse()
        );
    }
}

/// Keys of gemma's files, and the results of files with other numbers: each key counts.
#[test]
fn caps_windows_and_bases_change_the_logits() {
    let logits = |model: &Model| Reference::new(model, 16).unwrap().prefill(&STORY).unwrap();
    for (shape, key, value) in [
        ("tiny-gemma2", "gemma2.attn_logit_softcapping", Value::F32(50.0)),
        ("tiny-gemma2", "gemma2.final_logit_softcapping", Value::F32(30.0)),
        ("tiny-gemma2", "gemma2.attention.sliding_window", Value::U32(3)),
        ("tiny-gemma3", "gemma3.final_logit_softcapping", Value::F32(4.0)),
        ("tiny-gemma3", "gemma3.attention.sliding_window", Value::U32(3)),
        ("tiny-gemma3", "gemma3.rope.freq_base", Value::F32(100.0)),
        ("tiny-gemma3", "gemma3.rope.freq_base_swa", Value::F32(100.0)),
        ("tiny-mistral", "llama.attention.sliding_window", Value::U32(0)),
    ] {
        let base = Craft::new(&format!("{shape}:f16"));
        let wanted = logits(&base.model().unwrap());
        let changed = base.key(key, value).model().unwrap();
        let mut comparison = Comparison::new();
        comparison.add(&wanted, &logits(&changed));
        assert!(comparison.nmse() > 1e-5, "{shape}: {key} changes the logits by {:e}", comparison.nmse());
        let mut engine = engine(&device(), &changed, Mode::Batch, CacheType::F16);
        let mut comparison = Comparison::new();
        comparison.add(&logits(&changed), &engine.prefill(&STORY).unwrap());
        assert!(comparison.nmse() < Bounds::FLOAT.nmse, "{shape}, {key}: NMSE {:e}", comparison.nmse());
    }
}

#[test]
fn caps_that_single_precision_cannot_compute_are_refused() {
    for key in ["gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping"] {
        let model = Craft::new("tiny-gemma2:f16").key(key, Value::F32(1e5)).model();
        let text = model.unwrap_err().to_string();
        assert!(text.contains(key) && text.contains("at most 10000"), "{text}");
    }
}

/// Yarn would lengthen queries and keys of some layers alone: those without a window, those that rotate.
#[test]
fn yarn_beside_another_rotation_is_refused() {
    for name in ["gemma3", "smollm3"] {
        let craft = Craft::new(&format!("tiny-{name}:f16"));
        let key = format!("{name}.rope.scaling.type");
        let text = craft.key(&key, Value::String("yarn".into())).model().unwrap_err().to_string();
        assert!(text.contains(&key) && text.contains("yarn"), "{text}");
    }
}

/// A window of no fewer positions than the context has limits nothing.
#[test]
fn a_window_of_the_whole_context_takes_the_step_kernel() {
    let (device, model) = (device(), model("tiny-mistral", "f16"));
    let window = model.config.window.unwrap().positions;
    assert_eq!(Engine::step_kernel_lacks(&model.config, window), None);
    assert_eq!(Engine::step_kernel_lacks(&model.config, window + 1), Some("windows of positions"));
    let mut engine = Engine::new(&device, &model, &EngineOptions::new(window)).unwrap();
    assert_eq!(engine.mode(), Mode::Stream);
    let mut reference = Reference::new(&model, window).unwrap();
    let mut comparison = Comparison::new();
    comparison.add(&reference.prefill(&STORY[..window]).unwrap(), &engine.prefill(&STORY[..window]).unwrap());
    assert!(comparison.nmse() < Bounds::FLOAT.nmse, "NMSE {:e}", comparison.nmse());
}

/// Scores of the largest gemma models are divided by another number than a head's length.
#[test]
fn scores_of_the_largest_models_are_scaled_by_their_width() {
    for (shape, layers) in [("tiny-gemma2", 46), ("tiny-gemma3", 62)] {
        let synthesis = format!("{shape}:q8_0").parse::<Synthesis>().unwrap().with_sizes(layers, 256, 256);
        let model = synthesis.model(3).unwrap();
        let c = &model.config;
        let scale = 1.0 / ((256 / c.heads) as f32).sqrt();
        assert!(c.head_dim != 256 / c.heads && (c.score_scale() - scale).abs() < 1e-9, "{shape}");
    }
}

#[test]
fn there_is_a_tiny_shape_of_every_architecture() {
    let mut found: Vec<&str> =
        shapes().into_iter().map(|s| model(s, "q8_0").config.architecture.name).collect();
    found.push("llama");
    found.sort_unstable();
    found.dedup();
    let mut wanted = Architecture::ALL.map(|a| a.name);
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

/// Each way in which an architecture differs from `llama` counts in the synthesized models: a reference and
/// an engine that both left it out would not pass unseen.
#[test]
fn what_only_some_architectures_have_changes_the_logits() {
    for (shape, tensor, factor) in [
        ("tiny-qwen2", "blk.0.attn_q.bias", 0.0),
        ("tiny-qwen2", "blk.0.attn_k.bias", 0.0),
        ("tiny-qwen2", "blk.1.attn_v.bias", 0.0),
        ("tiny-qwen3", "blk.0.attn_q_norm.weight", 0.5),
        ("tiny-qwen3", "blk.1.attn_k_norm.weight", 0.5),
        ("tiny-gpt2", "position_embd.weight", 0.0),
        ("tiny-gpt2", "blk.0.attn_norm.bias", 0.0),
        ("tiny-gpt2", "blk.0.attn_qkv.bias", 0.0),
        ("tiny-gpt2", "blk.0.attn_output.bias", 0.0),
        ("tiny-gpt2", "blk.0.ffn_up.bias", 0.0),
        ("tiny-gpt2", "blk.1.ffn_down.bias", 0.0),
        ("tiny-gpt2", "output_norm.bias", 0.0),
        ("tiny-olmoe", "blk.0.attn_q_norm.weight", 0.5),
        ("tiny-olmoe", "blk.1.ffn_gate_inp.weight", -1.0),
        ("tiny-qwen3moe", "blk.0.attn_q_norm.weight", 0.5),
        ("tiny-qwen3moe", "blk.1.ffn_gate_inp.weight", 0.1),
        ("tiny-mixtral", "blk.1.ffn_down_exps.weight", 0.5),
        ("tiny-gemma2", "blk.0.post_attention_norm.weight", 0.5),
        ("tiny-gemma3", "blk.1.post_ffw_norm.weight", 0.5),
        ("tiny-gemma3", "blk.0.attn_q_norm.weight", 0.5),
    ] {
        let logits = |model: &Model| Reference::new(model, 16).unwrap().prefill(&STORY).unwrap();
        let base = Craft::new(&format!("{shape}:f16"));
        let wanted = logits(&base.model().unwrap());
        let mut comparison = Comparison::new();
        comparison.add(&wanted, &logits(&base.scaled(tensor, factor).model().unwrap()));
        let nmse = comparison.nmse();
        assert!(nmse > 10.0 * Bounds::FLOAT.nmse, "{shape}: {tensor} changes the logits by {nmse:e}");
    }
}
