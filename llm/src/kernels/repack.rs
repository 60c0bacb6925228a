//! Types without a format of their own: their blocks become those of another type when a model is loaded. It
//! holds every value exactly, or rounds it to 11 bits.
//!
//! | in the file | on the device | how exact it is, and why |
//! |---|---|---|
//! | Q5_0, IQ4_NL | Q8_0 | a scale per 32 values, integers of 8 bits |
//! | MXFP4 | Q8_0 | the same; its powers of two must be numbers in f16 |
//! | Q3_K | Q6_K | a scale per 16 values times one per 256, integers of 6 bits |
//! | IQ1_S | IQ1_M | the same codebook, a scale per 16 values, each entry moved up or down |
//! | Q4_1, Q5_1 | F32 | each value is one in single precision |
//! | IQ4_XS | Q8_0 | rounded: the scale of 32 values, a product of f16 and six bits, to f16 |

use half::f16;

use crate::codebook::iq1_m_of_iq1_s;
use crate::quant::{
    dequantize, iq4_nl_quants, iq4_xs_quants, iq4_xs_scales, mxfp4_quants, mxfp4_scale, q3_k_quants,
    q3_k_scales, q5_0_quants,
};
use crate::tensor_type::GgmlType;

/// The type in which values of type `ty` are on the device.
pub const fn stored_as(ty: GgmlType) -> GgmlType {
    match ty {
        GgmlType::Q5_0 | GgmlType::Iq4Nl | GgmlType::Iq4Xs | GgmlType::Mxfp4 => GgmlType::Q8_0,
        GgmlType::Iq1S => GgmlType::Iq1M,
        GgmlType::Q3K => GgmlType::Q6K,
        GgmlType::Q4_1 | GgmlType::Q5_1 => GgmlType::F32,
        ty => ty,
    }
}

/// Writes whole blocks of type `ty` to `out`, as blocks of type [`stored_as`]. `None` for a block whose
/// values that type cannot hold.
pub fn repack(ty: GgmlType, blocks: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    for block in blocks.chunks_exact(ty.block_bytes() as usize) {
        match ty {
            GgmlType::Q5_0 => q8_0(out, [block[0], block[1]], q5_0_quants(block)),
            GgmlType::Iq4Nl => q8_0(out, [block[0], block[1]], iq4_nl_quants(block)),
            GgmlType::Mxfp4 => {
                let (scale, quants) = in_f16(mxfp4_scale(block), mxfp4_quants(block))?;
                q8_0(out, scale.to_le_bytes(), quants);
            }
            GgmlType::Q3K => {
                q6_k(out, &q3_k_quants(block), q3_k_scales(block), [block[108], block[109]]);
            }
            GgmlType::Iq1S => out.extend(iq1_m_of_iq1_s(block)),
            GgmlType::Iq4Xs => {
                for (group, scale) in iq4_xs_scales(block).into_iter().enumerate() {
                    q8_0(out, rounded(scale)?.to_le_bytes(), iq4_xs_quants(block, group));
                }
            }
            GgmlType::Q4_1 | GgmlType::Q5_1 => {
                let mut values = [0.0; 32];
                dequantize(ty, block, &mut values)?;
                out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            }
            _ => out.extend_from_slice(block),
        }
    }
    Some(())
}

fn q8_0(out: &mut Vec<u8>, scale: [u8; 2], quants: [i8; 32]) {
    out.extend(scale);
    out.extend(quants.map(i8::cast_unsigned));
}

/// The nearest f16; `None` for a number past the largest one.
fn rounded(value: f32) -> Option<f16> {
    let half = f16::from_f32(value);
    (half.is_finite() || !value.is_finite()).then_some(half)
}

/// A power of two as an f16 and quants of which it is the scale; a smaller one grows while the quants shrink.
fn in_f16(scale: f32, quants: [i8; 32]) -> Option<(f16, [i8; 32])> {
    let (mut scale, mut quants) = (f64::from(scale), quants);
    if quants == [0; 32] {
        return Some((f16::ZERO, quants));
    }
    // Up: the quants, at most 12, have room for three doublings.
    for _ in 0..3 {
        if scale > f64::from(f16::MAX) {
            scale /= 2.0;
            quants = quants.map(|q| 2 * q);
        }
    }
    while scale < f64::from(f16::from_bits(1)) && quants.iter().all(|q| q % 2 == 0) {
        scale *= 2.0;
        quants = quants.map(|q| q / 2);
    }
    let half = f16::from_f64(scale);
    (half.to_f64() == scale).then_some((half, quants))
}

