//! Bytes as hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes, as hexadecimal digits in a log.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bytes(#[serde(with = "crate::hex::bytes")] pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex::bytes::text(&self.0))
    }
}
