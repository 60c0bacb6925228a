//! Rows times a number, in the type in which they are: the scales of blocks are multiplied and rounded to their
//! 11 bits, values of the types without scales to their own.

use half::{bf16, f16};

use crate::tensor_type::GgmlType;

/// Places of the f16 numbers of a block that all its values are proportional to.
fn scales(ty: GgmlType) -> Option<&'static [usize]> {
    Some(match ty {
        GgmlType::F16
        | GgmlType::Q4_0
        | GgmlType::Q5_0
        | GgmlType::Q8_0
        | GgmlType::Iq4Nl
        | GgmlType::Iq4Xs => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4K | GgmlType::Q5K => &[0, 2],
        GgmlType::Q2K => &[80, 82],
        GgmlType::Q3K => &[108],
        GgmlType::Q6K => &[208],
        _ => return None,
    })
}

/// Multiplies the values of whole blocks of type `ty` by `factor`. `None` if the type has no scales of this
/// kind, or if one becomes too large.
pub fn rescale(ty: GgmlType, blocks: &mut [u8], factor: f32) -> Option<()> {
    for block in blocks.chunks_exact_mut(ty.block_bytes() as usize) {
        match ty {
            GgmlType::F32 => {
                let value = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
                block.copy_from_slice(&(value * factor).to_le_bytes());
            }
            GgmlType::Bf16 => {
                let value = bf16::from_le_bytes([block[0], block[1]]).to_f32();
                block.copy_from_slice(&bf16::from_f32(value * factor).to_le_bytes());
            }
            _ => {
                for &at in scales(ty)? {
                    let value = f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
                    let scaled = f16::from_f32(value * factor);
                    (scaled.is_finite() || !value.is_finite()).then_some(())?;
                    block[at..at + 2].copy_from_slice(&scaled.to_le_bytes());
                }
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{SUPPORTED, dequantize};

    #[test]
    fn all_values_of_a_block_are_multiplied() {
        let numbers = [GgmlType::F32, GgmlType::Bf16];
        assert_eq!(rescale(GgmlType::Mxfp4, &mut [1; 17], 0.75), None, "its scales are powers of two");
        for ty in SUPPORTED.map(|(ty, _)| ty) {
            if scales(ty).is_none() && !numbers.contains(&ty) {
                continue;
            }
            let mut block: Vec<u8> = (0..ty.block_bytes()).map(|i| (i * 37 % 97) as u8).collect();
            for &at in scales(ty).unwrap_or_default() {
                block[at..at + 2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
            }
            if numbers.contains(&ty) {
                let at = block.len() - 2;
                block[at..].copy_from_slice(&bf16::from_f32(0.5).to_le_bytes());
            }
            let values = |block: &[u8]| {
                let mut values = vec![0.0; ty.block_values() as usize];
                dequantize(ty, block, &mut values).expect("a type with values");
                values
            };
            let before = values(&block);
            rescale(ty, &mut block, 0.75).expect("numbers that stay finite");
            assert!(before.iter().any(|v| *v != 0.0), "{ty}");
            for (a, b) in before.iter().zip(values(&block)) {
                assert!((a * 0.75 - b).abs() <= 1e-6 * a.abs(), "{ty}: {a} {b}");
            }
        }
        let mut large = f16::MAX.to_le_bytes();
        assert_eq!(rescale(GgmlType::F16, &mut large, 2.0), None);
    }
}
