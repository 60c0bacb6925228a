//! The cost of a token far into a context, counted on the software ga10b: bytes and instructions are linear
//! in the position, and the work is spread over all blocks.

use std::sync::Arc;

use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Mode, Model};
use ga10b_sim::sm::{CacheConfig, Config as ExecutorConfig, Counters};
use ga10b_sim::{Sim, SimConfig};
use hcq::{Device, DeviceOptions, Selector};

use crate::device::nmse;

/// Positions at which a token is counted; the cache of the last does not fit the level-2 cache.
const POSITIONS: [usize; 3] = [2_047, 8_191, 32_767];
/// Times that a token is counted.
const ATTEMPTS: usize = 3;
/// Bytes of a DRAM sector.
const SECTOR: f64 = 32.0;

fn model() -> Model {
    "tiny-llama:q6_k".parse::<Synthesis>().unwrap().model(3).unwrap()
}

/// An engine, and the device that counts its work.
fn engine(model: &Model, mode: Mode, kv: CacheType) -> (Engine, Arc<Sim>) {
    let executor = ExecutorConfig { l2: Some(CacheConfig::ORIN), ..ExecutorConfig::default() };
    let sim = Sim::try_new(SimConfig { executor, ..SimConfig::default() }).unwrap();
    let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).unwrap();
    let options = EngineOptions::new(POSITIONS[2] + 65).with_mode(mode).with_cache(kv);
    (Engine::new(&device, model, &options).unwrap(), sim)
}

/// The difference of two counts.
struct Cost {
    instructions: f64,
    dram_bytes: f64,
    /// Instructions of the busiest blocks.
    busiest: f64,
}

fn cost(before: &Counters, after: &Counters) -> Cost {
    let d = |field: fn(&Counters) -> u64| (field(after) - field(before)) as f64;
    Cost {
        instructions: d(|c| c.warp_instructions),
        dram_bytes: SECTOR * d(|c| c.dram_read_sectors),
        busiest: d(|c| c.busiest_block_instructions),
    }
}

/// The cost of `work` at each of the positions: of several attempts the one with the fewest instructions. At the
/// end of a step one block polls for the others, which run when the computer lets them.
fn costs(engine: &mut Engine, sim: &Sim, work: impl Fn(&mut Engine)) -> Vec<Cost> {
    let mut at = |position: &usize| {
        engine.pretend(*position).unwrap();
        let before = sim.counters().sm;
        work(engine);
        cost(&before, &sim.counters().sm)
    };
    let least = |position| {
        let attempts = (0..ATTEMPTS).map(|_| at(position));
        attempts.min_by(|a, b| a.instructions.total_cmp(&b.instructions)).expect("an attempt")
    };
    POSITIONS.iter().map(least).collect()
}

#[test]
fn a_token_far_into_a_context_costs_what_its_position_says() {
    let model = model();
    for kv in CacheType::ALL {
        let (mut engine, sim) = engine(&model, Mode::Stream, kv);
        let per_position = engine.cache_bytes_per_position() as f64;
        let costs = costs(&mut engine, &sim, |engine| {
            engine.step_by_phases(1).unwrap();
        });
        let case = format!("{kv:?}");
        let [near, far] = [0, 1].map(|i| {
            let positions = (POSITIONS[i + 1] - POSITIONS[i]) as f64;
            (costs[i + 1].instructions - costs[i].instructions) / positions
        });
        eprintln!("{case}: {near:.2} and {far:.2} instructions of a warp per position");
        assert!((far / near - 1.0).abs() < 0.05, "{case}: {near} and then {far} instructions per position");
        // The step reads the cache once for all heads that share it.
        let bytes = (costs[2].dram_bytes - costs[1].dram_bytes) / (POSITIONS[2] - POSITIONS[1]) as f64;
        let ratio = bytes / per_position;
        eprintln!("{case}: {bytes:.1} bytes of DRAM per position of {per_position} bytes, {ratio:.3}");
        assert!((0.95..1.05).contains(&ratio), "{case}: {ratio:.3} bytes of DRAM per cached byte");
        // A block per SM.
        let blocks = 16.0;
        let busiest = (costs[2].busiest - costs[1].busiest) / (costs[2].instructions - costs[1].instructions);
        eprintln!("{case}: the busiest block has {:.3} of its share", blocks * busiest);
        assert!(
            blocks * busiest < 1.05,
            "{case}: the busiest of {blocks} blocks has {busiest:.4} of the work"
        );
    }
}

/// The persistent step far from the start attends in another way than near it.
#[test]
fn steps_far_into_a_context_agree_with_batch_steps() {
    let tokens: Vec<u32> = (0..1_090).map(|i| i * 7 % 61).collect();
    for name in ["tiny-llama:q6_k", "tiny-qwen3:q8_0", "tiny-phi4:q4_k_m"] {
        let model = name.parse::<Synthesis>().unwrap().model(5).unwrap();
        for kv in CacheType::ALL {
            let logits = |mode| {
                let device = Device::open(Selector::Sim).unwrap();
                let options = EngineOptions::new(1_200).with_mode(mode).with_cache(kv);
                let mut engine = Engine::new(&device, &model, &options).unwrap();
                assert_eq!(engine.mode(), mode, "{name}");
                engine.prefill(&tokens).unwrap();
                (0..3).flat_map(|token| engine.step(token).unwrap()).collect::<Vec<f32>>()
            };
            let [found, wanted] = [Mode::Stream, Mode::Batch].map(logits);
            let error = nmse(&found, &wanted.into_iter().map(f64::from).collect::<Vec<_>>());
            eprintln!("{name} {kv:?}: NMSE {error:e}");
            let most = if kv == CacheType::Q8_0 { 2e-4 } else { 1e-5 };
            assert!(error < most, "{name} {kv:?}: NMSE {error:e}");
        }
    }
}
