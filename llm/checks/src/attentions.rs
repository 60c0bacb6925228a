//! Attention: of a step and of a chunk of prompt tokens, whole and in split-K parts, with and without limits,
//! over caches in f16 and in q8_0.

use ga10b_llm::kernels::heads::HEAD_DIMS;
use ga10b_llm::kernels::limits::infix;
use ga10b_llm::kernels::operations::attention as step;
use ga10b_llm::kernels::operations::quantized_attention::QuantizedAttention;
use ga10b_llm::kernels::prompt::{attention, shares};
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{Drive, ROUNDED};

/// A window of positions and a cap of scores, which are about 1: one that all of them feel.
type Limits = (u32, f32);

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![combine()];
    for limits in [None, Some((40, 0.5))] {
        for dims in HEAD_DIMS {
            cases.extend([1, 3].map(|shares| of_step(dims, shares, limits)));
            cases.push(quantized(dims, limits));
        }
    }
    let chunks = [(11, 70, 1), (600, 6, 3), (11, 70, 2)];
    for (dims, chunk) in HEAD_DIMS.into_iter().zip(chunks) {
        // Of the chunk at 600 the first share sees nothing, and the second a part.
        let limits = [None, Some((if chunk.0 > 100 { 200 } else { 40 }, 0.5))];
        cases.extend(limits.map(|limits| of_chunk(dims, chunk, limits)));
    }
    cases.extend(HEAD_DIMS.map(merge));
    cases
}

const HEADS: u32 = 4;
const GROUP: u32 = 2;

/// Words of a share of a head of `dims` in the results of a step.
fn share_words(dims: u32) -> u32 {
    (dims + 5) & !3
}

/// The newest of 77 positions of a context, heads of `dims`.
fn of_step(dims: u32, shares: u32, limits: Option<Limits>) -> Case {
    let (context, positions) = (96, 77);
    let cache = (HEADS / GROUP * context * dims) as usize;
    let out = if shares > 1 { HEADS * shares * share_words(dims) } else { HEADS * dims };
    let split = if shares > 1 { "split_" } else { "" };
    let kernel = format!("attention_{}{split}{dims}", infix(limits.is_some()));
    let (window, cap) = limits.unzip();
    Drive::of("attention", &kernel, LaunchConfig::new((HEADS, shares), 128)).done(|d| step::Attention {
        q: d.floats((HEADS * dims) as usize, 1.0),
        keys: d.halves(cache, 1.0),
        values: d.halves(cache, 1.0),
        state: d.words(vec![positions - 1, 0, 0, 0]),
        out: d.within(Tolerance::Single { ulps: 64, absolute: 1e-5 }).room(out as usize),
        context,
        head_dim: dims,
        group: GROUP,
        scale: 1.0 / (dims as f32).sqrt(),
        window,
        cap,
    })
}

/// The same over a cache in q8_0. The query becomes integers by an approximate factor: a component near the middle of
/// two may become either, which changes a score by 2^-15 of its largest product, 5e-6 for the shortest heads, and the
/// sums of about 30 weights with it.
fn quantized(dims: u32, limits: Option<Limits>) -> Case {
    let (context, positions, shares) = (96, 77, 3);
    let cache = (HEADS / GROUP * context * dims) as usize;
    let kernel = format!("attention_{}q8_0_{dims}", infix(limits.is_some()));
    let (window, cap) = limits.unzip();
    let drive = Drive::of("attention", &kernel, LaunchConfig::new((HEADS, shares), 128));
    drive.done(|d| QuantizedAttention {
        q: d.floats((HEADS * dims) as usize, 1.0),
        keys: d.quantized(cache),
        values: d.quantized(cache),
        state: d.words(vec![positions - 1, 0, 0, 0]),
        out: d
            .within(Tolerance::Single { ulps: 64, absolute: 2e-4 })
            .room((HEADS * shares * share_words(dims)) as usize),
        context,
        head_dim: dims,
        group: GROUP,
        scale: 1.0 / (dims as f32).sqrt(),
        scales_at: cache as u32,
        window,
        cap,
    })
}

/// The kernel that merges the split-K parts of a step.
fn combine() -> Case {
    Drive::of("attention", "attention_combine", LaunchConfig::new(HEADS, 128)).done(|d| step::Combine {
        partials: d.floats(4 * 3 * 68, 2.0),
        out: d.within(Tolerance::Single { ulps: 64, absolute: 1e-4 }).room(4 * 64),
        head_dim: 64,
        shares: 3,
    })
}

/// A chunk: its start, its tokens, and most split-K parts of its positions.
fn of_chunk(dims: u32, (start, tokens, most): (u32, u32, u32), limits: Option<Limits>) -> Case {
    let config = LaunchConfig::new((tokens.div_ceil(shares::TOKENS), HEADS, most), attention::THREADS)
        .with_dynamic_shared(attention::shared_bytes(dims));
    let context = start + tokens + 10;
    let cache = (HEADS / GROUP * context * dims) as usize;
    let partials = (most * tokens * HEADS * shares::partial_words(dims)) as usize;
    let kernel = format!("prompt_attention_{}{dims}", infix(limits.is_some()));
    let (window, cap) = limits.unzip();
    Drive::of("prompt", &kernel, config).on_tensor_cores().done(|d| attention::PromptAttention {
        q: d.halves((tokens * HEADS * dims) as usize, 1.0),
        keys: d.halves(cache, 1.0),
        values: d.halves(cache, 1.0),
        prompt: d.words(vec![start, tokens, 0, 0]),
        out: d.within(ROUNDED).room((tokens * HEADS * dims / 2) as usize),
        context,
        head_dim: dims,
        group: GROUP,
        scale: 1.0 / (dims as f32).sqrt(),
        partials: d.within(Tolerance::Single { ulps: 64, absolute: 2e-3 }).room(partials),
        window,
        cap,
    })
}

/// The kernel that merges the split-K parts of a chunk.
fn merge(dims: u32) -> Case {
    let positive = |i: u32| (0.5 + (i * 37 % 64) as f32 / 128.0).to_bits();
    let config = LaunchConfig::new((7, 1), shares::THREADS);
    Drive::of("prompt", &format!("prompt_merge_{dims}"), config).done(|d| shares::Merge {
        partials: d.words((0..3 * 6 * HEADS * shares::partial_words(dims)).map(positive).collect()),
        prompt: d.words(vec![600, 6, 0, 0]),
        out: d.within(ROUNDED).room((6 * HEADS * dims / 2) as usize),
        heads: HEADS,
        head_dim: dims,
        most: 3,
    })
}
