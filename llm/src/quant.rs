//! Dequantization on the CPU: from the blocks of a file to `f32`.
//!
//! One function per block type, values in output order, every product rounded to `f32` in the order of ggml's
//! reference code, so that results are equal bit for bit. Formats: `ggml-common.h` and `ggml-quants.c` of the
//! ggml repository.

use half::{bf16, f16};

use crate::codebook::codes;
use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::tensor_type::GgmlType;

/// Turns one block of bytes into its values.
pub type BlockDecoder = fn(&[u8], &mut [f32]);

/// The types that [`dequantize`] takes.
pub const SUPPORTED: [(GgmlType, BlockDecoder); 23] = [
    (GgmlType::F32, f32_value),
    (GgmlType::F16, f16_value),
    (GgmlType::Bf16, bf16_value),
    (GgmlType::Q4_0, q4_0),
    (GgmlType::Q8_0, q8_0),
    (GgmlType::Q4K, q4_k),
    (GgmlType::Q5K, q5_k),
    (GgmlType::Q6K, q6_k),
    (GgmlType::Q4_1, q4_1),
    (GgmlType::Q5_0, q5_0),
    (GgmlType::Q5_1, q5_1),
    (GgmlType::Q3K, q3_k),
    (GgmlType::Iq4Nl, iq4_nl),
    (GgmlType::Mxfp4, mxfp4),
    (GgmlType::Q2K, q2_k),
    (GgmlType::Iq4Xs, iq4_xs),
    (GgmlType::Iq2Xxs, |block, out| by_codebook(GgmlType::Iq2Xxs, block, out)),
    (GgmlType::Iq2Xs, |block, out| by_codebook(GgmlType::Iq2Xs, block, out)),
    (GgmlType::Iq2S, |block, out| by_codebook(GgmlType::Iq2S, block, out)),
    (GgmlType::Iq3Xxs, |block, out| by_codebook(GgmlType::Iq3Xxs, block, out)),
    (GgmlType::Iq3S, |block, out| by_codebook(GgmlType::Iq3S, block, out)),
    (GgmlType::Iq1S, |block, out| by_codebook(GgmlType::Iq1S, block, out)),
    (GgmlType::Iq1M, |block, out| by_codebook(GgmlType::Iq1M, block, out)),
];

fn block_decoder(ty: GgmlType) -> Option<BlockDecoder> {
    SUPPORTED.into_iter().find(|(t, _)| *t == ty).map(|(_, decode)| decode)
}

/// Writes the values of whole blocks of type `ty` to `out`; `None` if the type is not in [`SUPPORTED`].
///
/// # Panics
/// If `blocks` is not exactly the blocks that hold `out.len()` values.
pub fn dequantize(ty: GgmlType, blocks: &[u8], out: &mut [f32]) -> Option<()> {
    let decode = block_decoder(ty)?;
    assert_eq!(
        ty.bytes_for(out.len() as u64),
        Some(blocks.len() as u64),
        "{ty} blocks of {} values",
        out.len()
    );
    let bytes = blocks.chunks_exact(ty.block_bytes() as usize);
    for (block, values) in bytes.zip(out.chunks_exact_mut(ty.block_values() as usize)) {
        decode(block, values);
    }
    Some(())
}

impl TensorView<'_> {
    /// Refuses a tensor whose type has no dequantization.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`].
    pub fn check_supported(&self) -> Result<()> {
        match block_decoder(self.ty) {
            Some(_) => Ok(()),
            None => Err(Error::UnsupportedType { name: self.name.into(), ty: self.ty }),
        }
    }

    /// Writes the values of row `row` to `out`, which is `row_len()` long.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`].
    ///
    /// # Panics
    /// If `row` is not below `rows()` or `out` has another length.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) -> Result<()> {
        let bytes = self.row_bytes();
        let unsupported = || Error::UnsupportedType { name: self.name.into(), ty: self.ty };
        dequantize(self.ty, &self.data[row * bytes..(row + 1) * bytes], out).ok_or_else(unsupported)
    }

    /// All values, row after row.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`].
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        self.check_supported()?;
        let mut values = vec![0.0; self.rows() * self.row_len()];
        for (row, out) in values.chunks_exact_mut(self.row_len()).enumerate() {
            self.dequantize_row(row, out)?;
        }
        Ok(values)
    }
}

/// The IEEE half at byte `at`, converted exactly: scales are often subnormal.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn f32_value(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

fn f16_value(block: &[u8], out: &mut [f32]) {
    out[0] = half_at(block, 0);
}

fn bf16_value(block: &[u8], out: &mut [f32]) {
    out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32();
}

/// `d: f16, qs: [u8; 16]`: low nibbles are values 0..16, high nibbles 16..32.
fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (l, &q) in block[2..18].iter().enumerate() {
        out[l] = (i32::from(q & 15) - 8) as f32 * d;
        out[l + 16] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

/// `d: f16, qs: [i8; 32]`.
fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (value, &q) in out.iter_mut().zip(&block[2..34]) {
        *value = f32::from(q.cast_signed()) * d;
    }
}

