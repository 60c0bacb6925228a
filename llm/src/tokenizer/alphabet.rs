//! The characters that stand for bytes in byte-level BPE.

/// The printable alphabet of byte-level BPE: the character at index b stands for byte b.
///
/// Printable Latin-1 characters stand for themselves, other bytes for the characters from U+0100 on, in
/// order. Source: `bytes_to_unicode` of GPT-2's `encoder.py`.
pub(crate) fn alphabet() -> [char; 256] {
    let mut moved = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        b => moved.next().unwrap_or(char::from(b)),
    })
}
