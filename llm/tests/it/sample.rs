//! The kernel that chooses tokens against the sampler on the CPU: the same token for the same numbers.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::sync::OnceLock;
use std::time::Duration;

use ga10b_llm::kernels::committed::cubin;
use ga10b_llm::kernels::sample::kernel::{BLOCK, NAME, SampleToken, dynamic_shared, words};
use ga10b_llm::kernels::state::TOKENS_AT;
use ga10b_llm::sampler::{Sampler, SamplerOptions, choose};
use hcq::{Buffer, Device, Kernel, LaunchConfig};
use proptest::prelude::*;
use ptxgen::Params;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::open;

/// The value at the position before the kernel runs.
const BEFORE: u32 = 0xdead_beef;
/// The position.
const POSITION: usize = 3;

fn opened() -> &'static (Device, Kernel) {
    static OPENED: OnceLock<(Device, Kernel)> = OnceLock::new();
    OPENED.get_or_init(|| {
        let device = open::device();
        let code = cubin(device.info().sm_number(), NAME).unwrap();
        let kernel = device.load(code).unwrap().kernel(NAME).unwrap();
        (device, kernel)
    })
}

fn upload(words: &[u32]) -> Buffer {
    let buffer = opened().0.alloc(4 * words.len() as u64).unwrap();
    buffer.write_slice(0, words).unwrap();
    buffer
}

/// The tokens that the device and the CPU choose with each of `draws`; [`BEFORE`] if the device chooses none.
fn both(logits: &[f32], options: SamplerOptions, draws: usize) -> Vec<(u32, u32)> {
    let (device, kernel) = opened();
    let mut queue = device.queue().unwrap();
    let mut sampler = Sampler::new(options);
    let buffer = upload(&logits.iter().map(|l| l.to_bits()).collect::<Vec<_>>());
    let count = logits.len() as u32;
    let config = LaunchConfig::new(1, BLOCK).with_dynamic_shared(dynamic_shared(count));
    let mut state = [0; TOKENS_AT as usize + 8];
    state[0] = POSITION as u32;
    state[TOKENS_AT as usize + POSITION] = BEFORE;
    (0..draws)
        .map(|_| {
            let draw = sampler.draw();
            let (state, words) = (upload(&state), upload(&words(&draw)));
            let args = SampleToken { logits: &buffer, state: &state, draw: &words, count };
            // SAFETY: the kernel reads that many logits, and writes the token at the position.
            unsafe { queue.launch(kernel, config, &args.args()) }.unwrap();
            queue.submit().unwrap().wait(Duration::from_secs(300)).unwrap();
            let token = state.read_vec(4 * (u64::from(TOKENS_AT) + POSITION as u64), 1).unwrap()[0];
            (token, choose(&draw, logits))
        })
        .collect()
}

/// The device's expected choice where the CPU has chosen `token`.
fn wanted(logits: &[f32], token: u32) -> u32 {
    let any = logits.iter().any(|l| *l > f32::NEG_INFINITY);
    if any { token } else { BEFORE }
}

fn check(name: &str, logits: &[f32], options: SamplerOptions, draws: usize) {
    for (draw, (found, token)) in both(logits, options, draws).into_iter().enumerate() {
        let wanted = wanted(logits, token);
        assert_eq!(found, wanted, "{name}, {} logits, {options:?}, draw {draw}", logits.len());
    }
}

/// Options with every rule alone, all together, and none.
fn rules() -> Vec<SamplerOptions> {
    let none = SamplerOptions { temperature: 0.8, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 11 };
    vec![
        none,
        SamplerOptions { temperature: 3.0, ..none },
        SamplerOptions { temperature: 0.05, ..none },
        SamplerOptions { top_k: 40, ..none },
        SamplerOptions { top_k: 2, ..none },
        SamplerOptions { top_k: 1024, ..none },
        SamplerOptions { top_k: 1500, ..none },
        SamplerOptions { top_p: 0.95, ..none },
        SamplerOptions { top_p: 0.3, ..none },
        SamplerOptions { top_p: 0.0, ..none },
        SamplerOptions { min_p: 0.05, ..none },
        SamplerOptions { min_p: 1.0, ..none },
        SamplerOptions { top_k: 40, top_p: 0.95, min_p: 0.05, ..none },
        SamplerOptions { top_k: 300, top_p: 0.999, min_p: 0.001, temperature: 1.7, ..none },
    ]
}

