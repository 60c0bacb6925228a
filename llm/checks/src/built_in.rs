//! The kernels of the language model, each by itself.
//!
//! One `Drive` per kernel says how it is launched and on what. A new kernel takes a line in [`cases`] or in one of
//! the modules that it names; [`undriven`] names those that have none.

use std::collections::BTreeSet;

use ga10b_llm::kernels::committed;
use ga10b_llm::kernels::prompt::{squares, vector};
use ga10b_llm::kernels::sample::kernel as sample;
use ga10b_llm::sampler::arithmetic::Draw;
use hcq::LaunchConfig;
use sass::Arch;

use crate::drive::OfModel;
use crate::weights::{FORMATS, Weights};
use crate::{architectures, attentions, caches, column_kernels, mixtures, products};
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::drive::{COLS, Drive};

/// The manifest beside the cubins, which lists them.
const MANIFEST: &str = include_str!("../../kernels/manifest.json");

/// Norm and last token of a chunk of prompt tokens, and the lengths of a matrix's rows.
fn prompts() -> Vec<Case> {
    let len = COLS as u32;
    vec![
        Drive::of("prompt", "prompt_norm", LaunchConfig::new(5, vector::NORM_THREADS)).done(|d| {
            vector::PromptNorm {
                x: d.floats(5 * COLS, 3.0),
                sums: d.floats(2 * 6 * COLS, 1.0),
                weight: d.floats(COLS, 1.0),
                out: d.room(5 * COLS / 2),
                len,
                eps: 1e-5,
                shares: 2,
                share_pitch: 6,
                factor: 2.0,
            }
        }),
        Drive::of("prompt", "prompt_last", LaunchConfig::new(2, vector::NORM_THREADS)).done(|d| {
            vector::Last {
                x: d.floats(5 * COLS, 3.0),
                prompt: d.words(vec![9, 4, 0, 0]),
                out: d.room(COLS),
                len,
            }
        }),
        Drive::of("prompt", "prompt_squares", LaunchConfig::new(squares::blocks(37), squares::THREADS)).done(
            |d| squares::Squares {
                w: d.halves(37 * COLS, 1.0),
                norm: d.floats(COLS, 1.0),
                out: d.room(37),
                rows: 37,
                cols: len,
            },
        ),
    ]
}

/// At least one case per kernel.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = FORMATS.iter().flat_map(Weights::cases).collect();
    cases.extend(draws());
    cases.extend(products::cases());
    cases.extend(prompts());
    cases.extend(attentions::cases());
    cases.extend(architectures::cases());
    cases.extend(mixtures::cases());
    cases.extend(caches::cases());
    cases.extend(column_kernels::cases());
    cases
}

/// Choices of a token: among few that are collected first, and among all.
fn draws() -> Vec<Case> {
    let draw = Draw { top_k: 40, top_p: 0xf000 << 48, least: 1 << 25, slope: 1.8, random: 0x9e37 << 48 };
    let all = Draw { top_k: 0, ..draw };
    let case = |draw: &Draw| {
        let config = LaunchConfig::new(1, sample::BLOCK);
        let config = config.with_dynamic_shared(sample::dynamic_shared(5_003));
        Drive::of(sample::NAME, sample::NAME, config).done(|d| sample::SampleToken {
            logits: d.floats(5_003, 9.0),
            state: d.words(vec![1; 8]),
            draw: d.words(sample::words(draw).to_vec()),
            count: 5_003,
        })
    };
    [draw, all].iter().map(case).collect()
}

/// The kernels of the language model for SM 9.0, which has those of all others, each with its module.
fn kernels() -> Vec<(String, String)> {
    let manifest: Result<ptxgen::Manifest, _> = serde_json::from_str(MANIFEST);
    let cubins = manifest.into_iter().flat_map(|m| m.cubins).filter(|c| c.target.starts_with("sm_90"));
    let of_cubin = |cubin: ptxgen::Cubin| {
        let module = cubin.file.split('.').next().unwrap_or_default().to_owned();
        cubin.kernels.into_iter().map(move |kernel| (module.clone(), kernel))
    };
    cubins.flat_map(of_cubin).collect()
}

/// Kernels of the language model that no case launches by itself, as `module/kernel`.
///
/// Those of a whole step: cases of [`decode`](crate::decode) run them as an engine does, and compare
/// logits.
pub fn undriven() -> Vec<String> {
    let modules = committed::cubins(90).unwrap_or_default();
    let module = |code: &[u8]| modules.iter().find(|(_, bytes)| *bytes == code).map(|(name, _)| *name);
    let cases = cases();
    let driven: BTreeSet<_> = cases
        .iter()
        .filter_map(|case| Some((module(case.cubin(Arch::Sm90))?, case.kernel(Arch::Sm90).0)))
        .collect();
    let left = kernels().into_iter().filter(|(module, kernel)| !driven.contains(&(module, kernel)));
    left.map(|(module, kernel)| format!("{module}/{kernel}")).collect()
}
