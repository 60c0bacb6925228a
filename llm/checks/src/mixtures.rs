//! Mixtures of experts for the tokens of a chunk: the choice of each token's experts, the tokens of each expert, their
//! products and the weighted sum. The router's scores are among the cases of every format of weights.

use ga10b_llm::kernels::mixture::{NAME, PromptRoute, combine, gather, product};
use ga10b_llm::kernels::prompt::gemm::{Output, Tile};
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Noise;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{COLS, Drive, MILLIONTH};

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![routed("experts", 0), routed("normalized shares", 1), gathered(), combined()];
    let of_tile = |tile| Output::ALL.map(|output| multiplied(tile, output));
    cases.extend(product::TILES.into_iter().flat_map(of_tile));
    cases
}

/// `used` different ones of `experts` for each token.
fn choices(noise: &mut Noise, tokens: u32, (experts, used): (u32, u32)) -> Vec<u32> {
    let mut chosen = Vec::new();
    for _ in 0..tokens {
        let mut left: Vec<u32> = (0..experts).collect();
        chosen.extend((0..used).map(|_| left.swap_remove(noise.below(left.len()))));
    }
    chosen
}

/// The experts of 9 tokens; the grid has more.
fn routed(what: &str, normalized: u32) -> Case {
    let (tokens, experts, used) = (9, 40, 4);
    let drive = Drive::of(NAME, "prompt_route", LaunchConfig::new(tokens + 2, 32));
    drive.called(what).done(|d| PromptRoute {
        scores: d.floats((tokens * experts) as usize, 9.0),
        prompt: d.words(vec![3, tokens, 0, 0]),
        chosen: d.room((tokens * used) as usize),
        shares: d.within(MILLIONTH).room((tokens * used) as usize),
        experts,
        used,
        normalized,
    })
}

/// The entries of each expert, more than a block looks at in two rounds.
fn gathered() -> Case {
    let (tokens, experts, used) = (700, 24, 4);
    let drive = Drive::of(NAME, "prompt_gather", LaunchConfig::new(experts, gather::THREADS));
    drive.called("entries").done(|d| {
        let chosen = choices(&mut d.noise, tokens, (experts, used));
        let entries = chosen.len();
        gather::Gather {
            chosen: d.words(chosen),
            prompt: d.words(vec![3, tokens, 0, 0]),
            starts: d.room(experts as usize + 3),
            tokens: d.room(entries + 2),
            rows: d.room(entries + 2),
            experts,
            used,
        }
    })
}

/// The weighted sums of 5 tokens; the grid has more.
fn combined() -> Case {
    let (tokens, used, len) = (5, 3, COLS as u32);
    let entries = tokens * used;
    let config = LaunchConfig::new(combine::grid(tokens + 1, len), combine::THREADS);
    Drive::of(NAME, "prompt_combine", config).done(|d| {
        let rows = choices(&mut d.noise, 1, (entries, entries));
        combine::Combine {
            parts: d.floats(entries as usize * COLS, 1.0),
            rows: d.words(rows),
            shares: d.floats(entries as usize, 1.0),
            prompt: d.words(vec![3, tokens, 0, 0]),
            x: d.floats((tokens + 1) as usize * COLS, 3.0),
            len,
            used,
            factor: 4.0,
        }
    })
}

/// The products of the last two of three experts with their tokens, about 100 each.
fn multiplied(tile: Tile, output: Output) -> Case {
    let (tokens, experts, used) = (150, 3, 2);
    let (first, count, rows, cols) = (1, 2, 128_u32, 256_u32);
    let config = LaunchConfig::new(product::grid(tile, output, tokens, rows, count), tile.threads())
        .with_dynamic_shared(tile.shared_bytes());
    let mut d = Drive::of(NAME, &product::name(tile, output), config).on_tensor_cores();
    let chosen = choices(&mut d.noise, tokens, (experts, used));
    let entries = tokens * used;
    let starts = (0..=experts).map(|e| chosen.iter().filter(|c| **c < e).count() as u32).collect();
    let mut order: Vec<u32> = (0..entries).collect();
    order.sort_by_key(|entry| chosen[*entry as usize]);
    let of_tokens: Vec<u32> = order.into_iter().map(|entry| entry / used).collect();
    let gated = output == Output::Gate;
    let (vectors, parts) = if gated { (tokens, 2) } else { (entries, 1) };
    let results = (entries * rows) as usize;
    d.done(|d| product::ExpertsProduct {
        x: d.halves((vectors * cols) as usize, 1.0),
        w: d.halves((parts * count * rows * cols) as usize, 1.0),
        out: match gated {
            true => d.within(Tolerance::Halves { ulps: 2, absolute: 1e-3 }).room(results / 2),
            false => d.room(results),
        },
        starts: d.words(starts),
        rows,
        cols,
        first,
        tiles: tokens.div_ceil(tile.tokens),
        apart: count * rows,
        tokens: gated.then(|| d.words(of_tokens)),
        factor: gated.then_some(0.5),
    })
}