/// Logits of several kinds, `len` of each.
fn kinds(len: usize) -> Vec<(&'static str, Vec<f32>)> {
    let mut random = ChaCha8Rng::seed_from_u64(len as u64);
    let mut spread = |scale: f32| -> Vec<f32> {
        let mut value = || random.next_u32() as f32 / 2f32.powi(31) - 1.0;
        (0..len).map(|_| (0..6).map(|_| value()).sum::<f32>() * scale).collect()
    };
    let normal = spread(3.0);
    let coarse = normal.iter().map(|l| (l * 2.0).round() / 2.0).collect();
    let mut one = spread(0.5);
    one[len * 2 / 3] = 60.0;
    let mut masked = spread(2.0);
    masked.iter_mut().step_by(3).for_each(|l| *l = f32::NEG_INFINITY);
    masked.iter_mut().skip(1).step_by(7).for_each(|l| *l = f32::NAN);
    let mut infinite = spread(2.0);
    infinite[len / 2] = f32::INFINITY;
    infinite[len - 1] = f32::INFINITY;
    let mut alone = vec![f32::NEG_INFINITY; len];
    alone[len - 1] = -3.0;
    vec![
        ("normal", normal),
        ("ties", coarse),
        ("all equal", vec![1.25; len]),
        ("one dominates", one),
        ("masked", masked),
        ("infinite", infinite),
        ("a single one", alone),
        ("falling", (0..len).map(|i| -(i as f32) * 1e-3).collect()),
        ("rising", (0..len).map(|i| i as f32 * 1e-3).collect()),
        ("far apart", (0..len).map(|i| -(i as f32) * 40.0).collect()),
    ]
}

#[test]
fn every_rule_chooses_what_the_cpu_chooses() {
    // Fewer tokens than threads, a list's worth and one more, and so many that they cannot be collected.
    let large = ga10b_oracles::sample("lengths of logits", vec![1024, 1025, 4099], 3);
    for len in [1, 2, 3, 67].into_iter().chain(large) {
        for (name, logits) in kinds(len) {
            for options in rules() {
                check(name, &logits, options, 2);
            }
        }
    }
}

#[test]
fn a_vocabulary_of_usual_size_is_searched() {
    for (name, logits) in kinds(128_256).into_iter().take(4) {
        for options in [3, 7, 12].map(|i| rules()[i]) {
            check(name, &logits, options, 1);
        }
    }
}

#[test]
fn logits_without_a_number_leave_the_token() {
    for logits in [vec![f32::NAN; 9], vec![f32::NEG_INFINITY; 2000]] {
        assert_eq!(both(&logits, rules()[12], 2), [(BEFORE, 0); 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_logits_give_what_the_cpu_gives(
        logits in prop::collection::vec(prop_oneof![
            20 => -30.0f32..30.0,
            5 => (-8i8..8).prop_map(f32::from),
            1 => Just(f32::NAN),
            1 => Just(f32::NEG_INFINITY),
            1 => any::<f32>(),
        ], 1..3000),
        temperature in 0.01f32..4.0,
        top_k in prop_oneof![Just(0usize), 2usize..50, 2usize..2000],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..0.2],
        seed: u64,
    ) {
        let options = SamplerOptions { temperature, top_k, top_p, min_p, seed };
        for (found, token) in both(&logits, options, 3) {
            prop_assert_eq!(found, wanted(&logits, token));
        }
    }
}
