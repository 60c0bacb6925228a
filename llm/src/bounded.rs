//! Reads of files that a person names, which end: devices and pipes may not.

use std::io::{self, Read};

/// Most bytes, far above any text or result of tuning.
const MOST: u64 = 64 << 20;

/// All of `from`.
///
/// # Errors
/// If it has more than 64 MiB, or cannot be read.
pub fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = from.take(MOST + 1).read_to_end(&mut bytes)?;
    match read as u64 > MOST {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 64 MiB")),
        false => Ok(bytes),
    }
}
