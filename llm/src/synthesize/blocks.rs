//! Random weights, drawn in their stored form.
//!
//! Scales follow from the standard deviation of the stored integers: uniform integers of n values have
//! sqrt((n² - 1) / 12), and the root mean square adds the offset from zero.

use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::codebook::set_iq1_m_scale;
use crate::tensor_type::GgmlType;

/// Standard deviation of uniform integers of 16 values, and of 32.
const SD_16: f32 = 4.61;
const SD_32: f32 = 9.23;
/// Root mean square of 0..16 less 8, of -127..=127, and of 0..64 less 32.
const RMS_Q4_0: f32 = 4.64;
const RMS_Q8_0: f32 = 73.6;
const RMS_Q6: f32 = 18.48;
/// Root mean square of 0..32 less 16, of 0..8 less 4, and of what the quants of IQ4_NL and MXFP4 stand for.
const RMS_Q5_0: f32 = 9.25;
const RMS_Q3: f32 = 2.35;
const RMS_IQ4_NL: f32 = 67.4;
const RMS_E2M1: f32 = 5.85;
/// Standard deviation of uniform integers of 4 values.
const SD_4: f32 = 1.118;
/// Root mean square of the scales drawn below: 8..16 for Q2_K, 16..32 for IQ4_XS.
const RMS_SCALE_Q2: f32 = 11.73;
const RMS_SCALE_IQ4_XS: f32 = 23.95;
/// Root mean square of random blocks by codebook whose scale is 1.
const RMS_IQ1: f32 = 7.2;
const RMS_IQ2: f32 = 55.2;
const RMS_IQ3: f32 = 141.3;
/// Root mean square of the scales drawn below: 32..64 for Q4_K and Q5_K, 40..128 for Q6_K.
const RMS_SCALE_K: f32 = 48.4;
const RMS_SCALE_Q6: f32 = 87.7;

/// The random sequence of one tensor: the key is the seed and the tensor's name, `chunk` selects a stream.
fn sequence(seed: u64, name: &str, chunk: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    // 24 bytes are enough for every name without its ending.
    for (to, from) in key[8..].iter_mut().zip(name.trim_end_matches(".weight").bytes()) {
        *to = from;
    }
    let mut random = ChaCha8Rng::from_seed(key);
    random.set_stream(chunk);
    random
}

/// Weights of a norm: uniform between 0.7 and 1.3 times `gain`.
pub(super) fn norm(seed: u64, name: &str, count: usize, gain: f32) -> Vec<f32> {
    let mut random = sequence(seed, name, 0);
    (0..count).map(|_| gain * (0.7 + 0.6 * (random.next_u32() as f32 / u32::MAX as f32))).collect()
}

/// `count` blocks whose values have mean 0 and nearly the standard deviation `sigma`.
pub(super) fn random(seed: u64, name: &str, chunk: u64, ty: GgmlType, count: usize, sigma: f32) -> Vec<u8> {
    let mut random = sequence(seed, name, chunk);
    if matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16) {
        let mut values = (0..count).map(|_| sigma * near_normal(random.next_u32()));
        return match ty {
            GgmlType::F32 => values.flat_map(f32::to_le_bytes).collect(),
            GgmlType::F16 => values.flat_map(|v| f16::from_f32(v).to_le_bytes()).collect(),
            _ => values.by_ref().flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect(),
        };
    }
    let size = ty.block_bytes() as usize;
    let mut bytes = vec![0; count * size];
    random.fill_bytes(&mut bytes);
    for block in bytes.chunks_exact_mut(size) {
        set_scales(ty, block, sigma);
    }
    bytes
}

/// The sum of four bytes, scaled to mean 0 and standard deviation 1: nearly normal.
fn near_normal(bits: u32) -> f32 {
    let sum: u32 = bits.to_le_bytes().map(u32::from).iter().sum();
    (sum as f32 - 510.0) / 147.8
}

