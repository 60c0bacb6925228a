//! What an engine is predicted to take is what it takes, on the software GPU.

use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Footprint, Mode, embedded};
use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;

/// Bytes that the prediction may be above what is used.
const ABOVE: u64 = 16 << 20;

/// Bytes that an engine takes when it has processed a prompt and steps, and what was predicted.
fn used_and_needed(sm_count: u32, options: &EngineOptions) -> (u64, Footprint) {
    let model = embedded::model().unwrap();
    let sim = Sim::new(SimConfig { sm_count, ..SimConfig::default() });
    let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
    let needed = Footprint::of(&model, options, &device).unwrap();
    let free = || device.free_memory().unwrap().count();
    let before = free();
    let mut engine = Engine::new(&device, &model, options).unwrap();
    let prompt: Vec<u32> = (1..20).collect();
    engine.prefill(&prompt).unwrap();
    let token = engine.step_greedy(5).unwrap();
    engine.step(token).unwrap();
    (before - free(), needed)
}

#[test]
fn an_engine_takes_what_its_footprint_says() {
    for (sm_count, context, kv, mode) in [
        (2, 64, CacheType::F16, Mode::Operations),
        (4, 64, CacheType::F16, Mode::Persistent),
        (8, 1024, CacheType::F16, Mode::Persistent),
        (10, 64, CacheType::F16, Mode::Operations),
        (14, 64, CacheType::Q8_0, Mode::Operations),
        (16, 1024, CacheType::Q8_0, Mode::Persistent),
        (16, 1024, CacheType::F16, Mode::Persistent),
    ] {
        let options = EngineOptions::new(context).with_cache(kv).with_mode(mode);
        let (used, needed) = used_and_needed(sm_count, &options);
        let what = format!("{sm_count} SMs, {context} positions in {kv:?}: {used} used, {needed:?}");
        assert!(used <= needed.total(), "{what}");
        assert!(needed.total() <= used + ABOVE, "{what}");
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
