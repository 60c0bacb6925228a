//! Registers typed by hand: hexadecimal with `0x`, decimal of either sign as nvgpu prints them.

use nv_hw::fault::hww_esr::ERROR;

use crate::cmd::input::number;

/// Addresses are pasted in hexadecimal, with or without 0x.
pub fn address(text: &str) -> Result<u64, String> {
    match text.starts_with("0x") || text.starts_with("0X") {
        true => number(text),
        false => number(&format!("0x{text}")),
    }
    .map_err(|_| "expected a hexadecimal number such as 0x10 or ff55a2a830".to_owned())
}

/// A register of 32 bits as it was typed. Digits without `0x` are a decimal in nvgpu's log, and may be the
/// hexadecimal number of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    value: u32,
    /// The same digits as hexadecimal, where they were read as decimal and the value differs.
    as_hex: Option<u32>,
}

/// Reads a register.
pub fn register(text: &str) -> Result<Register, String> {
    let error = || "expected a register of 32 bits such as 0x10, 16 or -2011299817".to_owned();
    let exact = |value| Register { value, as_hex: None };
    if let Some(digits) = text.strip_prefix('-') {
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        return text.parse::<i32>().map(|value| exact(value as u32)).map_err(|_| error());
    }
    let hex = address(text).ok().filter(|_| !text.contains('+')).and_then(|value| u32::try_from(value).ok());
    let is_decimal = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u32>().ok().filter(|_| is_decimal) {
        Some(value) => Ok(Register { value, as_hex: hex.filter(|hex| *hex != value) }),
        None => hex.map(exact).ok_or_else(error),
    }
}

impl Register {
    /// The value as a register of bits, for which only the decimal reading counts.
    pub const fn bits(self) -> u32 {
        self.value
    }

    /// The value as a warp error register, and what there is to say about the way it was read. A decimal
    /// whose code does not exist is read as hexadecimal if that one does.
    pub fn warp_error(self) -> (u32, Option<String>) {
        let code = |value: u32| ERROR.value_name(ERROR.of(value));
        let Some(hex) = self.as_hex else { return (self.value, None) };
        match (code(self.value), code(hex)) {
            (Some(decimal), Some(other)) => (
                self.value,
                Some(format!(
                    "{} without 0x is read as decimal, as nvgpu prints it: {:#x}, {decimal}; if it is hexadecimal it is \
                     {other}: give --warp-esr {hex:#x}",
                    self.value, self.value
                )),
            ),
            (None, Some(_)) => {
                (hex, Some(format!("{hex:x} is read as {hex:#x}: as a decimal it has no known code")))
            }
            (_, None) => (self.value, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_alone_are_the_decimals_of_the_log() {
        for (text, value, notes) in [
            ("16", 0x10, true),
            ("0x16", 0x16, false),
            ("9", 9, false),
            ("f", 0xf, false),
            ("0005000f", 0x5000f, false),
            ("32", 0x20, false),
            ("327696", 0x50010, false),
            // 50010 is 0xc35a, which no chip reports.
            ("00050010", 0x50010, true),
            ("-2011299817", 0x881e_0017, false),
        ] {
            let (read, note) = register(text).unwrap_or_else(|e| panic!("{text}: {e}")).warp_error();
            assert_eq!((read, note.is_some()), (value, notes), "{text}: {note:?}");
        }
        for text in ["", "-", "--1", "-0x10", "-2147483649", "4294967296000", "+16", "x"] {
            assert!(register(text).is_err(), "{text}");
        }
    }
}
