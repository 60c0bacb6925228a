//! Exact binary floating point: sums and products without rounding, then one rounding to any format and
//! direction.
//!
//! The host's own arithmetic is used where it gives the same bits; this is for the rest (directed roundings,
//! flush to zero at the edge of the range, narrow formats).

/// Rounding directions, as the instruction field counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Nearest,
    Down,
    Up,
    Zero,
}

impl Rounding {
    #[inline(always)]
    pub fn from_field(field: u32) -> Self {
        match field & 3 {
            0 => Self::Nearest,
            1 => Self::Down,
            2 => Self::Up,
            _ => Self::Zero,
        }
    }
}

/// A binary format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Bits of the significand, the hidden one included.
    pub precision: u32,
    /// Bits of the exponent field.
    pub exponent_bits: u32,
}

pub(crate) const F16: Format = Format { precision: 11, exponent_bits: 5 };
pub(crate) const BF16: Format = Format { precision: 8, exponent_bits: 8 };
pub(crate) const F32: Format = Format { precision: 24, exponent_bits: 8 };
pub(crate) const F64: Format = Format { precision: 53, exponent_bits: 11 };

impl Format {
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    pub const fn sign_bit(self) -> u64 {
        1 << (self.precision - 1 + self.exponent_bits)
    }

    pub const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << (self.precision - 1)
    }

    pub const fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign_bit() - 1) > self.infinity()
    }

    pub const fn is_inf(self, bits: u64) -> bool {
        bits & (self.sign_bit() - 1) == self.infinity()
    }

    pub const fn is_zero(self, bits: u64) -> bool {
        bits & (self.sign_bit() - 1) == 0
    }

    /// The value of a finite number.
    pub const fn unpack(self, bits: u64) -> Exact {
        let field = (bits >> (self.precision - 1)) as i32 & ((1 << self.exponent_bits) - 1);
        let fraction = bits & ((1 << (self.precision - 1)) - 1);
        let sig = if field == 0 { fraction } else { fraction | 1 << (self.precision - 1) };
        let exp = (if field == 0 { 1 } else { field }) - self.bias() - (self.precision as i32 - 1);
        Exact { negative: bits & self.sign_bit() != 0, sig: sig as u128, exp }
    }

    /// Rounds to this format. With `flush`, values below the smallest normal number after rounding with an
    /// unbounded exponent become a zero of the same sign.
    pub fn round(self, x: Exact, rounding: Rounding, flush: bool) -> u64 {
        let sign = if x.negative { self.sign_bit() } else { 0 };
        if x.sig == 0 {
            return sign;
        }
        let precision = self.precision as i32;
        let emin = 1 - self.bias();
        let top = x.exp + 127 - x.sig.leading_zeros() as i32;
        if flush && top < emin {
            let (m, _) = round_at(x, top - (precision - 1), rounding);
            if top < emin - 1 || m >> precision == 0 {
                return sign;
            }
            return sign | 1 << (precision - 1);
        }
        let lsb = top.max(emin) - (precision - 1);
        let (mut m, _) = round_at(x, lsb, rounding);
        let mut field = lsb + (precision - 1) + self.bias();
        if m >> precision != 0 {
            m >>= 1;
            field += 1;
        }
        if m >> (precision - 1) == 0 {
            field = 0;
        }
        if field >= (1 << self.exponent_bits) - 1 {
            let to_infinity = match rounding {
                Rounding::Nearest => true,
                Rounding::Zero => false,
                Rounding::Down => x.negative,
                Rounding::Up => !x.negative,
            };
            return sign | (self.infinity() - u64::from(!to_infinity));
        }
        sign | (field as u64) << (precision - 1) | (m as u64 & ((1 << (precision - 1)) - 1))
    }
}

/// `x` in units of 2^`lsb`, rounded to an integer; and whether that changed it.
fn round_at(x: Exact, lsb: i32, rounding: Rounding) -> (u128, bool) {
    let shift = lsb - x.exp;
    if shift <= 0 {
        return (x.sig << -shift, false);
    }
    let (m, rest, half) = if shift > 127 {
        (0, 1, 2)
    } else {
        (x.sig >> shift, x.sig & ((1 << shift) - 1), 1u128 << (shift - 1))
    };
    let up = match rounding {
        Rounding::Nearest => rest > half || (rest == half && m & 1 != 0),
        Rounding::Zero => false,
        Rounding::Down => x.negative && rest != 0,
        Rounding::Up => !x.negative && rest != 0,
    };
    (m + u128::from(up), rest != 0)
}

