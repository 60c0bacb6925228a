//! The key/value cache in device memory, and the code that kernels write and read it with.
//!
//! It consists of pages of [`PAGE`] positions, and a sequence has a table of their numbers. In f16 it is
//! `[page][kv_head][PAGE][head_dim]`. In q8_0 it is signed bytes of the same shape and, `scales_at` bytes from
//! its start, an f16 scale per 32 values, `[page][kv_head][PAGE][head_dim / 32]`: GGUF's blocks of 34 bytes
//! split in two, so that quants are read in aligned pieces of 16 bytes. Keys and values are two caches of the
//! same layout.

use half::f16;
use ptxgen::{F16x2, Global, Kernel, Multiple, Pointer, Pred, Reg, Round, Shuffle};

/// Positions of a page.
pub const PAGE: u32 = 256;

/// A group of values whose largest magnitude is at most this counts as zero.
const TINY: f32 = 1e-30;

/// The row of `position` of head `kv_head` in the page `page` of a cache.
pub(crate) fn row(
    k: &Kernel,
    page: Reg<u32>,
    (kv_head, kv_heads): (Reg<u32>, Reg<u32>),
    position: Reg<u32>,
) -> Reg<u32> {
    k.mad(k.mad(page, kv_heads, kv_head), PAGE, k.and(position, PAGE - 1))
}

/// Scale and quants of a block. This lane has `values`; the lanes whose numbers differ in the bits of `lanes`
/// have the rest.
///
/// Rounds as ggml does (`quantize_row_q8_0_ref` in `ggml-quants.c`): the scale is the largest value over 127,
/// stored in f16 but divided by in single precision; halves are rounded away from zero.
pub(crate) fn quantize<const N: usize>(
    k: &Kernel,
    values: [Reg<f32>; N],
    lanes: &[u32],
) -> (Reg<f16>, [Reg<u32>; N]) {
    let largest = largest(k, &values, lanes);
    let scale = k.div(largest, 127f32);
    let inverse = k.select(k.gt(scale, 0f32), k.div(1f32, scale), 0f32);
    let quants = values.map(|v| {
        let x = k.mul(v, inverse);
        let whole = k.round_to::<f32, i32>(x, Round::Zero);
        let rest = k.sub(x, k.convert::<i32, f32>(whole));
        let away = k.select(k.lt(x, 0f32), -1i32, 1i32);
        let quant = k.add(whole, k.select(k.ge(k.abs::<f32>(rest), 0.5f32), away, 0i32));
        k.bits::<i32, u32>(quant)
    });
    (k.convert::<f32, f16>(scale), quants)
}

/// The largest magnitude of this lane's `values` and those of the lanes whose numbers differ in the bits of
/// `lanes`.
pub(crate) fn largest(k: &Kernel, values: &[Reg<f32>], lanes: &[u32]) -> Reg<f32> {
    let own = values.iter().map(|v| k.abs::<f32>(*v)).reduce(|a, b| k.max(a, b));
    let own = own.unwrap_or_else(|| k.var(0f32));
    lanes.iter().fold(own, |v, bit| k.max(v, k.shuffle(v, Shuffle::Xor(*bit))))
}

/// The factor that makes values with the largest magnitude `largest` 16-bit integers; 0 for a group that
/// counts as zero. Also returns whether it does not.
pub(crate) fn to_integers(k: &Kernel, largest: Reg<f32>) -> (Reg<f32>, Pred) {
    let some = k.gt(largest, TINY);
    (k.select(some, k.mul(k.rcp(largest), 32767f32), 0f32), some)
}

/// Four values times `inverse` as 16-bit integers in separate bytes: `256 · high + low`, `high` signed and
/// `low` unsigned.
pub(crate) fn split(k: &Kernel, values: [Reg<f32>; 4], inverse: Reg<f32>) -> [Reg<u32>; 2] {
    let q = values.map(|v| k.bits(k.round_to::<f32, i32>(k.mul(v, inverse), Round::Nearest)));
    [1, 0].map(|byte| four_bytes(k, q, byte))
}

/// Byte `byte` of each of four words.
pub(crate) fn four_bytes(k: &Kernel, words: [Reg<u32>; 4], byte: u32) -> Reg<u32> {
    let two = |a, b| k.prmt(a, b, byte | (byte + 4) << 4);
    k.prmt(two(words[0], words[1]), two(words[2], words[3]), 0x5410u32)
}

/// The dot product of cached quants with integers from [`split`].
pub(crate) fn product(k: &Kernel, quants: &[Reg<u32>], high: &[Reg<u32>], low: &[Reg<u32>]) -> Reg<f32> {
    let signed = |word: Reg<u32>| k.bits::<u32, i32>(word);
    let (mut upper, mut lower) = (k.var(0i32), k.var(0i32));
    for ((q, h), l) in quants.iter().zip(high).zip(low) {
        upper = k.dp4a(signed(*q), signed(*h), upper);
        lower = k.dp4a(signed(*q), *l, lower);
    }
    k.convert::<i32, f32>(k.mad(upper, 256i32, lower))
}

/// The four signed bytes of a word as numbers, without their scale.
pub(crate) fn numbers(k: &Kernel, word: Reg<u32>) -> [Reg<f32>; 4] {
    [0u32, 8, 16, 24].map(|bit| k.convert::<i32, f32>(k.bfe(k.bits::<u32, i32>(word), bit, 8u32)))
}

/// The scales of a cache in q8_0.
pub(crate) fn scales(k: &Kernel, cache: Pointer<Global, u8>, scales_at: Multiple) -> Pointer<Global, f16> {
    k.at(cache, scales_at).cast()
}

/// Stores this lane's pair `j` of row `row`, which has `half_dim` pairs, in a cache: f16, or q8_0 if
/// `scales_at` is given. For q8_0 all lanes of a block must take part.
pub(crate) fn store_pair(
    k: &Kernel,
    cache: Pointer<Global, f16>,
    scales_at: Option<Multiple>,
    (row, half_dim, j): (Reg<u32>, Reg<u32>, Reg<u32>),
    [x, y]: [Reg<f32>; 2],
) {
    match scales_at {
        None => k.store(k.at(k.row(cache.cast::<F16x2>(), row, half_dim), j), k.pack_f32(x, y)),
        Some(at) => store_quantized_pair(k, cache.cast(), at, (row, half_dim, j), [x, y]),
    }
}

/// Quantizes the pairs of 16 neighbouring lanes, a block, into row `row` of `half_dim` pairs; this lane has
/// pair `j`.
fn store_quantized_pair(
    k: &Kernel,
    cache: Pointer<Global, u8>,
    scales_at: Multiple,
    (row, half_dim, j): (Reg<u32>, Reg<u32>, Reg<u32>),
    pair: [Reg<f32>; 2],
) {
    let (scale, [a, b]) = quantize(k, pair, &[8, 4, 2, 1]);
    let both = k.convert::<u32, u16>(k.prmt(a, b, 0x0040u32));
    k.store(k.at(k.row(cache.cast::<u16>(), row, half_dim), j), both);
    k.if_(k.eq(k.and(j, 15), 0), || {
        let row = k.row(scales(k, cache, scales_at), row, k.shr(half_dim, 4));
        k.store(k.at(row, k.shr(j, 4)), scale);
    });
}
