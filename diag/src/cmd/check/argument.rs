//! Arguments of a kernel, as the command line has them.

use std::path::PathBuf;
use std::str::FromStr;

use crate::cmd::input::number;

/// Initial contents of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Whatever the memory held: the check `init` reports reads of it.
    Nothing,
    /// Zeros.
    Zero,
    /// 0, 1, 2 and so on, as integers of 32 bits.
    Ramp,
    /// The same as floats.
    RampF32,
    /// The bytes of a file, from the start; the rest holds nothing.
    File(PathBuf),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a buffer.
    Buffer {
        /// Its size.
        bytes: u64,
        /// Its contents.
        contents: Contents,
    },
    /// A value.
    Value {
        /// Its type.
        ty: &'static str,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

impl Argument {
    /// Its size as a parameter.
    pub fn size(&self) -> usize {
        match self {
            Self::Buffer { .. } => 8,
            Self::Value { bytes, .. } => bytes.len(),
        }
    }

    /// Its type.
    pub fn ty(&self) -> &'static str {
        match self {
            Self::Buffer { .. } => "buffer",
            Self::Value { ty, .. } => ty,
        }
    }
}

const EXPECTED: &str = "expected buffer:BYTES, buffer:BYTES:zero, :ramp, :ramp.f32 or :FILE, \
    u8, u16, u32, u64, i8, i16, i32, i64, f32 or f64:VALUE, or bytes:HEX";

/// Reads an integer of `bytes` bytes, as people paste them.
fn integer(value: &str, bytes: u32, signed: bool) -> Result<Vec<u8>, String> {
    let (negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    let magnitude = i128::from(number(digits)?);
    let value = if negative { -magnitude } else { magnitude };
    let bits = 8 * bytes;
    let range = match signed {
        // Hexadecimal patterns of negative values are taken, too.
        true => -(1_i128 << (bits - 1))..1 << bits,
        false => 0..1 << bits,
    };
    match range.contains(&value) {
        true => Ok(value.to_le_bytes()[..bytes as usize].to_vec()),
        false => Err(format!("{value} does not fit {bits} bits")),
    }
}

/// Reads pairs of hexadecimal digits.
fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0);
    let digits = digits.ok_or("bytes takes pairs of hexadecimal digits, as in bytes:00ff")?;
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ty, value) = text.split_once(':').ok_or(EXPECTED)?;
        let of = |ty, bytes| Ok(Self::Value { ty, bytes });
        let float = |_| format!("{value} is no number");
        match ty {
            "buffer" => {
                let (bytes, contents) = value.split_once(':').map_or((value, None), |(b, c)| (b, Some(c)));
                let contents = match contents {
                    None => Contents::Nothing,
                    Some("zero") => Contents::Zero,
                    Some("ramp") => Contents::Ramp,
                    Some("ramp.f32") => Contents::RampF32,
                    Some("") => return Err(EXPECTED.to_owned()),
                    Some(file) => Contents::File(file.into()),
                };
                match number(bytes)? {
                    0 => Err("a buffer has at least one byte".to_owned()),
                    bytes => Ok(Self::Buffer { bytes, contents }),
                }
            }
            "u8" => of("u8", integer(value, 1, false)?),
            "u16" => of("u16", integer(value, 2, false)?),
            "u32" => of("u32", integer(value, 4, false)?),
            "u64" => of("u64", integer(value, 8, false)?),
            "i8" => of("i8", integer(value, 1, true)?),
            "i16" => of("i16", integer(value, 2, true)?),
            "i32" => of("i32", integer(value, 4, true)?),
            "i64" => of("i64", integer(value, 8, true)?),
            "f32" => of("f32", value.parse::<f32>().map_err(float)?.to_le_bytes().to_vec()),
            "f64" => of("f64", value.parse::<f64>().map_err(float)?.to_le_bytes().to_vec()),
            "bytes" => of("bytes", hex(value)?),
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

/// Type of printed elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    U8,
    U32,
    I32,
    U64,
    F32,
    F64,
}

impl Element {
    /// Its name and size.
    pub fn facts(self) -> (&'static str, usize) {
        match self {
            Self::U8 => ("u8", 1),
            Self::U32 => ("u32", 4),
            Self::I32 => ("i32", 4),
            Self::U64 => ("u64", 8),
            Self::F32 => ("f32", 4),
            Self::F64 => ("f64", 8),
        }
    }

