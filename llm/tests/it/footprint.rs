//! The predicted memory of an engine equals the memory it takes, on the software GPU.

use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Decoder, Engine, EngineOptions, Footprint, Mode, Model, Sequences,
    embedded,
};
use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;

/// Bytes that the prediction may be above what is used.
const ABOVE: u64 = 16 << 20;

/// Bytes that an engine takes when it has processed a prompt and steps, and what was predicted.
fn used_and_needed(model: &Model, sm_count: u32, options: &EngineOptions) -> (u64, Footprint) {
    let sim = Sim::new(SimConfig { sm_count, ..SimConfig::default() });
    let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
    let needed = Footprint::of(model, options, &device).unwrap();
    let free = || device.free_memory().unwrap();
    let before = free();
    let mut engine = Engine::new(&device, model, options).unwrap();
    let prompt: Vec<u32> = (1..40).collect();
    engine.prefill(&prompt).unwrap();
    let token = engine.step_greedy(5).unwrap();
    engine.step(token).unwrap();
    (before - free(), needed)
}

#[test]
fn an_engine_takes_what_its_footprint_says() {
    let model = embedded::model().unwrap();
    for (sm_count, context, kv, mode, expanded) in [
        (2, 64, CacheType::F16, Mode::Batch, false),
        (4, 64, CacheType::F16, Mode::Stream, true),
        (8, 1024, CacheType::F16, Mode::Stream, false),
        (10, 64, CacheType::F16, Mode::Batch, true),
        (14, 64, CacheType::Q8_0, Mode::Batch, false),
        (16, 1024, CacheType::Q8_0, Mode::Stream, true),
        (16, 1024, CacheType::F16, Mode::Stream, false),
    ] {
        let options = EngineOptions::new(context).with_cache(kv).with_mode(mode);
        let options = options.with_expanded_weights(expanded);
        let (used, needed) = used_and_needed(&model, sm_count, &options);
        let what = format!("{sm_count} SMs, {context} positions in {kv:?}: {used} used, {needed:?}");
        assert!(used <= needed.total(), "{what}");
        assert!(needed.total() <= used + ABOVE, "{what}");
    }
}

#[test]
fn columns_take_what_their_footprint_says() {
    let model = embedded::model().unwrap();
    for (sm_count, context, kv, chunks) in [
        (2, 64, CacheType::F16, false),
        (2, 64, CacheType::F16, true),
        (8, 1024, CacheType::F16, true),
        (16, 1024, CacheType::F16, false),
    ] {
        let sim = Sim::new(SimConfig { sm_count, ..SimConfig::default() });
        let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
        let options = ColumnsOptions { chunks, ..ColumnsOptions::new(4, context).with_cache(kv) };
        let needed = Footprint::of_columns(&model, &options, &device).unwrap();
        let free = || device.free_memory().unwrap();
        let before = free();
        let mut columns = Columns::new(&device, &model, &options).unwrap();
        let id = columns.admit().unwrap();
        let prompt: Vec<u32> = (1..60).collect();
        columns.prefill(id, &prompt).unwrap();
        columns.record_all().unwrap();
        let used = before - free();
        let what =
            format!("{sm_count} SMs, {context} positions in {kv:?}, {chunks}: {used} used, {needed:?}");
        assert!(used <= needed.total(), "{what}");
        assert!(needed.total() <= used + ABOVE, "{what}");
    }
}

#[test]
fn a_mixture_of_experts_takes_what_its_footprint_says() {
    let model = "tiny-olmoe:q6_k".parse::<Synthesis>().unwrap().model(3).unwrap();
    for context in [64, 1024] {
        let options = EngineOptions::new(context).with_mode(Mode::Batch);
        let (used, needed) = used_and_needed(&model, 8, &options);
        assert!(used <= needed.total(), "{context} positions: {used} used, {needed:?}");
        assert!(needed.total() <= used + ABOVE, "{context} positions: {used} used, {needed:?}");
    }
}

#[test]
fn the_longest_context_is_the_last_that_fits() {
    let model = embedded::model().unwrap();
    let device = hcq::sim::open(Sim::new(SimConfig::default()), DeviceOptions::default()).unwrap();
    let options = EngineOptions::new(1000);
    let total =
        |context: usize| Footprint::of(&model, &EngineOptions::new(context), &device).unwrap().total();
    let longest = |free: u64| Footprint::longest_context(&model, &options, &device, free).unwrap();
    assert_eq!(longest(total(1000)), Some(1000));
    assert_eq!(longest(total(700)), Some(700));
    assert_eq!(longest(total(700) - 1), Some(699));
    assert_eq!(longest(total(1) - 1), None);
}
