//! The arithmetic of a choice, of which the CPU and the GPU get the same bits.
//!
//! Sums are of integers, so their order does not matter. All else is one operation of IEEE 754
//! in single precision after the other: subtraction, multiplication, fused multiply-add, comparison.

use std::f32::consts::{LN_2, LOG2_E};

/// A weight of one: that of the most likely token.
pub const ONE: u32 = 1 << 30;
/// Fraction bits of the key of a distance below [`NEAR`].
pub const KEY_BITS: u32 = 26;
/// Distances from here on have keys in the order of their bits.
pub const NEAR: f32 = 32.0;
/// Key of [`NEAR`].
pub const NEAR_KEY: u32 = 1 << 31;
/// Least exponent at which no weight is left.
pub const FAR: f32 = 32.0;

/// `2^-f` for `f` from 0 to 1 is `1 + f · (C[0] + f · (C[1] + ...))`, within 1.5e-7 of its value: an
/// interpolation at Chebyshev nodes, whose coefficients are rounded to single precision.
pub const COEFFICIENTS: [f32; 6] =
    [-LN_2, 0.240_226_09, -0.055_499_23, 0.009_597_035, -0.001_291_636_8, 0.000_114_919_95];

/// Distance of a logit below the largest one; `None` if it is never chosen.
pub fn distance(best: f32, logit: f32) -> Option<f32> {
    // The difference of equal infinities is no number.
    let distance = if logit == best { 0.0 } else { best - logit };
    (distance < f32::INFINITY && best > f32::NEG_INFINITY).then_some(distance)
}

/// The order of tokens: the most likely have the smallest keys. Below [`NEAR`] distances are rounded down to
/// 2^-26; tokens with equal keys are ordered by their numbers.
pub fn key(distance: f32) -> u32 {
    if distance < NEAR {
        // Exact before it is rounded down.
        (distance * (1u32 << KEY_BITS) as f32) as u32
    } else {
        NEAR_KEY + (distance.to_bits() - NEAR.to_bits())
    }
}

/// The weight of a token: [`ONE`] times `2^-(distance · slope)`, in steps of 1.
pub fn weight(distance: f32, slope: f32) -> u32 {
    let exponent = (distance * slope).min(FAR);
    let whole = exponent as u32;
    let fraction = exponent - whole as f32;
    let power = COEFFICIENTS.iter().rev().fold(0.0, |sum: f32, c| sum.mul_add(fraction, *c));
    let power = power.mul_add(fraction, 1.0);
    ((power * ONE as f32) as u32).checked_shr(whole).unwrap_or(0)
}

/// Parameters of a choice besides the logits, as numbers that the GPU takes as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Number of most likely tokens that are kept; 0 keeps all.
    pub top_k: u32,
    /// Share of the weight that is kept, in 2^-64; [`Draw::ALL`] keeps all.
    pub top_p: u64,
    /// Least weight, at temperature 1, of a token that is kept.
    pub least: u32,
    /// `log2(e)` over the temperature.
    pub slope: f32,
    /// Place of the token among the weights, in 2^-64 of their sum.
    pub random: u64,
}

impl Draw {
    /// As [`Draw::top_p`]: everything is kept.
    pub const ALL: u64 = u64::MAX;
    /// Slope of weights at temperature 1.
    pub const PLAIN: f32 = LOG2_E;

    /// Weight of the most likely tokens that are kept, at least, of `total`.
    pub fn budget(&self, total: u64) -> u64 {
        share(total, self.top_p).max(1)
    }

    /// The unit drawn of `total` units of weight.
    pub fn unit(&self, total: u64) -> u64 {
        share(total, self.random)
    }

    /// The weight that a token is drawn with, if nothing but [`Draw::least`] excludes it.
    pub fn weight(&self, distance: f32) -> u32 {
        if weight(distance, Self::PLAIN) < self.least { 0 } else { weight(distance, self.slope) }
    }

    /// The largest key that a token which is kept can have, or more.
    pub fn reach(&self) -> u32 {
        let everything = self.top_k > 0 || self.top_p != Self::ALL || self.least == 0;
        if everything {
            return u32::MAX;
        }
        // The weight errs by less than one part in a thousand.
        key((f64::from(ONE) / f64::from(self.least)).ln() as f32 + 0.001)
    }
}

/// `total · part / 2^64`, rounded down.
fn share(total: u64, part: u64) -> u64 {
    ((u128::from(total) * u128::from(part)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_most_likely_token_has_the_weight_one() {
        for slope in [Draw::PLAIN, 0.0, f32::MIN_POSITIVE, f32::MAX] {
            assert_eq!((key(0.0), weight(0.0, slope)), (0, ONE));
        }
        assert_eq!(weight(f32::MAX, f32::MAX), 0);
        assert_eq!(weight(FAR, 1.0), 0);
        assert_eq!(weight(30.0, 1.0), 1);
    }

    #[test]
    fn no_number_and_nothing_has_no_distance() {
        assert_eq!(distance(1.0, f32::NAN), None);
        assert_eq!(distance(1.0, f32::NEG_INFINITY), None);
        assert_eq!(distance(f32::NEG_INFINITY, f32::NEG_INFINITY), None);
        assert_eq!(distance(f32::INFINITY, f32::INFINITY), Some(0.0));
        assert_eq!(distance(f32::INFINITY, 0.0), None);
        assert_eq!(distance(f32::MAX, f32::MIN), None);
    }

    proptest! {
        #[test]
        fn keys_go_up_with_distances(a in 0.0f32..100.0, b in 0.0f32..100.0) {
            prop_assert!(key(a) == key(b) || (key(a) < key(b)) == (a < b));
            // Only what is closer than 2^-26 is equal.
            prop_assert!(key(a) != key(b) || (a - b).abs() < 2f32.powi(-26));
        }

        #[test]
        fn weights_are_powers(distance in 0.0f32..40.0, slope in 0.01f32..10.0) {
            let expected = f64::from(ONE) * (-f64::from(distance * slope)).exp2();
            let found = f64::from(weight(distance, slope));
            prop_assert!((found - expected).abs() <= 1.0 + 2e-7 * expected, "{found} {expected}");
        }

        #[test]
        fn nothing_that_is_kept_is_past_the_reach(distance in 0.0f32..30.0, least in 1u32..=ONE) {
            let draw = Draw { top_k: 0, top_p: Draw::ALL, least, slope: 1.0, random: 0 };
            prop_assert!(draw.weight(distance) == 0 || key(distance) <= draw.reach());
        }
    }
}
