//! What an engine is predicted to take is what it takes, on the software GPU.

use ga10b_llm::{CacheType, Engine, EngineOptions, Footprint, Mode, embedded};
use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;

/// Bytes that the prediction may be above what is used.
const ABOVE: u64 = 64 << 20;

#[test]
fn an_engine_takes_what_its_footprint_says() {
    let model = embedded::model().unwrap();
    for (context, kv, mode) in [
        (64, CacheType::F16, Mode::Operations),
        (1024, CacheType::F16, Mode::Persistent),
        (1024, CacheType::Q8_0, Mode::Phases),
    ] {
        let device = hcq::sim::open(Sim::new(SimConfig::default()), DeviceOptions::default()).unwrap();
        let options = EngineOptions::new(context).with_cache(kv).with_mode(mode);
        let needed = Footprint::of(&model, &options, device.info()).unwrap();
        let before = device.free_memory().unwrap().count();
        let engine = Engine::new(&device, &model, &options).unwrap();
        let used = before - device.free_memory().unwrap().count();
        drop(engine);
        assert!(used <= needed.total(), "{context} {kv:?}: {used} used, {needed:?}");
        assert!(needed.total() <= used + ABOVE, "{context} {kv:?}: {used} used, {needed:?}");
    }
}

#[test]
fn the_longest_context_is_the_last_that_fits() {
    let model = embedded::model().unwrap();
    let device = hcq::sim::open(Sim::new(SimConfig::default()), DeviceOptions::default()).unwrap();
    let options = EngineOptions::new(1000);
    let total =
        |context: usize| Footprint::of(&model, &EngineOptions::new(context), device.info()).unwrap().total();
    let longest = |free: u64| Footprint::longest_context(&model, &options, device.info(), free).unwrap();
    assert_eq!(longest(total(1000)), Some(1000));
    assert_eq!(longest(total(700)), Some(700));
    assert_eq!(longest(total(700) - 1), Some(699));
    assert_eq!(longest(total(1) - 1), None);
}
