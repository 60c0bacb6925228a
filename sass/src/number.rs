//! Floating-point immediates as the disassembler prints them.

/// C's `%.20g`, or `%.20e` from 1e9 on.
fn finite(value: f64) -> String {
    let digits = format!("{:.19e}", value.abs());
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.abs() >= 1e9 {
        // One more digit after the point than `%.20g` has.
        let digits = format!("{:.20e}", value.abs());
        let mantissa = digits.split_once('e').map_or(digits.as_str(), |(mantissa, _)| mantissa);
        return format!("{sign}{mantissa}e{exponent:+03}");
    }
    if exponent < -4 {
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        return format!("{sign}{mantissa}e{exponent:+03}");
    }
    let places = usize::try_from(19 - exponent).unwrap_or(0);
    let text = format!("{:.places$}", value.abs());
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{sign}{text}")
}

/// A value with `fraction` fraction bits in `bits`, its exponent all ones.
fn special(negative: bool, fraction: u64, quiet: u64) -> String {
    let sign = if negative { '-' } else { '+' };
    let name = match fraction {
        0 => "INF",
        f if f & quiet != 0 => "QNAN",
        _ => "SNAN",
    };
    format!("{sign}{name} ")
}

/// The text of an fp32 immediate. Infinities and NaNs end in a blank.
pub(crate) fn f32_text(bits: u32) -> String {
    if bits >> 23 & 0xff == 0xff {
        return special(bits >> 31 != 0, u64::from(bits & 0x7f_ffff), 1 << 22);
    }
    match bits {
        0 => "0".to_owned(),
        0x8000_0000 => "-0".to_owned(),
        _ => finite(f64::from(f32::from_bits(bits))),
    }
}

/// The text of an fp64 immediate given by its upper half.
pub(crate) fn f64_text(high: u32) -> String {
    if high >> 20 & 0x7ff == 0x7ff {
        return special(high >> 31 != 0, u64::from(high & 0xf_ffff), 1 << 19);
    }
    match high {
        0 => "0".to_owned(),
        0x8000_0000 => "-0".to_owned(),
        _ => finite(f64::from_bits(u64::from(high) << 32)),
    }
}

/// The text of an fp16 value.
pub(crate) fn f16_text(bits: u16) -> String {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), bits & 0x3ff);
    let negative = bits >> 15 != 0;
    match (exponent, fraction) {
        (31, _) => special(negative, u64::from(fraction), 1 << 9),
        (0, 0) if negative => "-0.0 ".to_owned(),
        (0, 0) => "0".to_owned(),
        _ => {
            let (significand, exponent) =
                if exponent == 0 { (fraction, 1) } else { (fraction | 0x400, exponent) };
            // 2^(exponent - 25) by its bits: `powi` may round, and differently on each machine.
            let power = f64::from_bits(((exponent - 25 + 1023) as u64) << 52);
            let value = f64::from(significand) * power;
            finite(if negative { -value } else { value })
        }
    }
}

/// The text of a bf16 value.
pub(crate) fn bf16_text(bits: u16) -> String {
    f32_text(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_f16_is_printed_with_the_value_of_its_bits() {
        for bits in (0..=u16::MAX).filter(|bits| bits >> 10 & 31 != 31) {
            let (exponent, fraction) = (u32::from(bits >> 10 & 31), u64::from(bits & 0x3ff));
            // In units of 2^-24, which every fp16 value is a whole number of.
            let units = if exponent == 0 { fraction } else { (fraction | 0x400) << (exponent - 1) };
            let value = units as f64 / f64::from(1 << 24);
            let text: f64 = f16_text(bits).trim().parse().unwrap();
            assert_eq!(text, if bits >> 15 != 0 { -value } else { value }, "{bits:#06x}");
        }
    }

    #[test]
    fn numbers_read_as_c_prints_them() {
        for (bits, text) in [
            (0x3f80_0000, "1"),
            (0xbf00_0000, "-0.5"),
            (0x3dcc_cccd, "0.10000000149011611938"),
            (0x4e6e_6b28, "1.00000000000000000000e+09"),
            (0x4e6e_6b27, "999999936"),
            (0x2edb_e6ff, "1.00000001335143196e-10"),
            (0x0000_0001, "1.4012984643248170709e-45"),
            (0xff80_0000, "-INF "),
            (0x7fc0_0000, "+QNAN "),
            (0x7f80_0001, "+SNAN "),
        ] {
            assert_eq!(f32_text(bits), text);
        }
        assert_eq!(f64_text(0x3ff0_0000), "1");
        assert_eq!(f16_text(0x3c00), "1");
        assert_eq!(f16_text(0x0001), "5.9604644775390625e-08");
        assert_eq!(f16_text(0x03ff), "6.0975551605224609375e-05");
        assert_eq!(f16_text(0xfbff), "-65504");
        assert_eq!(f16_text(0x8000), "-0.0 ");
        assert_eq!(bf16_text(0x3f80), "1");
    }
}