/// Scale and minimum of sub-block `j` (0..8), six bits each, from the twelve packed bytes of Q4_K and Q5_K.
fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        let min = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
        (scale, min)
    }
}

/// `d: f16, dmin: f16, scales: [u8; 12], qs: [u8; 128]`: 64 values per 32 bytes, low nibbles first.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, qs) = (&block[4..16], &block[16..144]);
    for (j, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        for (l, value) in values.iter_mut().enumerate() {
            let q = qs[32 * (j / 2) + l] >> (4 * (j % 2)) & 15;
            *value = scale * f32::from(q) - min;
        }
    }
}

/// `d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`: as Q4_K, with the fifth bit of
/// sub-block j in bit j of `qh`.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, qh, qs) = (&block[4..16], &block[16..48], &block[48..176]);
    for (j, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        for (l, value) in values.iter_mut().enumerate() {
            let low = qs[32 * (j / 2) + l] >> (4 * (j % 2)) & 15;
            let high = qh[l] >> j & 1;
            *value = scale * f32::from(low | high << 4) - min;
        }
    }
}

/// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`: two halves of 128 values, each from 64 bytes of
/// `ql` (low four bits) and 32 of `qh` (high two bits of four values 32 apart).
fn q6_k(block: &[u8], out: &mut [f32]) {
    let (ql, qh, scales, d) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (n, values) in out.chunks_mut(32).enumerate() {
        let (half, quarter) = (n / 4, n % 4);
        let ql = &ql[64 * half + 32 * (quarter % 2)..][..32];
        let qh = &qh[32 * half..][..32];
        for (k, value) in values.iter_mut().enumerate() {
            let low = ql[k] >> (4 * (quarter / 2)) & 15;
            let high = qh[k] >> (2 * quarter) & 3;
            let scale = d * f32::from(scales[2 * n + k / 16].cast_signed());
            *value = scale * (i32::from(low | high << 4) - 32) as f32;
        }
    }
}

/// The quants of types with 32 values and a nibble for each: low nibbles are values 0..16, high nibbles 16..32.
fn nibble(qs: &[u8], index: usize) -> u8 {
    qs[index % 16] >> (index / 16 * 4) & 15
}

/// The quants of 32 values with a fifth bit each: that of value j is bit j of `qh`.
fn five_bits(qh: &[u8], qs: &[u8], index: usize) -> u8 {
    nibble(qs, index) | (qh[index / 8] >> (index % 8) & 1) << 4
}

/// `d: f16, m: f16, qs: [u8; 16]`.
fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    out.iter_mut().enumerate().for_each(|(i, value)| *value = f32::from(nibble(&block[4..], i)) * d + m);
}

/// `d: f16, m: f16, qh: [u8; 4], qs: [u8; 16]`.
fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let q = |i| f32::from(five_bits(&block[4..8], &block[8..], i));
    out.iter_mut().enumerate().for_each(|(i, value)| *value = q(i) * d + m);
}

/// `d: f16, qh: [u8; 4], qs: [u8; 16]`: 16 is subtracted.
pub(crate) fn q5_0_quants(block: &[u8]) -> [i8; 32] {
    std::array::from_fn(|i| five_bits(&block[2..6], &block[6..], i).cast_signed() - 16)
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    out.iter_mut().zip(q5_0_quants(block)).for_each(|(value, q)| *value = f32::from(q) * d);
}

/// Values of the 16 quants of IQ4_NL.
const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Values of the 16 quants of MXFP4: twice the numbers of E2M1.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `d: f16, qs: [u8; 16]`.
pub(crate) fn iq4_nl_quants(block: &[u8]) -> [i8; 32] {
    std::array::from_fn(|i| IQ4_NL[usize::from(nibble(&block[2..], i))])
}

fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    out.iter_mut().zip(iq4_nl_quants(block)).for_each(|(value, q)| *value = d * f32::from(q));
}

/// `e: u8, qs: [u8; 16]`.
pub(crate) fn mxfp4_quants(block: &[u8]) -> [i8; 32] {
    std::array::from_fn(|i| E2M1[usize::from(nibble(&block[1..], i))])
}

/// The factor of a block of MXFP4: half of 2^(e - 127).
pub(crate) fn mxfp4_scale(block: &[u8]) -> f32 {
    match block[0] {
        // Subnormal.
        e @ 0..2 => f32::from_bits(0x0020_0000 << e),
        e => f32::from_bits((u32::from(e) - 1) << 23),
    }
}

fn mxfp4(block: &[u8], out: &mut [f32]) {
    let d = mxfp4_scale(block);
    out.iter_mut().zip(mxfp4_quants(block)).for_each(|(value, q)| *value = f32::from(q) * d);
}

/// `hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16`: the quants, from -4 to 3.
pub(crate) fn q3_k_quants(block: &[u8]) -> [i8; 256] {
    std::array::from_fn(|i| {
        let (half, quarter, k) = (i / 128, i % 128 / 32, i % 32);
        let low = block[32 + 32 * half + k] >> (2 * quarter) & 3;
        let high = block[k] >> (4 * half + quarter) & 1;
        (low | high << 2).cast_signed() - 4
    })
}

