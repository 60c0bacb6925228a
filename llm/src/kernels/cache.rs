//! The key/value cache: what it is made of, and how values come into it.
//!
//! In f16 it is `[kv_head][context][head_dim]`. In q8_0 it is signed bytes of the same shape and, `scales_at` bytes from its start,
//! a scale in f16 per 32 values, `[kv_head][context][head_dim / 32]`: GGUF's blocks of 34 bytes taken apart, so that quants are
//! read in aligned pieces of 16 bytes. Keys and values are two caches of the same layout.

use half::f16;
use ptxgen::{Global, Kernel, Multiple, Pointer, Reg, Round, Shuffle};

use crate::error::{Error, Result};
use crate::model::Config;

/// Values that share a scale in q8_0.
pub const BLOCK: u32 = 32;

/// The type of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// 16 bits per value.
    #[default]
    F16,
    /// 8 bits per value and a scale of 16 bits per [`BLOCK`]; heads must be whole blocks.
    Q8_0,
}

impl CacheType {
    /// All of them.
    pub const ALL: [CacheType; 2] = [CacheType::F16, CacheType::Q8_0];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            CacheType::F16 => "f16",
            CacheType::Q8_0 => "q8_0",
        }
    }

    /// Bytes that `values` values take, whole blocks of them.
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            CacheType::F16 => 2 * values,
            CacheType::Q8_0 => values + values / BLOCK as u64 * 2,
        }
    }

    /// Refuses what cannot be cached like this.
    ///
    /// # Errors
    /// [`Error::KeyValue`] if heads are not whole blocks.
    pub fn check(self, c: &Config) -> Result<()> {
        if self == CacheType::Q8_0 && !c.head_dim.is_multiple_of(BLOCK as usize) {
            return Err(Error::KeyValue {
                key: "llama.attention.key_length".into(),
                value: c.head_dim.to_string(),
                rule: "a cache in q8_0 takes heads of a multiple of 32 values; use one in f16",
            });
        }
        Ok(())
    }

    /// Last part of the names of kernels that are written for one type.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            CacheType::F16 => "",
            CacheType::Q8_0 => "_q8_0",
        }
    }

    /// Values that a lane reads at a time, 16 bytes.
    pub(super) const fn piece(self) -> u32 {
        match self {
            CacheType::F16 => 8,
            CacheType::Q8_0 => 16,
        }
    }
}

/// Scale and quants of a block of which this lane has `values`, and the lanes whose numbers differ in the bits of `lanes` the
/// others. Rounds as ggml does (`quantize_row_q8_0_ref` of its `ggml-quants.c`): the scale is the largest value over 127, kept in
/// f16 but divided by in single precision; halves are rounded away from zero.
pub(super) fn quantize<const N: usize>(
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

/// The largest magnitude of `values` and those of the lanes whose numbers differ in the bits of `lanes`.
pub(super) fn largest(k: &Kernel, values: &[Reg<f32>], lanes: &[u32]) -> Reg<f32> {
    let own = values.iter().map(|v| k.abs::<f32>(*v)).reduce(|a, b| k.max(a, b));
    let own = own.unwrap_or_else(|| k.var(0f32));
    lanes.iter().fold(own, |v, bit| k.max(v, k.shuffle(v, Shuffle::Xor(*bit))))
}

/// Four values times `inverse` as 16-bit integers, bytes apart: `256 · high + low`, `high` signed and `low` unsigned.
pub(super) fn split(k: &Kernel, values: [Reg<f32>; 4], inverse: Reg<f32>) -> [Reg<u32>; 2] {
    let q = values.map(|v| k.bits(k.round_to::<f32, i32>(k.mul(v, inverse), Round::Nearest)));
    [1, 0].map(|byte| four_bytes(k, q, byte))
}

/// Byte `byte` of each of four words.
pub(super) fn four_bytes(k: &Kernel, words: [Reg<u32>; 4], byte: u32) -> Reg<u32> {
    let two = |a, b| k.prmt(a, b, byte | (byte + 4) << 4);
    k.prmt(two(words[0], words[1]), two(words[2], words[3]), 0x5410u32)
}

/// The product of cached quants with integers that [`split`] made.
pub(super) fn product(k: &Kernel, quants: &[Reg<u32>], high: &[Reg<u32>], low: &[Reg<u32>]) -> Reg<f32> {
    let signed = |word: Reg<u32>| k.bits::<u32, i32>(word);
    let (mut upper, mut lower) = (k.var(0i32), k.var(0i32));
    for ((q, h), l) in quants.iter().zip(high).zip(low) {
        upper = k.dp4a(signed(*q), signed(*h), upper);
        lower = k.dp4a(signed(*q), *l, lower);
    }
    k.convert::<i32, f32>(k.mad(upper, 256i32, lower))
}

/// The four bytes of a word as numbers, without their scale.
pub(super) fn numbers(k: &Kernel, word: Reg<u32>) -> [Reg<f32>; 4] {
    [0u32, 8, 16, 24].map(|bit| k.convert::<i32, f32>(k.bfe(k.bits::<u32, i32>(word), bit, 8u32)))
}

/// Where the scales of a cache in q8_0 are.
pub(super) fn scales(k: &Kernel, cache: Pointer<Global, u8>, scales_at: Multiple) -> Pointer<Global, f16> {
    k.at(cache, scales_at).cast()
}

/// Quantizes the pairs of 16 neighbouring lanes, a block, into row `row` of `half_dim` pairs; this lane has pair `j` of the row.
pub(super) fn store_quantized_pair(
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
