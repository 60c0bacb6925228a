//! What a command is given: files, stdin, numbers.

use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;

/// Most bytes read from a file or from stdin: no input of ours is larger, and a device node must not fill the
/// memory.
const MAX_INPUT: u64 = 1 << 30;

/// Reads a whole file, or stdin for `-`.
pub fn read_input(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|f| f.take(MAX_INPUT + 1).read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(bytes.len() as u64 <= MAX_INPUT, "{} is larger than 1 GiB", path.display());
    Ok(bytes)
}

/// Longest source file that is read.
const MAX_SOURCE: u64 = 16 << 20;

/// Reads a source file that a cubin names; `None` if there is none of a plausible size.
pub fn read_source(path: &str) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    file.metadata().ok().filter(|data| data.is_file() && data.len() <= MAX_SOURCE)?;
    let mut text = Vec::new();
    file.take(MAX_SOURCE).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Reads a number as people paste it: `4096`, `0x1000`, `0x0000_1000`.
pub fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    parsed.map_err(|_| "expected a number such as 4096, 0x1000 or 0x0000_1000".to_owned())
}

/// Reads a compute capability, 87 for 8.7, from `sm_87`, `sm_90a`, `87` or `8.7`.
pub fn architecture(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("sm_").unwrap_or(text).replace('.', "");
    let digits = digits.trim_end_matches(['a', 'f']);
    digits.parse().map_err(|_| "expected an architecture such as sm_87".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{architecture, number};

    #[test]
    fn architectures_are_taken_as_people_write_them() {
        for text in ["sm_90", "sm_90a", "90", "9.0", "90a"] {
            assert_eq!(architecture(text), Ok(90), "{text}");
        }
        assert!(architecture("ampere").is_err() && architecture("").is_err());
    }

    #[test]
    fn numbers_are_taken_as_people_paste_them() {
        assert_eq!(number("4096"), Ok(4096));
        assert_eq!(number("0x1000"), Ok(4096));
        assert_eq!(number("0x0000_1000"), Ok(4096));
        assert!(number("1000h").is_err());
        assert!(number("").is_err());
        assert!(number("-1").is_err());
    }
}