/// The sixteen scales of a block of Q3_K, six bits each, less 32: the low four bits in nibbles, then the high two.
pub(crate) fn q3_k_scales(block: &[u8]) -> [i8; 16] {
    let packed = &block[96..108];
    std::array::from_fn(|i| {
        let low = packed[i % 8] >> (i / 8 * 4) & 15;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        (low | high << 4).cast_signed() - 32
    })
}

fn q3_k(block: &[u8], out: &mut [f32]) {
    let (d, quants, scales) = (half_at(block, 108), q3_k_quants(block), q3_k_scales(block));
    for (i, (value, q)) in out.iter_mut().zip(quants).enumerate() {
        *value = d * f32::from(scales[i / 16]) * f32::from(q);
    }
}

/// `scales: [u8; 16], qs: [u8; 64], d: f16, dmin: f16`: scale and minimum of 16 values in a byte, low nibble first;
/// 128 values per 32 bytes, lowest two bits first.
fn q2_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (i, value) in out.iter_mut().enumerate() {
        let (half, quarter, k) = (i / 128, i % 128 / 32, i % 32);
        let q = block[16 + 32 * half + k] >> (2 * quarter) & 3;
        let (scale, min) = (d * f32::from(block[i / 16] & 15), dmin * f32::from(block[i / 16] >> 4));
        *value = scale * f32::from(q) - min;
    }
}

/// `d: f16, scales_h: u16, scales_l: [u8; 4], qs: [u8; 128]`: the factors of the eight groups of 32 values, six bits
/// each, less 32.
pub(crate) fn iq4_xs_scales(block: &[u8]) -> [f32; 8] {
    let (d, high) = (half_at(block, 0), u16::from_le_bytes([block[2], block[3]]));
    std::array::from_fn(|group| {
        let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        let scale = i32::from(low) + (i32::from(high >> (2 * group) & 3) << 4) - 32;
        d * scale as f32
    })
}

/// The quants of a group of IQ4_XS.
pub(crate) fn iq4_xs_quants(block: &[u8], group: usize) -> [i8; 32] {
    std::array::from_fn(|i| IQ4_NL[usize::from(nibble(&block[8 + 16 * group..], i))])
}

fn iq4_xs(block: &[u8], out: &mut [f32]) {
    for (group, (values, scale)) in out.chunks_exact_mut(32).zip(iq4_xs_scales(block)).enumerate() {
        let quants = iq4_xs_quants(block, group);
        values.iter_mut().zip(quants).for_each(|(value, q)| *value = scale * f32::from(q));
    }
}

/// A block of a type with a codebook.
fn by_codebook(ty: GgmlType, block: &[u8], out: &mut [f32]) {
    let Some(c) = codes(ty, block) else { return };
    let scale = c.scale.to_f32() * c.unit;
    for (i, (value, q)) in out.iter_mut().zip(c.quants).enumerate() {
        *value = scale * f32::from(c.scales[i / 16]) * f32::from(q);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random blocks of every type with their values by the PyPI package `gguf` 0.19.0, written by
    /// `tools/dequant-golden.py`.
    const GOLDEN: &str = include_str!("../tests/data/dequant.json");

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex digits"))
            .collect()
    }

    #[test]
    fn every_supported_type_equals_the_reference_bit_for_bit() {
        let golden: serde_json::Value = serde_json::from_str(GOLDEN).expect("valid JSON");
        let cases = golden["blocks"].as_object().expect("an object");
        assert_eq!(cases.len(), SUPPORTED.len());
        for (name, case) in cases {
            let ty = GgmlType::from_name(name).expect("a known type");
            let blocks = unhex(case["bytes"].as_str().expect("a string"));
            let bits = unhex(case["f32"].as_str().expect("a string"));
            let mut values = vec![0.0; bits.len() / 4];
            dequantize(ty, &blocks, &mut values).expect("a supported type");
            for (at, (value, expected)) in values.iter().zip(bits.as_chunks().0).enumerate() {
                let expected = f32::from_le_bytes(*expected);
                // Zero times a negative scale has a sign that carries no information.
                let equal = value.to_bits() == expected.to_bits() || (*value == 0.0 && expected == 0.0);
                assert!(
                    equal || (value.is_nan() && expected.is_nan()),
                    "{name} {at}: {value:e} {expected:e}"
                );
            }
        }
    }

    #[test]
    fn block_sizes_equal_the_reference() {
        let golden: serde_json::Value = serde_json::from_str(GOLDEN).expect("valid JSON");
        let sizes = golden["sizes"].as_object().expect("an object");
        // The package still has Q8_1 with two f32; ggml has had two f16 there since, and no file stores the
        // type.
        for ty in GgmlType::ALL.iter().filter(|t| **t != GgmlType::Q8_1) {
            let row = &sizes[ty.name()];
            assert_eq!(*row, serde_json::json!([ty.id(), ty.block_values(), ty.block_bytes()]), "{ty}");
        }
    }
}
