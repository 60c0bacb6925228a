//! Launches that a pushbuffer names: decodes the few methods that matter for that.

use nv_hw::class::c7c0::{
    LAUNCH_DMA, LINE_COUNT, LINE_LENGTH_IN, LOAD_INLINE_DATA, OFFSET_OUT, OFFSET_OUT_UPPER, SEND_PCAS_A,
    SEND_SIGNALING_PCAS_B, SEND_SIGNALING_PCAS2_B, SET_OBJECT,
};
use nv_hw::class::{AMPERE_COMPUTE_B, FIRST_ENGINE_METHOD, Kind, subchannel};

use crate::uploads::Uploads;

/// Movement of the method from data word to data word.
#[derive(Clone, Copy, Debug)]
enum Step {
    Increment,
    Stay,
    Once,
}

/// Data words that are still to come.
#[derive(Clone, Copy, Debug)]
struct Pending {
    step: Step,
    subchannel: usize,
    method: u32,
    left: u32,
}

/// An upload under way.
#[derive(Debug, Default)]
struct Upload {
    line_length: u32,
    line_count: u32,
    to: [u32; 2],
    data: Vec<u8>,
    expected: usize,
}

/// The state of a channel that launches depend on.
#[derive(Debug)]
pub(crate) struct Scanner {
    classes: [u32; 8],
    pending: Option<Pending>,
    upload: Upload,
    uploads: Uploads,
    qmd: u32,
}

impl Scanner {
    pub fn new() -> Self {
        let mut classes = [0; 8];
        // Before any class is bound.
        classes[subchannel::COMPUTE as usize] = AMPERE_COMPUTE_B;
        Self { classes, pending: None, upload: Upload::default(), uploads: Uploads::default(), qmd: 0 }
    }

    /// A part of the pushbuffer was not read: what its data would continue is not known.
    pub fn skip(&mut self) {
        self.pending = None;
        self.upload.expected = 0;
    }

    /// Follows a segment. `launch` is called for each launch, with the QMD's address and the uploads so far.
    pub fn segment(&mut self, bytes: &[u8], launch: &mut dyn FnMut(u64, &Uploads)) {
        for word in bytes.chunks_exact(4).filter_map(|chunk| chunk.first_chunk()) {
            let word = u32::from_le_bytes(*word);
            if let Some(mut pending) = self.pending.take() {
                self.method(pending.subchannel, pending.method, word, launch);
                match pending.step {
                    Step::Increment => pending.method += 4,
                    Step::Stay => {}
                    Step::Once => (pending.method, pending.step) = (pending.method + 4, Step::Stay),
                }
                pending.left -= 1;
                self.pending = (pending.left > 0).then_some(pending);
                continue;
            }
            let (subchannel, method) = ((word >> 13 & 7) as usize, (word & 0xfff) << 2);
            let (count, legacy) = (word >> 16 & 0x1fff, word >> 18 & 0x7ff);
            let (step, method, left) = match (word >> 29, word >> 16 & 3) {
                (0, 0) => (Step::Increment, word & 0x1ffc, legacy),
                (1, _) => (Step::Increment, method, count),
                (2, _) => (Step::Stay, word & 0x1ffc, legacy),
                (3, _) => (Step::Stay, method, count),
                (5, _) => (Step::Once, method, count),
                (4, _) => {
                    self.method(subchannel, method, count, launch);
                    continue;
                }
                // The rest of the segment is skipped.
                (7, _) => return,
                _ => continue,
            };
            self.pending = (left > 0).then_some(Pending { step, subchannel, method, left });
        }
    }

