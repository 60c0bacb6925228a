//! Layers of other architectures than `llama`: biases, norms of heads and of results, layer norm, GELU,
//! learned positions, scales, capped logits.
//!
//! Sums, products, quotients and square roots have one right value, so most of these are exact.

use ga10b_llm::kernels::layers::{NAME, cap, gelu, heads, layer_norm, post_norm, rows};
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::BufferNumber;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{COLS, Drive, NEXT};

/// The length of a vector, as kernels take it.
const LEN: u32 = COLS as u32;
/// Tokens of a chunk, and the sums of a product: in so many parts, so many tokens apart.
const TOKENS: u32 = 5;
const SHARES: u32 = 2;
const SHARE_PITCH: u32 = 6;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = rows();
    cases.extend(prepared());
    cases.extend(norms());
    cases.extend(gelus());
    cases
}

/// A kernel with a thread per value of `vectors` vectors.
fn each(kernel: &str, threads: u32, vectors: u32) -> Drive {
    Drive::of(NAME, kernel, LaunchConfig::new((LEN.div_ceil(threads), vectors), threads))
}

/// Vectors as the kernels of layers take them.
trait Vectors {
    /// `vectors` vectors of f32 between −`scale` and `scale`.
    fn vectors(&mut self, vectors: u32, scale: f32) -> BufferNumber;

    /// The sums of a product for a chunk, each of `parts` vectors per token.
    fn sums(&mut self, parts: u32, scale: f32) -> BufferNumber;
}

impl Vectors for Drive {
    fn vectors(&mut self, vectors: u32, scale: f32) -> BufferNumber {
        self.floats((vectors * LEN) as usize, scale)
    }

    fn sums(&mut self, parts: u32, scale: f32) -> BufferNumber {
        self.vectors(SHARES * SHARE_PITCH * parts, scale)
    }
}

/// Vectors added to the residual stream and their factor, and the cap of logits.
fn rows() -> Vec<Case> {
    let (cap, len) = (30.0, LEN);
    vec![
        each("add_bias", rows::THREADS, 3).done(|d| rows::AddBias {
            x: d.vectors(3, 3.0),
            bias: d.vectors(1, 1.0),
            len,
        }),
        // The last tokens are past the last position.
        each("add_position", rows::THREADS, TOKENS).done(|d| rows::AddPosition {
            x: d.vectors(TOKENS, 3.0),
            positions: d.vectors(10, 1.0),
            state: d.words(vec![7, 0, 0, 0]),
            len,
            rows: 10,
        }),
        each("scale", rows::THREADS, 3).done(|d| rows::Scale {
            x: d.vectors(3, 3.0),
            len,
            factor: 27.712_812,
        }),
        // The hyperbolic tangent is within 3e-7, of either sign.
        each("cap", cap::THREADS, 1).done(|d| {
            d.within(Tolerance::Single { ulps: 16, absolute: 6e-7 * f64::from(cap) });
            cap::Cap { logits: d.vectors(1, 90.0), count: LEN - 5, cap }
        }),
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
        let drive = Drive::of(NAME, "prepare_heads", LaunchConfig::new((pieces, TOKENS), heads::THREADS));
        drive.called(what).done(|d| heads::PrepareHeads {
            qkv: d.floats((SHARES * SHARE_PITCH * row) as usize, 2.0),
            bias: d.floats(row as usize, 1.0),
            q_norm: d.floats(q_length as usize, 1.0),
            k_norm: d.floats(k_length as usize, 1.0),
            q_dim,
            kv_dim,
            q_length,
            k_length,
            shares: SHARES,
            share_pitch: SHARE_PITCH,
            eps: 1e-6,
            flags,
        })
    };
    vec![
        case("biases", [HEAD; 2], heads::BIASED),
        case("norms of heads", [HEAD; 2], heads::NORMED),
        case("biases and norms of all heads", [q_dim, kv_dim], heads::BIASED | heads::NORMED),
    ]
}

/// Norms. The mean of a layer norm takes an approximate reciprocal.
fn norms() -> Vec<Case> {
    let (len, shares, share_pitch, factor) = (LEN, SHARES, SHARE_PITCH, 2.0);
    vec![
        Drive::of(NAME, "prompt_layer_norm", LaunchConfig::new(TOKENS, layer_norm::THREADS)).done(|d| {
            layer_norm::PromptLayerNorm {
                x: d.vectors(TOKENS, 3.0),
                sums: d.sums(1, 1.0),
                weight: d.vectors(1, 1.0),
                bias: d.vectors(1, 1.0),
                out: d.within(NEXT).room(TOKENS as usize * COLS / 2),
                len,
                eps: 1e-5,
                shares,
                share_pitch,
                factor,
            }
        }),
        Drive::of(NAME, "post_norm", LaunchConfig::new(TOKENS, post_norm::THREADS)).done(|d| {
            let (sums, weight, x) = (d.sums(1, 1.0), d.vectors(1, 1.0), d.vectors(TOKENS, 3.0));
            post_norm::PostNorm { sums, weight, x, len, eps: 1e-6, shares, share_pitch, factor }
        }),
    ]
}

/// GELU of a vector and of a gate.
fn gelus() -> Vec<Case> {
    let (len, shares, share_pitch, factor) = (LEN, SHARES, SHARE_PITCH, 0.5);
    let of_chunk = |kernel: &str| each(kernel, gelu::THREADS, TOKENS);
    let room = |d: &mut Drive| d.within(NEXT).room(TOKENS as usize * COLS / 2);
    vec![
        of_chunk("prompt_gelu").done(|d| {
            let (up, bias, out) = (d.sums(1, 3.0), d.vectors(1, 1.0), room(d));
            gelu::PromptGelu { up, bias, out, len, shares, share_pitch, factor }
        }),
        of_chunk("prompt_gelu_gate").done(|d| {
            let (sums, out) = (d.sums(2, 3.0), room(d));
            gelu::PromptGeluGate { sums, out, len, shares, share_pitch, factor }
        }),
    ]
}
