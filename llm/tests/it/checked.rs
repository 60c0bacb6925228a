//! The kernels under the checks of the software ga10b: no reads of memory that nothing wrote, no accesses that
//! nothing orders, no barrier that lanes miss.

use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Decoder, Engine, EngineOptions, Mode, Model, Sampler, SamplerOptions,
    Tokenizer, embedded,
};
use ga10b_oracles::sample;
use ga10b_sim::sm::Config as ExecutorConfig;
use ga10b_sim::{Checks, Sim, SimConfig};
use hcq::DeviceOptions;

/// Fails for any finding while an engine for the embedded model does `work`.
fn assert_clean(mode: Mode, kv: CacheType, work: impl Fn(&mut Engine)) {
    assert_clean_of(&embedded::model().unwrap(), mode, kv, work);
}

/// The same for another model.
fn assert_clean_of(model: &Model, mode: Mode, kv: CacheType, work: impl Fn(&mut Engine)) {
    let executor = ExecutorConfig { checks: Checks::all(), ..ExecutorConfig::default() };
    let sim = Sim::new(SimConfig { executor, ..SimConfig::default() });
    let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).unwrap();
    let options = EngineOptions::new(64).with_mode(mode).with_cache(kv).with_device_sampling(true);
    let mut engine = Engine::new(&device, model, &options).unwrap();
    assert_eq!(engine.mode(), mode, "the step kernel does not fit");
    work(&mut engine);
    let found = sim.findings();
    assert!(found.is_empty(), "{mode:?}, {kv:?}: {found:#?}");
}

/// The second position reads a cache that the first has written.
fn two_steps(engine: &mut Engine) {
    let token = engine.step_greedy(1).unwrap();
    engine.step_greedy(token).unwrap();
}

#[test]
fn a_token_in_one_launch_is_clean() {
    let model = "tiny-llama:q6_k".parse::<Synthesis>().unwrap().model(3).unwrap();
    assert_clean_of(&model, Mode::Stream, CacheType::F16, two_steps);
}

/// Once among few tokens, once among all.
#[test]
fn a_token_that_is_drawn_is_clean() {
    for top_k in sample("top-k under checks", vec![40, 0], 2) {
        let options = SamplerOptions { temperature: 0.9, top_k, top_p: 0.9, min_p: 0.01, seed: 3 };
        assert_clean(Mode::Batch, CacheType::F16, |engine| {
            let mut sampler = Sampler::new(options);
            let token = engine.step_sampled(1, &mut sampler).unwrap();
            engine.step_sampled(token, &mut sampler).unwrap();
        });
    }
}

#[test]
fn tokens_of_models_of_other_types_in_one_launch_are_clean() {
    for mix in sample("types under checks", vec!["f16", "f32"], 2) {
        let model = format!("tiny-llama:{mix}").parse::<Synthesis>().unwrap().model(3).unwrap();
        assert_clean_of(&model, Mode::Stream, CacheType::F16, two_steps);
    }
}

/// A prompt that is shorter than the launches that it takes, and the token after it.
#[test]
fn a_prompt_and_a_token_by_batch_steps_are_clean() {
    let model = embedded::model().unwrap();
    let text = "Once upon a time, there was a little girl who liked to play with her dog in the park. \
                One day she saw a big red ball near the old tree and ran to it";
    let prompt = Tokenizer::from_gguf(&model.gguf).unwrap().encode(text).unwrap();
    assert!((33..63).contains(&prompt.len()), "{} tokens", prompt.len());
    for kv in sample("a prompt under checks", CacheType::ALL.to_vec(), 2) {
        assert_clean(Mode::Batch, kv, |engine| {
            engine.prefill(&prompt).unwrap();
            engine.step_greedy(1).unwrap();
        });
    }
}

/// Products of rows that are shorter than the ring of slices.
#[test]
fn a_prompt_of_a_narrow_model_is_clean() {
    for ff in [64, 192] {
        let synthesis: Synthesis = "tiny-llama:f16".parse().unwrap();
        let model = synthesis.with_sizes(2, 128, ff).model(3).unwrap();
        assert_clean_of(&model, Mode::Batch, CacheType::F16, |engine| {
            engine.prefill(&(1..40).collect::<Vec<u32>>()).unwrap();
        });
    }
}

#[test]
fn steps_of_several_sequences_are_clean() {
    for kv in sample("columns under checks", CacheType::ALL.to_vec(), 2) {
        let executor = ExecutorConfig { checks: Checks::all(), ..ExecutorConfig::default() };
        let sim = Sim::new(SimConfig { executor, ..SimConfig::default() });
        let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).unwrap();
        let options = ColumnsOptions::new(3, 64).with_pages(4).with_cache(kv);
        let mut columns = Columns::new(&device, &embedded::model().unwrap(), &options).unwrap();
        let (one, other) = (columns.admit().unwrap(), columns.admit().unwrap());
        columns.fill(&[(one, 1), (one, 7)]).unwrap();
        columns.step(&[(one, 3), (other, 9), (one, 5)]).unwrap();
        let fork = columns.fork(one, 3).unwrap();
        columns.step(&[(fork, 4), (one, 6)]).unwrap();
        let found = sim.findings();
        assert!(found.is_empty(), "{kv:?}: {found:#?}");
    }
}
