//! The engine against the CPU reference, on synthesized models.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::time::Duration;

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::sampler::{Penalties, argmax};
use ga10b_llm::synthesize::{MIXES, Synthesis};
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Mode, Model, Reference, Sampler, SamplerOptions};
use ga10b_oracles::sample;
use hcq::Device;

use crate::open::device;

/// Tokens of a story; the software device is slow.
const STORY: usize = 32;

fn tiny(mix: &str) -> Model {
    format!("tiny-llama:{mix}").parse::<Synthesis>().unwrap().model(3).unwrap()
}

fn engine_in(mode: Mode, device: &Device, model: &Model, context: usize) -> Engine {
    engine_with(mode, CacheType::F16, device, model, context)
}

fn engine_with(mode: Mode, kv: CacheType, device: &Device, model: &Model, context: usize) -> Engine {
    let options = EngineOptions::new(context).with_mode(mode).with_cache(kv).with_phase_times(true);
    Engine::with_progress(device, model, &options, &mut |done, total| assert!(done <= total)).unwrap()
}

#[test]
fn logits_of_every_mix_agree_with_the_reference() {
    let device = device();
    for mix in sample("mixes of an engine", MIXES.to_vec(), 3) {
        let model = tiny(mix);
        let mut engine = engine_in(Mode::Stream, &device, &model, 16);
        let mut reference = Reference::new(&model, 16).unwrap();
        let mut comparison = Comparison::new();
        for token in [1, 7, 500, 1023, 0, 7] {
            comparison.add(&reference.step(token).unwrap(), &engine.step(token).unwrap());
        }
        let nmse = comparison.nmse();
        assert!(nmse < Bounds::FLOAT.nmse, "{mix}: NMSE {nmse:e}");
    }
}

#[test]
fn prefill_greedy_steps_and_reset_agree_bit_for_bit() {
    let model = tiny("q6_k");
    let mut engine = engine_in(Mode::Batch, &device(), &model, 12);
    let prompt = [3, 1, 4, 1, 5];
    let mut steps = Vec::new();
    for token in prompt {
        steps = engine.step(token).unwrap();
    }
    engine.reset().unwrap();
    assert_eq!(engine.prefill(&prompt).unwrap(), steps);
    assert_eq!(engine.position(), 5);

    let mut token = argmax(&steps);
    let mut chosen = Vec::new();
    while engine.position() < 12 {
        token = engine.step_greedy(token).unwrap();
        chosen.push(token);
    }
    let full = engine.step(token).unwrap_err();
    assert!(full.to_string().contains("12"), "{full}");
    assert!(engine.prefill(&[1]).is_err());

    engine.reset().unwrap();
    let mut logits = engine.prefill(&prompt).unwrap();
    for wanted in chosen {
        logits = engine.step(argmax(&logits)).unwrap();
        assert_eq!(argmax(&logits), wanted);
    }
    assert!(engine.step(1 << 20).is_err(), "a token outside the vocabulary");
}

#[test]
fn tokens_drawn_on_the_device_are_those_that_the_cpu_draws() {
    let device = device();
    let options = SamplerOptions { temperature: 1.3, top_k: 40, top_p: 0.95, min_p: 0.01, seed: 5 };
    for (mix, mode, host_state) in sample(
        "sampling on the device",
        vec![
            ("q6_k", Mode::Stream, true),
            ("q6_k", Mode::Stream, false),
            ("f16", Mode::Stream, true),
            ("q4_k_m", Mode::Batch, false),
        ],
        2,
    ) {
        let model = tiny(mix);
        let engine = |on_device| {
            let options = EngineOptions::new(24).with_mode(mode).with_host_state(host_state);
            Engine::new(&device, &model, &options.with_device_sampling(on_device)).unwrap()
        };
        let (mut drawing, mut copying) = (engine(true), engine(false));
        let samplers = || (Sampler::new(options), 7);
        let ((mut here, mut token), (mut there, mut other)) = (samplers(), samplers());
        let mut drawn = Vec::new();
        while drawing.position() < 12 {
            token = drawing.step_sampled(token, &mut there).unwrap();
            other = copying.step_sampled(other, &mut here).unwrap();
            assert_eq!(drawing.logits().unwrap(), copying.logits().unwrap());
            assert_eq!(token, other, "{mix}, {mode:?}, position {}", drawing.position());
            drawn.push(token);
        }
        drawn.dedup();
        assert!(drawn.len() > 6, "{drawn:?}");
        // Other kinds of steps follow a drawn one.
        assert_eq!(drawing.step_greedy(token).unwrap(), copying.step_greedy(token).unwrap());
        assert_eq!(drawing.step(1).unwrap(), copying.step(1).unwrap());
        assert_eq!(drawing.logits().unwrap(), copying.logits().unwrap());
        // With penalties the host chooses, whatever the device could.
        let penalties = Penalties { frequency: 1.0, ..Penalties::NONE };
        let adjusting = || Sampler::new(options).with_penalties(penalties).with_bias(vec![(5, -100.0)]);
        let (mut here, mut there) = (adjusting(), adjusting());
        for _ in 0..4 {
            other = here.sample(&copying.step(token).unwrap());
            token = drawing.step_sampled(token, &mut there).unwrap();
            assert_eq!((token, token == 5), (other, false), "{mix}, {mode:?}");
        }
    }
}

