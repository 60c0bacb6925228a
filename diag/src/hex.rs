//! Addresses and register values: hexadecimal in text and a string in JSON, so that no reader rounds them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number that people know in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#x}", self.0))
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Number {
            Integer(u64),
            Text(String),
        }
        match Number::deserialize(deserializer)? {
            Number::Integer(n) => Ok(Self(n)),
            Number::Text(text) => {
                let digits = text.trim_start_matches("0x").replace('_', "");
                u64::from_str_radix(&digits, 16).map(Self).map_err(|_| {
                    serde::de::Error::custom(format!(
                        "{text:?} is not a hexadecimal number such as \"0x1000\""
                    ))
                })
            }
        }
    }
}

/// Bytes as a string of hexadecimal digits, in documents and logs.
pub mod bytes {
    use std::fmt::Write;

    use serde::{Deserialize, Deserializer, Serializer};

    /// The digits.
    #[must_use]
    pub fn text(bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digit = |b: u8| char::from(b).to_digit(16);
        let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        });
        pairs
            .collect::<Option<_>>()
            .ok_or_else(|| serde::de::Error::custom("expected pairs of hexadecimal digits"))
    }
}