/// A block of Q6_K.
fn q6_k(out: &mut Vec<u8>, quants: &[i8; 256], scales: [i8; 16], scale: [u8; 2]) {
    let quants = quants.map(|q| (q + 32).cast_unsigned());
    let (mut low, mut high) = ([0u8; 128], [0u8; 64]);
    for (i, q) in quants.into_iter().enumerate() {
        let (half, quarter, k) = (i / 128, i % 128 / 32, i % 32);
        low[64 * half + 32 * (quarter % 2) + k] |= (q & 15) << (4 * (quarter / 2));
        high[32 * half + k] |= (q >> 4) << (2 * quarter);
    }
    out.extend(low);
    out.extend(high);
    out.extend(scales.map(i8::cast_unsigned));
    out.extend(scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::SUPPORTED;

    /// Every value survives, bit for bit but for the sign of zero, on random blocks and scales, or is rounded
    /// to 11 bits.
    #[test]
    fn values_stay_as_they_are_or_are_rounded() {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for (ty, _) in SUPPORTED {
            let size = ty.block_bytes() as usize;
            for _ in 0..200 {
                let mut block: Vec<u8> = (0..size).map(|_| random()).collect();
                // Scales that are numbers, and powers of two that f16 has.
                let places: &[usize] = match ty {
                    GgmlType::Q5_0 | GgmlType::Iq4Nl => &[0],
                    GgmlType::Q4_1 | GgmlType::Q5_1 => &[0, 2],
                    GgmlType::Q3K => &[108],
                    GgmlType::Iq4Xs | GgmlType::Iq1S => &[0],
                    _ => &[],
                };
                for at in places {
                    let scale = f16::from_f32(f32::from(random().cast_signed()) / 100.0);
                    block[*at..*at + 2].copy_from_slice(&scale.to_le_bytes());
                }
                if ty == GgmlType::Mxfp4 {
                    block[0] = 104 + block[0] % 40;
                }
                let count = ty.block_values() as usize;
                let (mut wanted, mut found) = (vec![0.0; count], vec![0.0; count]);
                dequantize(ty, &block, &mut wanted).unwrap();
                let mut packed = Vec::new();
                repack(ty, &block, &mut packed).unwrap();
                dequantize(stored_as(ty), &packed, &mut found).unwrap();
                // Half of the last place of f16, of a scale of values up to 127.
                let step = if ty == GgmlType::Iq4Xs { 127.0 } else { 0.0 };
                let allowed =
                    |a: f32| if step > 0.0 { a.abs() / 2048.0 + step / (1 << 25) as f32 } else { 0.0 };
                let same = |(a, b): (&f32, &f32)| (a - b).abs() <= allowed(*a) || a.is_nan() && b.is_nan();
                assert!(wanted.iter().zip(&found).all(same), "{ty}: {wanted:?} {found:?}");
            }
        }
    }

    #[test]
    fn numbers_past_the_largest_f16_are_refused() {
        let largest = f16::MAX.to_le_bytes();
        let mut block = vec![0xff; 136];
        block[..2].copy_from_slice(&largest);
        assert!(repack(GgmlType::Iq4Xs, &block, &mut Vec::new()).is_none(), "65504 · 31");
    }

    #[test]
    fn a_scale_that_f16_has_not_is_refused() {
        let block = |e: u8, q: u8| [&[e][..], &[q; 16]].concat();
        let repacked = |block: &[u8]| repack(GgmlType::Mxfp4, block, &mut Vec::new());
        assert!(repacked(&block(100, 0x11)).is_none(), "2^-28");
        assert!(repacked(&block(90, 0)).is_some(), "zeros have no scale");
        assert!(repacked(&block(200, 0x11)).is_none(), "2^72");
        assert!(repacked(&block(145, 0x77)).is_some(), "2^17 · 12 is 2^14 · 96");
    }
}