    /// An element in words; `bytes` are as many as it has.
    pub fn words(self, bytes: &[u8]) -> String {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        match self {
            Self::U8 | Self::U32 | Self::U64 => word.to_string(),
            Self::I32 => (word as u32).cast_signed().to_string(),
            Self::F32 => f32::from_bits(word as u32).to_string(),
            Self::F64 => f64::from_bits(word).to_string(),
        }
    }
}

/// Contents of a buffer to print after the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Number of the argument, from 0.
    pub argument: usize,
    /// Type of the elements.
    pub element: Element,
    /// Number of elements; all that the buffer has, up to a few, if absent.
    pub count: Option<u64>,
}

impl FromStr for Shown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected ARG, ARG:TYPE or ARG:TYPE:COUNT, as in 1:f32:8; types are u8, u32, i32, u64, f32, f64";
        let mut parts = text.split(':');
        let argument = parts.next().and_then(|part| part.parse().ok()).ok_or_else(expected)?;
        let element = match parts.next() {
            None | Some("u32") => Element::U32,
            Some("u8") => Element::U8,
            Some("i32") => Element::I32,
            Some("u64") => Element::U64,
            Some("f32") => Element::F32,
            Some("f64") => Element::F64,
            Some(_) => return Err(expected().to_owned()),
        };
        let count = parts.next().map(number).transpose()?;
        match parts.next() {
            None => Ok(Self { argument, element, count }),
            Some(_) => Err(expected().to_owned()),
        }
    }
}

/// Reads three sizes of a grid or a block; those that are left out are 1.
pub fn extent(text: &str) -> Result<[u32; 3], String> {
    let expected = || "expected one to three numbers from 1 on, as in 4 or 16,16,1".to_owned();
    let mut extent = [1; 3];
    for (at, part) in text.split(',').enumerate() {
        let size = number(part).ok().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
        *extent.get_mut(at).ok_or_else(expected)? = size.ok_or_else(expected)?;
    }
    Ok(extent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_with_their_sizes() {
        let read = |text: &str| text.parse::<Argument>();
        let buffer = |bytes, contents| Ok(Argument::Buffer { bytes, contents });
        assert_eq!(read("buffer:4096"), buffer(4096, Contents::Nothing));
        assert_eq!(read("buffer:0x100:ramp.f32"), buffer(256, Contents::RampF32));
        assert_eq!(read("buffer:4:./a:b"), buffer(4, Contents::File("./a:b".into())));
        let bytes = |text: &str| match read(text) {
            Ok(Argument::Value { bytes, .. }) => bytes,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(bytes("u32:7"), 7_u32.to_le_bytes());
        assert_eq!(bytes("i16:-2"), (-2_i16).to_le_bytes());
        assert_eq!(bytes("i32:0xffffffff"), [0xff; 4]);
        assert_eq!(bytes("u64:18446744073709551615"), [0xff; 8]);
        assert_eq!(bytes("f32:1.5"), 1.5_f32.to_le_bytes());
        assert_eq!(bytes("bytes:00fF10"), [0, 0xff, 0x10]);
        for text in [
            "",
            "u32",
            "u32:",
            "u32:-1",
            "u8:256",
            "i8:-129",
            "f32:x",
            "bytes:0",
            "buffer:0",
            "buffer:4:",
            "half:1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn elements_and_extents_are_read_and_printed() {
        let shown = |text: &str| text.parse::<Shown>();
        assert_eq!(shown("1"), Ok(Shown { argument: 1, element: Element::U32, count: None }));
        assert_eq!(shown("0:f32:8"), Ok(Shown { argument: 0, element: Element::F32, count: Some(8) }));
        assert!(["", "x", "0:half", "0:u32:1:2"].iter().all(|text| shown(text).is_err()));
        assert_eq!(Element::I32.words(&[0xff; 4]), "-1");
        assert_eq!(Element::F32.words(&1.5_f32.to_le_bytes()), "1.5");
        assert_eq!((extent("4"), extent("1,2,3")), (Ok([4, 1, 1]), Ok([1, 2, 3])));
        assert!(["", "0", "1,2,3,4", "4294967296", "a"].iter().all(|text| extent(text).is_err()));
    }
}
