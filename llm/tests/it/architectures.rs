//! The embedded model on the SM versions that the other tests do not run on, as the software ga10b has them: decode
//! in one launch and by batch steps, and a prompt on the tensor cores.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::sampler::argmax;
use ga10b_llm::{Decoder, Engine, EngineOptions, Mode, Model, Reference, Tokenizer, embedded};
use ga10b_sim::{Sim, SimConfig};
use hcq::DeviceOptions;
use sass::Arch;

const SMS: [Arch; 4] = [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90];
/// Tokens that are chosen after the prompt.
const CHOSEN: usize = 4;
const CONTEXT: usize = 64;

/// The reference's greedy choice after each token, and its logits after the prompt.
fn expected(model: &Model, prompt: &[u32]) -> (Vec<f32>, Vec<u32>) {
    let mut reference = Reference::new(model, CONTEXT).unwrap();
    let logits = reference.prefill(prompt).unwrap();
    let mut token = argmax(&logits);
    let mut chosen = vec![token];
    while chosen.len() < CHOSEN {
        token = argmax(&reference.step(token).unwrap());
        chosen.push(token);
    }
    (logits, chosen)
}

#[test]
fn every_sm_chooses_the_tokens_of_the_reference() {
    let model = embedded::model().unwrap();
    let prompt = Tokenizer::from_gguf(&model.gguf).unwrap().encode(embedded::PROMPT).unwrap();
    let (logits, chosen) = expected(&model, &prompt);
    for arch in SMS {
        for mode in [Mode::Stream, Mode::Batch] {
            let sim = Sim::new(SimConfig { arch, ..SimConfig::default() });
            let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).unwrap();
            let options = EngineOptions::new(CONTEXT).with_mode(mode);
            let mut engine = Engine::new(&device, &model, &options).unwrap();
            assert_eq!(engine.mode(), mode, "{arch}: the step kernel does not fit");
            let mut comparison = Comparison::new();
            let found = engine.prefill(&prompt).unwrap();
            comparison.add(&logits, &found);
            assert!(comparison.nmse() < Bounds::FLOAT.nmse, "{arch}: NMSE {:e}", comparison.nmse());
            let mut token = argmax(&found);
            let mut choices = vec![token];
            while choices.len() < CHOSEN {
                token = engine.step_greedy(token).unwrap();
                choices.push(token);
            }
            assert_eq!(choices, chosen, "{arch}, {mode:?}");
            assert!(sim.violations().is_empty(), "{arch}: {:?}", sim.violations());
        }
    }
}

/// Kernels whose shared memory is set by the launch ask for the same on every SM: those of sm_86 and sm_89
/// have the least of it, 99 KiB per block.
#[test]
fn every_kernel_fits_an_sm_of_every_version() {
    let model = embedded::model().unwrap();
    for arch in SMS {
        let sim = Sim::new(SimConfig { arch, ..SimConfig::default() });
        let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
        let most = device.info().max_shared_per_block;
        let mut engine = Engine::new(&device, &model, &EngineOptions::new(CONTEXT)).unwrap();
        let kernels = engine.kernels().unwrap();
        assert!(kernels.iter().any(|k| k.path == "stream") && kernels.iter().any(|k| k.path == "prompt"));
        for used in kernels {
            assert!(u64::from(used.shared_bytes) <= most, "{arch}: {used:?}");
            assert!(used.residency.is_some_and(|r| r.blocks_per_sm > 0), "{arch}: {used:?}");
        }
    }
}
