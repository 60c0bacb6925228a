//! Attention of a chunk of prompt tokens, whole and in split-K parts, with and without limits, over pages in an
//! order of their own and in order.

use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::heads::HEAD_DIMS;
use ga10b_llm::kernels::limits::infix;
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
    let mut cases = Vec::new();
    let chunks = [(11, 70, 1), (600, 6, 3), (11, 70, 2)];
    for (dims, chunk) in HEAD_DIMS.into_iter().zip(chunks) {
        // Of the chunk at 600 the first share sees nothing, and the second a part.
        let limits = [None, Some((if chunk.0 > 100 { 200 } else { 40 }, 0.5))];
        cases.extend(limits.map(|limits| of_chunk(dims, chunk, limits, limits.is_none())));
        cases.push(of_chunk(dims, chunk, None, false));
    }
    cases.extend(HEAD_DIMS.map(merge));
    cases
}

const HEADS: u32 = 4;
const GROUP: u32 = 2;

/// A chunk: its start, its tokens, and most split-K parts of its positions.
fn of_chunk(
    dims: u32,
    (start, tokens, most): (u32, u32, u32),
    limits: Option<Limits>,
    in_order: bool,
) -> Case {
    let config = LaunchConfig::new((tokens.div_ceil(shares::TOKENS), HEADS, most), attention::THREADS)
        .with_dynamic_shared(attention::shared_bytes(dims));
    let (page, kv_heads) = (PAGE as u32, HEADS / GROUP);
    let pages = (start + tokens).div_ceil(page);
    let cache = (kv_heads * pages * page * dims) as usize;
    // The pages of another sequence come first.
    let tables = [u32::MAX].into_iter().chain((0..pages).rev()).collect();
    let partials = (most * tokens * HEADS * shares::partial_words(dims)) as usize;
    let kernel = format!("prompt_attention_{}{dims}", infix(limits.is_some()));
    let (window, cap) = limits.unzip();
    let drive = Drive::of("prompt", &kernel, config).called(if in_order { "in order" } else { "by a table" });
    drive.on_tensor_cores().done(|d| attention::PromptAttention {
        q: d.halves((tokens * HEADS * dims) as usize, 1.0),
        keys: d.halves(cache, 1.0),
        values: d.halves(cache, 1.0),
        prompt: d.words(vec![start, tokens, 1, 0]),
        out: d.within(ROUNDED).room((tokens * HEADS * dims / 2) as usize),
        tables: d.words(tables),
        in_order: in_order.into(),
        kv_heads,
        head_dim: dims,
        head_values: dims,
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
        head_values: dims,
        most: 3,
    })
}
