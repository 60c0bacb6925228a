//! Inputs of a command: files, stdin, numbers.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;
use nvdiag::process_map;

/// Most bytes of a regular file that are read as a whole: libraries with kernels are this large.
const MAX_FILE: u64 = 1 << 30;
/// Most bytes of anything else: a pipe or a device may have no end, and must not fill the memory.
pub const MAX_STREAM: u64 = 64 << 20;

/// Reads a whole file, or stdin for `-`.
pub fn read_input(path: &Path) -> anyhow::Result<Vec<u8>> {
    read_up_to(path, MAX_FILE, "1 GiB")
}

/// Reads a map of an address space, or stdin for `-`.
pub fn read_map(path: &Path) -> anyhow::Result<Vec<u8>> {
    read_up_to(path, process_map::BOUNDS.bytes as u64, "64 MiB")
}

/// Reads a regular file of at most `most` bytes, called `words`, or what is none of at most [`MAX_STREAM`].
fn read_up_to(path: &Path, most: u64, words: &'static str) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read {}", path.display());
    let file = match path.as_os_str() == "-" {
        true => File::from(io::stdin().as_fd().try_clone_to_owned().with_context(failed)?),
        false => File::open(path).with_context(failed)?,
    };
    let metadata = file.metadata().with_context(failed)?;
    let (most, words) = match metadata.is_file() {
        true => (most, words),
        false => (MAX_STREAM, "64 MiB, and no regular file: it may have no end"),
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).with_context(failed)?;
    anyhow::ensure!(bytes.len() as u64 <= most, "{} is larger than {words}", path.display());
    Ok(bytes)
}

/// Returns the kind of a file that is not a regular one.
fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// Opens a regular file and refuses others: a pipe without a peer would wait for one, and a device may have
/// no end.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let check = |metadata: &Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::other(format!("it is {}, and no regular file", kind(metadata)))),
    };
    if let Ok(metadata) = std::fs::metadata(path) {
        check(&metadata)?;
    }
    // It may have become another one since.
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, OpenOptions::new().read(true))?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it is longer than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Longest source file that is read.
const MAX_SOURCE: u64 = 16 << 20;

/// Reads a source file that a cubin names; `None` if there is none of a plausible size.
pub fn read_source(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&read_regular(Path::new(path), MAX_SOURCE).ok()?).into_owned())
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
