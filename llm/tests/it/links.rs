//! Early links: kernels of a chain keep their rule, and change no result.

use std::sync::Arc;

use ga10b_llm::kernels::{self, committed::TARGETS};
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Decoder, Engine, EngineOptions, Mode, Model, Tokenizer, embedded,
};
use ga10b_sim::sm::Config as ExecutorConfig;
use ga10b_sim::{Checks, Sim, SimConfig};
use hcq::{Device, DeviceOptions};
use ptxgen::Target;
use sass::Arch;

/// A Hopper with early links, which checks every access, or one without links, which only computes.
fn hopper(links: bool) -> (Arc<Sim>, Device) {
    let checks = if links { Checks::all() } else { Checks::default() };
    let executor = ExecutorConfig { checks, ..ExecutorConfig::default() };
    let sim = Sim::new(SimConfig { arch: Arch::Sm90, executor, ..SimConfig::default() });
    let mut options = DeviceOptions::default();
    options.chain_launches = links;
    let device = hcq::sim::open(sim.clone(), options).unwrap();
    (sim, device)
}

/// Logits of `work` on such a device, with links and without; nothing may be found.
fn assert_same(name: &str, work: impl Fn(&Device) -> Vec<Vec<f32>>) {
    let [linked, apart] = [true, false].map(|links| {
        let (sim, device) = hopper(links);
        let logits = work(&device);
        let found = sim.findings();
        assert!(found.is_empty(), "{name}, links {links}: {found:#?}");
        logits.into_iter().flatten().map(f32::to_bits).collect::<Vec<_>>()
    });
    assert!(linked == apart, "{name}: early links change results");
}

/// Biases, norms of heads, layer norms and learned positions, experts.
const SHAPES: [&str; 4] = ["tiny-qwen2:q8_0", "tiny-qwen3:q4_k_m", "tiny-gpt2:f16", "tiny-olmoe:q6_k"];

fn text(model: &Model) -> Vec<u32> {
    let text = "Once upon a time, there was a little girl who liked to play with her dog in the park. \
                One day she saw a big red ball near the old tree and ran to it";
    Tokenizer::from_gguf(&model.gguf).unwrap().encode(text).unwrap()
}

#[test]
fn kernels_of_chains_begin_with_their_wait() {
    const BEGIN: [&str; 2] = ["griddepcontrol.launch_dependents;", "griddepcontrol.wait;"];
    let mut linked = 0;
    for target in TARGETS {
        for named in kernels::modules(target) {
            let alone = named.name.starts_with("stream") || named.name.starts_with("sample");
            for kernel in named.module.text().split(".entry ").skip(1) {
                let name = kernel.split('(').next().unwrap_or_default().to_owned();
                let body = kernel.lines().map(str::trim).skip_while(|line| *line != "{").skip(1);
                let mut code = body.filter(|line| !line.starts_with('.') && !line.is_empty());
                let waits = kernel.contains(BEGIN[1]);
                assert_eq!(waits, target >= Target::Sm90 && !alone, "{}: {name}, {target}", named.name);
                if waits && !name.starts_with("columns") {
                    assert_eq!([code.next(), code.next()], BEGIN.map(Some), "{}: {name}", named.name);
                    linked += 1;
                }
            }
        }
    }
    assert!(linked > 60, "{linked} kernels");
}

#[test]
fn a_prompt_and_tokens_are_the_same() {
    let model = embedded::model().unwrap();
    let prompt = text(&model);
    for kv in ga10b_oracles::sample("early links of a prompt", CacheType::ALL.to_vec(), 2) {
        assert_same(&format!("{kv:?}"), |device| {
            let options = EngineOptions::new(64).with_mode(Mode::Batch).with_cache(kv);
            let mut engine = Engine::new(device, &model, &options).unwrap();
            vec![engine.prefill(&prompt).unwrap(), engine.step(3).unwrap(), engine.step(5).unwrap()]
        });
    }
}

#[test]
fn tokens_of_other_architectures_are_the_same() {
    for shape in ga10b_oracles::sample("early links of architectures", SHAPES.to_vec(), 4) {
        let model = shape.parse::<Synthesis>().unwrap().model(3).unwrap();
        assert_same(shape, |device| {
            let options = EngineOptions::new(64).with_mode(Mode::Batch);
            let mut engine = Engine::new(device, &model, &options).unwrap();
            let prompt: Vec<u32> = (1..40).collect();
            vec![engine.prefill(&prompt).unwrap(), engine.step(3).unwrap()]
        });
    }
}

#[test]
fn steps_of_several_sequences_are_the_same() {
    let model = embedded::model().unwrap();
    assert_same("columns", |device| {
        let options = ColumnsOptions::new(3, 64).with_pages(4);
        let mut columns = Columns::new(device, &model, &options).unwrap();
        let (one, other) = (columns.admit().unwrap(), columns.admit().unwrap());
        columns.fill(&[(one, 1), (one, 7)]).unwrap();
        columns.step(&[(one, 3), (other, 9), (one, 5)]).unwrap();
        (0..3).map(|column| columns.logits(column).unwrap()).collect()
    });
}
