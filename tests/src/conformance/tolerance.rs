//! Tolerances: the differences of two devices in a word.

use half::f16;

/// Tolerance of an output word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Not at all.
    Exact,
    /// An f32: by this many units in the last place, or by this much, whichever allows more.
    Single {
        /// Units in the last place.
        ulps: u32,
        /// Absolute difference.
        absolute: f64,
    },
    /// An integer: by this many steps.
    Steps {
        /// Difference.
        steps: u32,
    },
    /// Four signed bytes: each by this many steps.
    Codes {
        /// Difference.
        steps: u8,
    },
    /// By anything: the distance is only reported.
    Any,
    /// Two f16: each by this many units in the last place, or by this much.
    Halves {
        /// Units in the last place.
        ulps: u32,
        /// Absolute difference.
        absolute: f64,
    },
    /// Two bf16, likewise.
    Bfloats {
        /// Units in the last place.
        ulps: u32,
    },
    /// The upper half of an f64 whose lower half is 0: by this many units.
    HighWord {
        /// Units of the upper word.
        ulps: u32,
    },
}

/// The result of comparing two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same bits.
    Same,
    /// Different by so many units in the last place, as is allowed.
    Within(u32),
    /// Different by so many units in the last place, where that can be said.
    Beyond(Option<u32>),
}

/// Numbers in order, as integers in order; `None` for a NaN.
fn ordinal(bits: u32, width: u32, infinity: u32) -> Option<i64> {
    let magnitude = bits & ((1 << (width - 1)) - 1);
    let sign = if bits >> (width - 1) & 1 == 1 { -1 } else { 1 };
    (magnitude <= infinity).then_some(sign * i64::from(magnitude))
}

fn distance(a: u32, b: u32, width: u32, infinity: u32) -> Option<u32> {
    Some((ordinal(a, width, infinity)? - ordinal(b, width, infinity)?).unsigned_abs() as u32)
}

impl Tolerance {
    /// The same with a number that may differ by so much more; of others than f32 itself.
    #[must_use]
    pub fn widened(self, by: f64) -> Self {
        match self {
            Tolerance::Single { ulps, absolute } => Tolerance::Single { ulps, absolute: absolute + by },
            other => other,
        }
    }

    /// Compares two words.
    pub fn judge(self, a: u32, b: u32) -> Verdict {
        if a == b {
            return Verdict::Same;
        }
        let verdict = |apart: Option<u32>, allowed: bool| match apart {
            Some(ulps) if allowed => Verdict::Within(ulps),
            apart => Verdict::Beyond(apart),
        };
        let halves = |infinity: u32, ulps: u32, absolute: f64| {
            let apart = [0, 16].map(|at| {
                let (x, y) = (a >> at & 0xffff, b >> at & 0xffff);
                if x == y { Some(0) } else { distance(x, y, 16, infinity) }
            });
            let worst = apart[0].zip(apart[1]).map(|(x, y)| x.max(y));
            let near = [0, 16].iter().all(|at| {
                let [x, y] = [a, b].map(|w| f16::from_bits((w >> at) as u16).to_f64());
                x == y || (x - y).abs() <= absolute
            });
            verdict(worst, near || worst.is_some_and(|w| w <= ulps))
        };
        match self {
            Tolerance::Exact => Verdict::Beyond(distance(a, b, 32, f32::INFINITY.to_bits())),
            Tolerance::Steps { steps } => {
                let apart = a.cast_signed().abs_diff(b.cast_signed());
                verdict(Some(apart), apart <= steps)
            }
            Tolerance::Codes { steps } => {
                let codes = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
                let apart = codes.map(|(a, b)| a.cast_signed().abs_diff(b.cast_signed())).max();
                verdict(apart.map(u32::from), apart.is_some_and(|n| n <= steps))
            }
            Tolerance::Any => Verdict::Within(distance(a, b, 32, f32::INFINITY.to_bits()).unwrap_or(0)),
            Tolerance::Single { ulps, absolute } => {
                let apart = distance(a, b, 32, f32::INFINITY.to_bits());
                let (x, y) = (f64::from(f32::from_bits(a)), f64::from(f32::from_bits(b)));
                verdict(apart, apart.is_some_and(|n| n <= ulps) || (x - y).abs() <= absolute)
            }
            Tolerance::Halves { ulps, absolute } => {
                halves(u32::from(f16::INFINITY.to_bits()), ulps, absolute)
            }
            Tolerance::Bfloats { ulps } => halves(0x7f80, ulps, 0.0),
            Tolerance::HighWord { ulps } => {
                let apart = distance(a, b, 32, 0x7ff0_0000);
                verdict(apart, apart.is_some_and(|n| n <= ulps))
            }
        }
    }
}

impl std::fmt::Display for Tolerance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tolerance::Exact => f.write_str("exact"),
            Tolerance::Steps { steps } => write!(f, "{steps} step"),
            Tolerance::Codes { steps } => write!(f, "{steps} step of a code"),
            Tolerance::Any => f.write_str("reported only"),
            Tolerance::Single { ulps, absolute: 0.0 } => write!(f, "{ulps} ulp"),
            Tolerance::Single { ulps, absolute } => write!(f, "{ulps} ulp or {absolute:.1e}"),
            Tolerance::Halves { ulps, absolute: 0.0 } => write!(f, "{ulps} ulp of f16"),
            Tolerance::Halves { ulps, absolute } => write!(f, "{ulps} ulp of f16 or {absolute:.1e}"),
            Tolerance::Bfloats { ulps } => write!(f, "{ulps} ulp of bf16"),
            Tolerance::HighWord { ulps } => write!(f, "{ulps} units of the upper word"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_in_the_last_place_count_across_zero() {
        let two = Tolerance::Single { ulps: 2, absolute: 0.0 };
        assert_eq!(two.judge(0x0000_0001, 0x8000_0001), Verdict::Within(2));
        assert_eq!(two.judge(0x3f80_0000, 0x3f80_0003), Verdict::Beyond(Some(3)));
        assert_eq!(two.judge(0x7fff_ffff, 0x3f80_0000), Verdict::Beyond(None));
        assert_eq!(two.judge(0x7fff_ffff, 0x7fff_ffff), Verdict::Same);
    }

    #[test]
    fn each_code_has_its_own_distance() {
        let one = Tolerance::Codes { steps: 1 };
        assert_eq!(one.judge(0x0001_ff7f, 0x0100_007e), Verdict::Within(1));
        assert_eq!(one.judge(0x0000_0080, 0x0000_007f), Verdict::Beyond(Some(255)), "-128 and 127");
        assert_eq!(one.judge(0x0200_0000, 0x0000_0000), Verdict::Beyond(Some(2)));
    }

    #[test]
    fn each_half_has_its_own_distance() {
        let one = Tolerance::Halves { ulps: 1, absolute: 0.0 };
        assert_eq!(one.judge(0x3c00_3c01, 0x3c01_3c00), Verdict::Within(1));
        assert_eq!(one.judge(0x3c00_3c00, 0x3c00_3c02), Verdict::Beyond(Some(2)));
        assert_eq!(one.judge(0x7fff_3c00, 0x7fff_3c01), Verdict::Within(1));
    }
}
