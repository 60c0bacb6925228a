//! Layers of other architectures than `llama`: biases, norms of heads and of results, layer norm, GELU,
//! learned positions, scales, capped logits, and the experts of one token.
//!
//! Sums, products, quotients and square roots have one right value, so most of these are exact.

use ga10b_llm::kernels::layers::{NAME, cap, experts, gelu, heads, layer_norm, post_norm, rows};
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{COLS, Drive, MILLIONTH, NEXT};

/// The length of a vector, as kernels take it.
const LEN: u32 = COLS as u32;
/// Tokens of a chunk, and the sums of a product: in so many parts, so many tokens apart.
const TOKENS: u32 = 5;
const SHARES: u32 = 2;
const SHARE_PITCH: u32 = 6;
/// Experts, and those of a token.
const EXPERTS: u32 = 45;
const USED: u32 = 6;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = rows();
    cases.extend(prepared());
    cases.extend(norms());
    cases.extend(gelus());
    cases.extend(mixture());
    cases
}

/// A kernel with a thread per value of `vectors` vectors.
fn each(kernel: &str, threads: u32, vectors: u32) -> Drive {
    Drive::of(NAME, kernel, LaunchConfig::new((LEN.div_ceil(threads), vectors), threads))
}

/// Vectors as the kernels of layers take them.
trait Vectors: Sized {
    /// `vectors` vectors of f32 between −`scale` and `scale`.
    fn vectors(self, vectors: u32, scale: f32) -> Self;

    /// The sums of a product for a chunk, each of `parts` vectors per token.
    fn sums(self, parts: u32, scale: f32) -> Self;
}

impl Vectors for Drive {
    fn vectors(self, vectors: u32, scale: f32) -> Self {
        self.floats((vectors * LEN) as usize, scale)
    }

    fn sums(self, parts: u32, scale: f32) -> Self {
        self.vectors(SHARES * SHARE_PITCH * parts, scale)
    }
}

/// Vectors added to the residual stream and their factor, and the cap of logits.
fn rows() -> Vec<Case> {
    let capped = 30.0;
    vec![
        each("add_bias", rows::THREADS, 3).vectors(3, 3.0).vectors(1, 1.0).u32(LEN).done(),
        // The last tokens are past the last position.
        each("add_position", rows::THREADS, TOKENS)
            .vectors(TOKENS, 3.0)
            .vectors(10, 1.0)
            .words(vec![7, 0, 0, 0])
            .u32(LEN)
            .u32(10)
            .done(),
        each("scale", rows::THREADS, 3).vectors(3, 3.0).u32(LEN).f32(27.712_812).done(),
        // The hyperbolic tangent is within 3e-7, of either sign.
        each("cap", cap::THREADS, 1)
            .vectors(1, 90.0)
            .within(Tolerance::Single { ulps: 16, absolute: 6e-7 * f64::from(capped) })
            .u32(LEN - 5)
            .f32(capped)
            .done(),
    ]
}

/// Queries, keys and values with biases, with norms of each head, and with norms of all heads together.
fn prepared() -> Vec<Case> {
    const HEAD: u32 = 32;
    let (q_dim, kv_dim) = (4 * HEAD, 2 * HEAD);
    let row = q_dim + 2 * kv_dim;
    let case = |what: &str, lengths: [u32; 2], flags: u32| {
        let [q_length, k_length] = lengths;
        let pieces = q_dim / q_length + kv_dim / k_length + 1;
        Drive::of(NAME, "prepare_heads", LaunchConfig::new((pieces, TOKENS), heads::THREADS))
            .called(what)
            .floats((SHARES * SHARE_PITCH * row) as usize, 2.0)
            .floats(row as usize, 1.0)
            .floats(q_length as usize, 1.0)
            .floats(k_length as usize, 1.0)
            .u32(q_dim)
            .u32(kv_dim)
            .u32(q_length)
            .u32(k_length)
            .u32(SHARES)
            .u32(SHARE_PITCH)
            .f32(1e-6)
            .u32(flags)
            .done()
    };
    vec![
        case("biases", [HEAD; 2], heads::BIASED),
        case("norms of heads", [HEAD; 2], heads::NORMED),
        case("biases and norms of all heads", [q_dim, kv_dim], heads::BIASED | heads::NORMED),
    ]
}

/// Norms. The mean of a layer norm takes an approximate reciprocal.
fn norms() -> Vec<Case> {
    vec![
        Drive::of(NAME, "layer_norm", LaunchConfig::new(1, layer_norm::THREADS))
            .vectors(1, 3.0)
            .vectors(1, 1.0)
            .vectors(1, 1.0)
            .room(COLS)
            .within(MILLIONTH)
            .u32(LEN)
            .f32(1e-5)
            .done(),
        Drive::of(NAME, "prompt_layer_norm", LaunchConfig::new(TOKENS, layer_norm::THREADS))
            .vectors(TOKENS, 3.0)
            .sums(1, 1.0)
            .vectors(1, 1.0)
            .vectors(1, 1.0)
            .room(TOKENS as usize * COLS / 2)
            .within(NEXT)
            .u32(LEN)
            .f32(1e-5)
            .u32(SHARES)
            .u32(SHARE_PITCH)
            .f32(2.0)
            .done(),
        Drive::of(NAME, "post_norm", LaunchConfig::new(TOKENS, post_norm::THREADS))
            .sums(1, 1.0)
            .vectors(1, 1.0)
            .vectors(TOKENS, 3.0)
            .u32(LEN)
            .f32(1e-6)
            .u32(SHARES)
            .u32(SHARE_PITCH)
            .f32(2.0)
            .done(),
    ]
}

/// GELU of a vector and of a gate.
fn gelus() -> Vec<Case> {
    let of_chunk = |kernel: &str| each(kernel, gelu::THREADS, TOKENS);
    let finish = |drive: Drive| {
        let drive = drive.room(TOKENS as usize * COLS / 2).within(NEXT);
        drive.u32(LEN).u32(SHARES).u32(SHARE_PITCH).f32(0.5).done()
    };
    let of_step = |kernel: &str| {
        let drive = each(kernel, gelu::THREADS, 1).vectors(1, 6.0).vectors(1, 2.0);
        drive.room(COLS).within(MILLIONTH).u32(LEN).done()
    };
    vec![
        of_step("gelu"),
        finish(of_chunk("prompt_gelu").sums(1, 3.0).vectors(1, 1.0)),
        of_step("gelu_gate"),
        finish(of_chunk("prompt_gelu_gate").sums(2, 3.0)),
    ]
}

/// The choice of a token's experts, their activations, and the sum.
fn mixture() -> Vec<Case> {
    vec![
        Drive::of(NAME, "route", LaunchConfig::new(1, 32))
            .floats(EXPERTS as usize, 9.0)
            .room(USED as usize)
            .room(USED as usize)
            .within(MILLIONTH)
            .u32(EXPERTS)
            .u32(USED)
            .done(),
        each("expert_silu", experts::THREADS, USED)
            .vectors(USED, 6.0)
            .vectors(USED, 2.0)
            .floats(USED as usize, 1.0)
            .room(USED as usize * COLS)
            .within(MILLIONTH)
            .u32(LEN)
            .done(),
        each("expert_sum", experts::THREADS, 1).vectors(USED, 2.0).vectors(1, 3.0).u32(LEN).u32(USED).done(),
    ]
}