/// Replaces the scales of a block of random bytes; the replaced bytes determine their spread.
fn set_scales(ty: GgmlType, block: &mut [u8], sigma: f32) {
    let put = |block: &mut [u8], at: usize, unit: f32| {
        let random = f32::from(u16::from_le_bytes([block[at], block[at + 1]])) / 65536.0;
        let scale = f16::from_f32(unit * (0.75 + 0.5 * random));
        block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        scale.to_f32()
    };
    match ty {
        GgmlType::Q4_0 => {
            // The integers are from -8 to 7: with a random sign their mean is zero.
            let sign = if block[1] & 1 == 0 { 1.0 } else { -1.0 };
            put(block, 0, sign * sigma / RMS_Q4_0);
        }
        GgmlType::Q5_0 => {
            let sign = if block[1] & 1 == 0 { 1.0 } else { -1.0 };
            put(block, 0, sign * sigma / RMS_Q5_0);
        }
        GgmlType::Q4_1 | GgmlType::Q5_1 => {
            let (sd, middle) = if ty == GgmlType::Q4_1 { (SD_16, 7.5) } else { (SD_32, 15.5) };
            let d = put(block, 0, sigma / sd);
            block[2..4].copy_from_slice(&f16::from_f32(-d * middle).to_le_bytes());
        }
        GgmlType::Iq4Nl => {
            let sign = if block[1] & 1 == 0 { 1.0 } else { -1.0 };
            put(block, 0, sign * sigma / RMS_IQ4_NL);
        }
        GgmlType::Mxfp4 => {
            // One of two neighbouring powers of two, so often that the mean square is right.
            let wanted = sigma / RMS_E2M1;
            let lower = wanted.log2().floor();
            let share = ((wanted / lower.exp2()).powi(2) - 1.0) / 3.0;
            let up = f32::from(block[0]) < 256.0 * share;
            // The factor is half of 2^(e - 127).
            block[0] = (lower as i32 + 128 + i32::from(up)) as u8;
        }
        GgmlType::Q2K => {
            let d = put(block, 80, sigma / (SD_4 * RMS_SCALE_Q2));
            block[82..84].copy_from_slice(&f16::from_f32(1.5 * d).to_le_bytes());
            q2_k_scales(block);
        }
        GgmlType::Iq1M => set_iq1_m_scale(block, f16::from_f32(sigma / RMS_IQ1)),
        GgmlType::Iq1S => {
            put(block, 0, sigma / RMS_IQ1);
        }
        GgmlType::Iq2Xxs | GgmlType::Iq2Xs | GgmlType::Iq2S => {
            put(block, 0, sigma / RMS_IQ2);
        }
        GgmlType::Iq3Xxs | GgmlType::Iq3S => {
            put(block, 0, sigma / RMS_IQ3);
        }
        GgmlType::Iq4Xs => {
            put(block, 0, sigma / (RMS_IQ4_NL * RMS_SCALE_IQ4_XS));
            iq4_xs_scales(block);
        }
        GgmlType::Q3K => {
            put(block, 108, sigma / (RMS_Q3 * RMS_Q6));
        }
        GgmlType::Q8_0 => {
            put(block, 0, sigma / RMS_Q8_0);
            // Quantizers never produce -128.
            block[2..].iter_mut().filter(|q| **q == 0x80).for_each(|q| *q = 0x81);
        }
        GgmlType::Q4K | GgmlType::Q5K => {
            let (sd, middle) = if ty == GgmlType::Q4K { (SD_16, 7.5) } else { (SD_32, 15.5) };
            let d = put(block, 0, sigma / (sd * RMS_SCALE_K));
            block[2..4].copy_from_slice(&f16::from_f32(d * middle).to_le_bytes());
            let random: [u8; 8] = std::array::from_fn(|j| block[4 + j]);
            let scales = random.map(|r| 32 | r & 31);
            // Minima near the scales, so that middle values are near zero.
            let minima: [u8; 8] = std::array::from_fn(|j| (scales[j] - 3 + (random[j] >> 5)).min(63));
            for j in 0..4 {
                let (high_scale, high_min) = (scales[j + 4], minima[j + 4]);
                block[4 + j] = scales[j] | (high_scale >> 4) << 6;
                block[8 + j] = minima[j] | (high_min >> 4) << 6;
                block[12 + j] = high_scale & 15 | (high_min & 15) << 4;
            }
        }
        GgmlType::Q6K => {
            put(block, 208, sigma / (RMS_Q6 * RMS_SCALE_Q6));
            for scale in &mut block[192..208] {
                let magnitude = 40 + (u32::from(*scale & 127) * 88 / 128) as i8;
                *scale = (if *scale & 128 == 0 { magnitude } else { -magnitude }).cast_unsigned();
            }
        }
        _ => unreachable!("{ty} is not in the list of mixes"),
    }
}

/// Sets the scales of Q2_K, and minima near them, so that middle values are near zero.
fn q2_k_scales(block: &mut [u8]) {
    for byte in &mut block[..16] {
        let scale = 8 | *byte & 7;
        let least = (scale - 1 + (*byte >> 4) % 3).min(15);
        *byte = scale | least << 4;
    }
}

/// Sets the scales of IQ4_XS, by the first quants.
fn iq4_xs_scales(block: &mut [u8]) {
    let scales: [u8; 8] = std::array::from_fn(|j| {
        let magnitude = 16 + (block[8 + j] & 15);
        if block[8 + j] & 16 == 0 { 32 + magnitude } else { 32 - magnitude }
    });
    let high = scales.iter().rev().fold(0u16, |bits, scale| bits << 2 | u16::from(scale >> 4));
    block[2..4].copy_from_slice(&high.to_le_bytes());
    for j in 0..4 {
        block[4 + j] = scales[2 * j] & 15 | (scales[2 * j + 1] & 15) << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{SUPPORTED, dequantize};

    #[test]
    fn values_have_the_mean_and_spread_asked_for() {
        for (ty, _) in SUPPORTED {
            let blocks = 65_536 / ty.block_values() as usize;
            let bytes = random(3, "blk.0.attn_q.weight", 1, ty, blocks, 0.02);
            let mut values = vec![0.0f32; blocks * ty.block_values() as usize];
            dequantize(ty, &bytes, &mut values).expect("a supported type");
            let count = values.len() as f64;
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
            let spread = (values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / count).sqrt();
            assert!(mean.abs() < 0.001, "{ty} mean {mean}");
            assert!((spread / 0.02 - 1.0).abs() < 0.06, "{ty} spread {spread}");
        }
    }

    #[test]
    fn tensors_and_chunks_differ_and_repeat() {
        let draw = |seed, name, chunk| random(seed, name, chunk, GgmlType::Q6K, 2, 0.1);
        let base = draw(1, "blk.0.attn_q.weight", 0);
        assert_eq!(base, draw(1, "blk.0.attn_q.weight", 0));
        for other in [draw(2, "blk.0.attn_q.weight", 0), draw(1, "blk.0.attn_k.weight", 0)] {
            assert_ne!(base, other);
        }
        assert_ne!(base, draw(1, "blk.0.attn_q.weight", 1));
    }
}
