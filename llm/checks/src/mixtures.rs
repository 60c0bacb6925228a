//! Mixtures of experts for the tokens of a chunk: the choice of each token's experts, the tokens of each expert, their
//! products and the weighted sum. The router's scores are among the cases of every format of weights.

use ga10b_llm::kernels::mixture::{NAME, combine, gather, product};
use ga10b_llm::kernels::prompt::gemm::{Output, Tile};
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Noise;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{COLS, Drive, MILLIONTH};

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![routed(), gathered(), combined()];
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
fn routed() -> Case {
    let (tokens, experts, used) = (9, 40, 4);
    Drive::of(NAME, "prompt_route", LaunchConfig::new(tokens + 2, 32))
        .floats((tokens * experts) as usize, 9.0)
        .words(vec![3, tokens, 0, 0])
        .room((tokens * used) as usize)
        .room((tokens * used) as usize)
        .within(MILLIONTH)
        .u32(experts)
        .u32(used)
        .done()
}

/// The entries of each expert, more than a block looks at in two rounds.
fn gathered() -> Case {
    let (tokens, experts, used) = (700, 24, 4);
    let mut drive =
        Drive::of(NAME, "prompt_gather", LaunchConfig::new(experts, gather::THREADS)).called("entries");
    let chosen = choices(&mut drive.noise, tokens, (experts, used));
    let entries = chosen.len();
    drive
        .words(chosen)
        .words(vec![3, tokens, 0, 0])
        .room(experts as usize + 3)
        .room(entries + 2)
        .room(entries + 2)
        .u32(experts)
        .u32(used)
        .done()
}

/// The weighted sums of 5 tokens; the grid has more.
fn combined() -> Case {
    let (tokens, used, len) = (5, 3, COLS as u32);
    let entries = tokens * used;
    let config = LaunchConfig::new(combine::grid(tokens + 1, len), combine::THREADS);
    let mut drive = Drive::of(NAME, "prompt_combine", config);
    let rows = choices(&mut drive.noise, 1, (entries, entries));
    drive
        .floats(entries as usize * COLS, 1.0)
        .words(rows)
        .floats(entries as usize, 1.0)
        .words(vec![3, tokens, 0, 0])
        .floats((tokens + 1) as usize * COLS, 3.0)
        .u32(len)
        .u32(used)
        .f32(4.0)
        .done()
}

/// The products of the last two of three experts with their tokens, about 100 each.
fn multiplied(tile: Tile, output: Output) -> Case {
    let (tokens, experts, used) = (150, 3, 2);
    let (first, count, rows, cols) = (1, 2, 128_u32, 256_u32);
    let config = LaunchConfig::new(product::grid(tile, output, tokens, rows, count), tile.threads())
        .with_dynamic_shared(tile.shared_bytes());
    let mut drive = Drive::of(NAME, &product::name(tile, output), config).on_tensor_cores();
    let chosen = choices(&mut drive.noise, tokens, (experts, used));
    let entries = tokens * used;
    let starts = (0..=experts).map(|e| chosen.iter().filter(|c| **c < e).count() as u32).collect();
    let mut order: Vec<u32> = (0..entries).collect();
    order.sort_by_key(|entry| chosen[*entry as usize]);
    let of_tokens: Vec<u32> = order.into_iter().map(|entry| entry / used).collect();
    let gated = output == Output::Gate;
    let (vectors, parts) = if gated { (tokens, 2) } else { (entries, 1) };
    let drive =
        drive.halves((vectors * cols) as usize, 1.0).halves((parts * count * rows * cols) as usize, 1.0);
    let results = (entries * rows) as usize;
    let drive = if gated {
        drive.room(results / 2).within(Tolerance::Halves { ulps: 2, absolute: 1e-3 })
    } else {
        drive.room(results)
    };
    let drive = drive
        .words(starts)
        .u32(rows)
        .u32(cols)
        .u32(first)
        .u32(tokens.div_ceil(tile.tokens))
        .u32(count * rows);
    if gated { drive.words(of_tokens).f32(0.5).done() } else { drive.done() }
}
