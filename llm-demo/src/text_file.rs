//! Text files that the command line names: prompts, templates, grammars, keys, measurements.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ga10b_llm::bounded;

/// The text of the file `path`, or of standard input where that is `-` and `input` allows it.
///
/// # Errors
/// If it cannot be read, is no UTF-8, or has more than 64 MiB.
pub fn read(path: &Path, input: Input) -> io::Result<String> {
    match path.to_str() {
        Some("-") if input == Input::Allowed => all(io::stdin().lock()),
        _ => all(File::open(path)?),
    }
}

/// Whether `-` means standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It does.
    Allowed,
    /// It is a file's name.
    AFile,
}

fn all(from: impl Read) -> io::Result<String> {
    String::from_utf8(bounded::read(from)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused() {
        let error = read(Path::new("/dev/zero"), Input::AFile).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    }

    #[test]
    fn a_text_is_read_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\r\nb\n").unwrap();
        assert_eq!(read(file.path(), Input::Allowed).unwrap(), "a\r\nb\n");
        std::fs::write(file.path(), b"a\xff").unwrap();
        assert_eq!(read(file.path(), Input::Allowed).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