#[test]
fn prompts_of_any_length_agree_with_the_reference() {
    let device = device();
    // Expanded weights of one type and of several, and weights that need no expansion.
    for (mix, lengths) in [("q6_k", &[9, 67][..]), ("q4_k_m", &[40]), ("f16", &[43])] {
        let model = tiny(mix);
        let mut engine = engine_in(Mode::Stream, &device, &model, 72);
        let mut reference = Reference::new(&model, 72).unwrap();
        for &length in lengths {
            let prompt: Vec<u32> = (0..length).map(|i| (i * 37 + 11) % 1024).collect();
            engine.reset().unwrap();
            reference.reset().unwrap();
            // Prompts also follow a context that is not empty.
            let (first, rest) = prompt.split_at(if length == 43 { 3 } else { 0 });
            for token in first {
                engine.step(*token).unwrap();
            }
            let found = engine.prefill(rest).unwrap();
            let wanted = prompt.iter().map(|token| reference.step(*token).unwrap()).last().unwrap();
            let mut comparison = Comparison::new();
            comparison.add(&wanted, &found);
            // The next steps read the keys and values of the prompt.
            comparison.add(&reference.step(500).unwrap(), &engine.step(500).unwrap());
            assert_eq!(engine.position(), reference.position());
            let nmse = comparison.nmse();
            assert!(nmse < Bounds::FLOAT.nmse, "{mix}, {length} tokens: NMSE {nmse:e}");
        }
    }
}

/// Copies of expanded weights are what a chunk expands.
#[test]
fn a_prompt_with_expanded_weights_gives_the_same_bits() {
    for mix in ["q4_k_m", "q6_k", "f16"] {
        // Memory that another engine has used may have the same weights.
        let (device, model) = (device(), tiny(mix));
        let prompt: Vec<u32> = (0..70).map(|i| i * 97 % 1024).collect();
        let logits = |expanded| {
            let options = EngineOptions::new(80).with_expanded_weights(expanded);
            let mut engine = Engine::new(&device, &model, &options).unwrap();
            engine.start_trace().unwrap();
            let logits = engine.prefill(&prompt).unwrap();
            (logits, engine.take_trace().iter().filter(|launch| launch.role == "expand").count())
        };
        let ((kept, none), (expanded, some)) = (logits(true), logits(false));
        assert!(kept == expanded, "{mix}: other bits");
        assert_eq!((none, some > 0), (0, mix != "f16"), "{mix}: launches that expand weights");
    }
}

/// The launches of a prompt take more tokens than it has: what an earlier one left there is not used.
#[test]
fn a_prompt_after_a_longer_one_gives_the_same_bits_as_alone() {
    let (device, model) = (device(), tiny("q6_k"));
    for kv in [CacheType::F16, CacheType::Q8_0] {
        let engine = || engine_with(Mode::Batch, kv, &device, &model, 64);
        let (mut fresh, mut used) = (engine(), engine());
        let longer: Vec<u32> = (0..60).map(|i| i * 97 % 1024).collect();
        used.prefill(&longer).unwrap();
        used.reset().unwrap();
        let prompt = &longer[7..47];
        assert_eq!(used.prefill(prompt).unwrap(), fresh.prefill(prompt).unwrap(), "{kv:?}");
    }
}

#[test]
fn logits_with_a_cache_in_q8_0_agree_with_the_reference_that_has_one() {
    let device = device();
    for (mix, mode) in sample(
        "q8_0 caches",
        vec![
            ("q6_k", Mode::Stream),
            ("q4_k_m", Mode::Stream),
            ("q8_0", Mode::Stream),
            ("f16", Mode::Stream),
            ("q6_k", Mode::Batch),
        ],
        3,
    ) {
        let model = tiny(mix);
        let mut engine = engine_with(mode, CacheType::Q8_0, &device, &model, 48);
        assert_eq!(engine.mode(), mode);
        let mut reference = Reference::with_cache(&model, 48, CacheType::Q8_0).unwrap();
        let mut exact = Reference::new(&model, 24).unwrap();
        let (mut comparison, mut noise) = (Comparison::new(), Comparison::new());
        for token in [1, 7, 500, 1023, 0, 7] {
            let wanted = reference.step(token).unwrap();
            comparison.add(&wanted, &engine.step(token).unwrap());
            noise.add(&exact.step(token).unwrap(), &wanted);
        }
        let (nmse, noise) = (comparison.nmse(), noise.nmse());
        eprintln!("{mix} {mode:?}: NMSE {nmse:e}, of the cache's rounding {noise:e}");
        assert!(nmse < Bounds::Q8_0_CACHE.nmse, "{mix} {mode:?}: NMSE {nmse:e}");
        // Else a cache that is not rounded would pass.
        assert!(nmse < noise / 2.0, "{mix} {mode:?}: NMSE {nmse:e}, of the cache's rounding {noise:e}");
        // A prompt, and what follows it.
        engine.reset().unwrap();
        reference.reset().unwrap();
        let prompt: Vec<u32> = (0..37).map(|i| (i * 37 + 11) % 1024).collect();
        let mut comparison = Comparison::new();
        let wanted = prompt.iter().map(|token| reference.step(*token).unwrap()).last().unwrap();
        comparison.add(&wanted, &engine.prefill(&prompt).unwrap());
        comparison.add(&reference.step(500).unwrap(), &engine.step(500).unwrap());
        let nmse = comparison.nmse();
        eprintln!("{mix} {mode:?} as a prompt: NMSE {nmse:e}");
        assert!(nmse < Bounds::Q8_0_CACHE.nmse, "{mix} {mode:?} as a prompt: NMSE {nmse:e}");
    }
}

