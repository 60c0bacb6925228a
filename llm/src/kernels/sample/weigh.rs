//! Distance, key and weight of a token as in [`crate::sampler::arithmetic`].

use ptxgen::{Kernel, Pred, Reg};

use crate::sampler::arithmetic::{COEFFICIENTS, FAR, KEY_BITS, NEAR, NEAR_KEY, ONE};

/// Distance of a logit below the largest one, which is above negative infinity; infinite or NaN for a token
/// that is never chosen.
pub fn distance(k: &Kernel, best: Reg<f32>, logit: Reg<f32>) -> Reg<f32> {
    k.select(k.eq(logit, best), 0f32, k.sub(best, logit))
}

/// Whether a distance is that of a token that can be chosen.
pub fn there(k: &Kernel, distance: Reg<f32>) -> Pred {
    k.lt(distance, f32::INFINITY)
}

/// The order of tokens.
pub fn key(k: &Kernel, distance: Reg<f32>) -> Reg<u32> {
    let near = k.convert::<f32, u32>(k.mul(distance, (1u32 << KEY_BITS) as f32));
    let far = k.add(k.bits::<f32, u32>(distance), NEAR_KEY.wrapping_sub(NEAR.to_bits()));
    k.select(k.lt(distance, NEAR), near, far)
}

/// The weight of a token.
pub fn weight(k: &Kernel, distance: Reg<f32>, slope: Reg<f32>) -> Reg<u32> {
    let exponent = k.min(k.mul(distance, slope), FAR);
    let whole = k.convert::<f32, u32>(exponent);
    let fraction = k.sub(exponent, k.convert::<u32, f32>(whole));
    let power = k.var(0f32);
    for c in COEFFICIENTS.iter().rev() {
        k.mad_to(power, power, fraction, *c);
    }
    let power = k.mad(power, fraction, 1f32);
    k.shr(k.convert::<f32, u32>(k.mul(power, ONE as f32)), whole)
}