/// A finite number `sig * 2^exp`. Where bits were cut off below, the lowest bit of `sig` is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    pub negative: bool,
    pub sig: u128,
    pub exp: i32,
}

impl Exact {
    /// The exact product of two numbers of at most 64 bits.
    pub fn mul(self, o: Self) -> Self {
        Exact { negative: self.negative != o.negative, sig: self.sig * o.sig, exp: self.exp + o.exp }
    }

    /// The sum. An exact zero is negative if both are, or if the signs differ and `rounding` is down.
    pub fn add(self, o: Self, rounding: Rounding) -> Self {
        if self.sig == 0 || o.sig == 0 {
            if self.sig == 0 && o.sig == 0 {
                let negative =
                    if self.negative == o.negative { self.negative } else { rounding == Rounding::Down };
                return Exact { negative, sig: 0, exp: 0 };
            }
            return if self.sig == 0 { o } else { self };
        }
        let (a, b) = (self.normal(), o.normal());
        let (a, b) = if (a.exp, a.sig) >= (b.exp, b.sig) { (a, b) } else { (b, a) };
        let shift = a.exp - b.exp;
        let low =
            if shift > 127 { 1 } else { b.sig >> shift | u128::from(b.sig & ((1u128 << shift) - 1) != 0) };
        if a.negative == b.negative {
            Exact { sig: a.sig + low, ..a }
        } else if a.sig == low {
            Exact { negative: rounding == Rounding::Down, sig: 0, exp: 0 }
        } else {
            Exact { sig: a.sig - low, ..a }
        }
    }

    /// With the highest bit of the significand at bit 125.
    fn normal(self) -> Self {
        let shift = self.sig.leading_zeros() as i32 - 2;
        Exact { sig: self.sig << shift, exp: self.exp - shift, ..self }
    }
}

/// `a * b + c` with one rounding; `None` where the result is not finite because an operand is not.
pub(crate) fn fma(format: Format, a: u64, b: u64, c: u64, rounding: Rounding, flush: bool) -> Option<u64> {
    let special = |x| x & format.infinity() == format.infinity();
    if special(a) || special(b) || special(c) {
        return None;
    }
    let sum = format.unpack(a).mul(format.unpack(b)).add(format.unpack(c), rounding);
    Some(format.round(sum, rounding, flush))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fma_to_nearest_agrees_with_the_host(a: u32, b: u32, c: u32) {
            let host = f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c));
            if let Some(soft) = fma(F32, a.into(), b.into(), c.into(), Rounding::Nearest, false) {
                prop_assert_eq!(soft as u32, host.to_bits());
            }
        }

        #[test]
        fn double_fma_to_nearest_agrees_with_the_host(a: u64, b: u64, c: u64) {
            let host = f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
            if let Some(soft) = fma(F64, a, b, c, Rounding::Nearest, false) {
                prop_assert_eq!(soft, host.to_bits());
            }
        }

        #[test]
        fn narrowing_agrees_with_the_host(a: u64) {
            let x = f64::from_bits(a);
            if x.is_finite() {
                prop_assert_eq!(F32.round(F64.unpack(a), Rounding::Nearest, false) as u32, (x as f32).to_bits());
            }
        }

        #[test]
        fn directed_roundings_enclose_the_nearest(a: u32, b: u32, c: u32) {
            let at = |r| fma(F32, a.into(), b.into(), c.into(), r, false).map(|x| f32::from_bits(x as u32));
            if let (Some(lo), Some(mid), Some(hi)) = (at(Rounding::Down), at(Rounding::Nearest), at(Rounding::Up)) {
                prop_assert!(lo <= mid && mid <= hi);
                let zero = at(Rounding::Zero).unwrap();
                let inward = if mid.is_sign_negative() { hi } else { lo };
                prop_assert!(zero == inward || mid == 0.0);
            }
        }
    }
}
