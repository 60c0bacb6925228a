//! Lines that nothing reads: most of a log is not about a GPU, and is counted without being cut into lines.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::{memchr_iter, memchr2, memrchr};

use crate::kernel_log::{frame, stray};

/// Bytes and lines at the start of `bytes` that are not about a GPU: whole lines, each without a word that a
/// frame begins with or that only lines about GPUs have, without a record's brace, and without an escape
/// sequence, which may stand inside a word.
pub(super) fn prefix(bytes: &[u8]) -> (usize, u64) {
    static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
        let words = frame::words().chain(stray::words()).chain([" [s="]);
        AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(words).ok()
    });
    let (Some(words), Some(last)) = (WORDS.as_ref(), memrchr(b'\n', bytes)) else { return (0, 0) };
    let lines = &bytes[..=last];
    let lines = &lines[..words.find(lines).map_or(lines.len(), |word| word.start())];
    let lines = &lines[..memchr2(b'{', 0x1b, lines).unwrap_or(lines.len())];
    let end = memrchr(b'\n', lines).map_or(0, |at| at + 1);
    (end, memchr_iter(b'\n', &lines[..end]).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_log::Reader;
    use proptest::prelude::*;

    /// Lines of logs, and pieces that a wrapped or damaged log is made of.
    const SAMPLES: &str = include_str!("../../tests/data/kernel-log-samples.txt");
    const PIECES: &[&str] = &[
        "usb 1-1: new high-speed USB device",
        "#",
        "{",
        "}",
        "  \"MESSAGE\" : \"nvgpu: 17000000.gpu f:1 [ERR]  Failed!\",",
        "\x1b[31mnv\x1b[0mgpu: 17000000.gpu f:1 [ERR]  Failed!",
        "a very long line that ends nowhere ",
        "(0xfff3a21000), owned by python3",
        "ga10b: warp error 0xf at pc 0xfe40040100, block [0, 0, 0], warp 1, lanes 0xffffffff: LDG.E R2, [R2.64]",
        "\r",
        "",
        "\u{fffd}é",
    ];

    /// All entries of a log, and the number of its lines.
    fn read(log: &[u8], step: usize) -> (Vec<crate::kernel_log::Parsed>, u64) {
        let (mut reader, mut found) = (Reader::new(), Vec::new());
        log.chunks(step.max(1)).for_each(|bytes| reader.feed(bytes, &mut |parsed| found.push(parsed)));
        reader.finish(&mut |parsed| found.push(parsed));
        (found, reader.lines())
    }

    #[test]
    fn whole_lines_without_a_word_are_skipped_and_counted() {
        assert_eq!(prefix(b"usb 1-1\nusb 1-2\nnvgpu: x\nusb 1-3\n"), (16, 2));
        assert_eq!(prefix(b"usb 1-1\nusb"), (8, 1));
        assert_eq!(prefix(b"usb 1-1 \x1b[0m\n"), (0, 0));
        assert_eq!(prefix(b"\n\n{\n"), (2, 2));
        assert_eq!(prefix(b"no end"), (0, 0));
    }

    proptest! {
        /// Byte by byte no line is skipped: a line has begun when the next byte comes.
        #[test]
        fn what_is_read_is_that_of_a_reader_that_skips_nothing(
            lines in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40),
            step in 2usize..4096,
        ) {
            let samples: Vec<&str> = SAMPLES.lines().collect();
            let log: Vec<&str> = lines
                .iter()
                .map(|(sample, at)| if *sample { samples[at.index(samples.len())] } else { PIECES[at.index(PIECES.len())] })
                .collect();
            let log = log.join("\n");
            prop_assert_eq!(read(log.as_bytes(), step), read(log.as_bytes(), 1));
        }
    }
}