#[test]
fn heads_that_are_no_whole_blocks_are_refused_a_cache_in_q8_0() {
    let mut model = tiny("q8_0");
    model.config.head_dim = 48;
    let error = Reference::with_cache(&model, 4, CacheType::Q8_0).unwrap_err();
    assert!(error.to_string().contains("48") && error.to_string().contains("multiple of 32"), "{error}");
}

#[test]
fn a_profile_accounts_for_every_launch_and_byte() {
    let model = tiny("q4_k_m");
    let device = device();
    for (mode, kv) in Mode::ALL.into_iter().flat_map(|m| CacheType::ALL.map(|kv| (m, kv))) {
        let mut engine = engine_with(mode, kv, &device, &model, 8);
        let stats = engine.profile(3, Duration::ZERO).unwrap();
        let count: u64 = stats.iter().map(|s| s.count).sum();
        assert!(mode == Mode::Stream || count == 3 * engine.launches_per_token());
        let values = 2 * 2 * model.config.kv_dim() as u64;
        let position = if kv == CacheType::F16 { 2 * values } else { values / 32 * 34 };
        assert_eq!(engine.cache_bytes_per_position(), position);
        let cached = position * (1 + 2 + 3);
        assert_eq!(stats.iter().map(|s| s.bytes).sum::<u64>(), 3 * engine.weight_bytes_per_token() + cached);
        assert!(stats.iter().any(|s| s.nanoseconds > 0));
        assert_eq!(engine.position(), 0);
    }
}

#[test]
fn a_state_in_host_memory_gives_the_same_bits() {
    let (device, model) = (device(), tiny("q6_k"));
    let engine = |host| {
        let options = EngineOptions::new(48).with_mode(Mode::Stream).with_host_state(host);
        Engine::new(&device, &model, &options).unwrap()
    };
    let (mut near, mut far) = (engine(true), engine(false));
    let mut logits = Vec::new();
    for token in [5, 9, 1000] {
        near.step_into(token, &mut logits).unwrap();
        assert!(logits == far.step(token).unwrap(), "token {token}: logits differ");
        assert_eq!(near.step_greedy(token).unwrap(), far.step_greedy(token).unwrap());
    }
    let prompt: Vec<u32> = (0..39).collect();
    near.reset().unwrap();
    far.reset().unwrap();
    assert!(near.prefill(&prompt).unwrap() == far.prefill(&prompt).unwrap(), "after a prompt");
}

#[test]
fn a_step_in_one_launch_gives_the_same_bits_as_a_launch_per_phase() {
    let device = device();
    for mix in ["q6_k", "q4_k_m", "f16"] {
        let model = tiny(mix);
        let [mut one, mut many] = [(); 2].map(|()| engine_in(Mode::Stream, &device, &model, 16));
        assert_eq!(one.launches_per_token(), 1);
        for token in [5, 9, 1000, 5, 5] {
            let same = one.step(token).unwrap() == many.step_by_phases(token).unwrap();
            assert!(same, "{mix}, token {token}: logits differ");
        }
    }
}

/// Greedy tokens of the embedded model, in each mode.
fn stories(kv: CacheType, context: usize, count: usize) -> [Vec<u32>; 2] {
    let (device, model) = (device(), ga10b_llm::embedded::model().unwrap());
    Mode::ALL.map(|mode| {
        let mut engine = engine_with(mode, kv, &device, &model, context);
        let mut token = 1;
        let next = |_| {
            token = engine.step_greedy(token).unwrap();
            token
        };
        (0..count).map(next).collect()
    })
}

#[test]
fn a_story_from_a_cache_in_q8_0_is_the_same_however_its_steps_are_launched() {
    let stories = stories(CacheType::Q8_0, 64, STORY / 2);
    assert!(stories.iter().all(|story| *story == stories[0]), "{stories:?}");
}

#[test]
fn the_story_is_the_same_however_its_steps_are_launched() {
    let stories = stories(CacheType::F16, 257, STORY);
    assert!(stories.iter().all(|story| *story == stories[0]), "{stories:?}");
}
