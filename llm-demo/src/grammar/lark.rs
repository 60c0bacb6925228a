//! Pieces of Lark's notation.

/// A text as a string, which is one of JSON with DEL escaped.
pub fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\x7f', "\\u007f")
}

/// A character in a pattern.
pub fn character(c: char) -> String {
    format!("\\x{{{:x}}}", u32::from(c))
}