    fn method(&mut self, subchannel: usize, method: u32, value: u32, launch: &mut dyn FnMut(u64, &Uploads)) {
        if method == SET_OBJECT {
            self.classes[subchannel] = value & 0xffff;
        }
        let kind = Kind::of(self.classes[subchannel]);
        let computes = kind == Some(Kind::Compute);
        if method < FIRST_ENGINE_METHOD || !computes && kind != Some(Kind::InlineToMemory) {
            return;
        }
        match method {
            LINE_LENGTH_IN => self.upload.line_length = value,
            LINE_COUNT => self.upload.line_count = value,
            OFFSET_OUT_UPPER => self.upload.to[1] = value & 0x1ff_ffff,
            OFFSET_OUT => self.upload.to[0] = value,
            LAUNCH_DMA => {
                // Uploads of several lines are of pictures.
                let is_line = self.upload.line_count == 1;
                self.upload.expected = if is_line { self.upload.line_length as usize } else { 0 };
                self.upload.data.clear();
            }
            LOAD_INLINE_DATA if self.upload.expected > 0 => self.upload.add(value, &mut self.uploads),
            SEND_PCAS_A if computes => self.qmd = value,
            SEND_SIGNALING_PCAS_B | SEND_SIGNALING_PCAS2_B if computes && value != 0 => {
                launch(u64::from(self.qmd) << 8, &self.uploads);
            }
            _ => {}
        }
    }
}

impl Upload {
    fn add(&mut self, value: u32, uploads: &mut Uploads) {
        self.data.extend(value.to_le_bytes());
        if self.data.len() >= self.expected {
            self.data.truncate(self.expected);
            uploads.write(u64::from(self.to[1]) << 32 | u64::from(self.to[0]), &self.data);
            self.expected = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn launches(scanner: &mut Scanner, words: &[u32]) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        scanner.segment(&bytes(words), &mut |at, uploads| {
            found.push((at, uploads.read(at, 8).map(<[u8]>::to_vec)));
        });
        found
    }

    #[test]
    fn a_launch_is_found_with_what_was_uploaded_before_it_also_over_two_segments() {
        let mut scanner = Scanner::new();
        // Line of 8 bytes to 0x1_0000_4500; the second word is in the next segment.
        let first = [0x2004_2060, 8, 1, 1, 0x4500, 0x2001_206c, 0x41, 0x6002_206d, 0x1111_1111];
        assert_eq!(launches(&mut scanner, &first), []);
        let second = [0x2222_2222, 0x2001_20ad, 0x100_0045, 0x8009_20b0];
        let uploaded = bytes(&[0x1111_1111, 0x2222_2222]);
        assert_eq!(launches(&mut scanner, &second), [(0x1_0000_4500, Some(uploaded))]);
        // A patch of four bytes.
        let patch = [
            0x2004_2060,
            4,
            1,
            1,
            0x4504,
            0x2001_206c,
            0x41,
            0x6001_206d,
            0x3333_3333,
            0x8009_20b0,
            7 << 29,
            0x8009_20b0,
        ];
        let patched = bytes(&[0x1111_1111, 0x3333_3333]);
        assert_eq!(launches(&mut scanner, &patch), [(0x1_0000_4500, Some(patched))]);
    }

    #[test]
    fn other_classes_launch_nothing() {
        let mut scanner = Scanner::new();
        // The same offsets on subchannel 4, and on subchannel 1 once it has a copy class.
        assert_eq!(launches(&mut scanner, &[0x2001_80ad, 5, 0x8009_80b0]), []);
        assert_eq!(launches(&mut scanner, &[0x2001_2000, 0xc7b5, 0x2001_20ad, 5, 0x8009_20b0]), []);
        assert_eq!(
            launches(&mut scanner, &[0x2001_8000, 0xcbc0, 0x2001_80ad, 5, 0x8009_80b0]),
            [(0x500, None)]
        );
    }

    proptest! {
        #[test]
        fn any_words_are_followed(words in proptest::collection::vec(any::<u32>(), 0..300)) {
            let mut scanner = Scanner::new();
            let found = launches(&mut scanner, &words);
            prop_assert!(found.len() <= words.len());
        }
    }
}
