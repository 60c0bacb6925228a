//! Formats of the host: ring entries and method headers (open-gpu-doc `clc76f.h` and `dev_pbdma`).

/// Reach of ring entries.
const ENTRY_VA_END: u64 = 1 << 40;

/// One ring entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A pushbuffer segment.
    Segment {
        /// Address of the first word.
        va: u64,
        /// Number of words.
        words: u32,
        /// Called from another segment; only which GET register shows it differs.
        subroutine: bool,
    },
    /// Nothing to fetch.
    Nop,
}

impl Entry {
    /// Decodes an entry; `None` raises GPENTRY.
    pub(crate) fn decode(entry: u64) -> Option<Self> {
        let words = (entry >> 42) as u32 & 0x1f_ffff;
        let high = entry >> 32 & 0xff;
        if words == 0 {
            // Operations: 0 nothing, 1 illegal, 2 and 3 checksums, which are off.
            return if matches!(high, 0 | 2 | 3) { Some(Self::Nop) } else { None };
        }
        let va = high << 32 | entry & 0xffff_fffc;
        let end = va + u64::from(words) * 4;
        if entry >> 40 & 1 != 0 || end >= ENTRY_VA_END {
            return None;
        }
        Some(Self::Segment { va, words, subroutine: entry >> 41 & 1 != 0 })
    }
}

/// A decoded method header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// Nothing.
    Nop,
    /// Data words follow.
    Data {
        /// Movement of the address.
        step: Step,
        /// Byte address of the first method.
        address: u32,
        /// Subchannel.
        subchannel: u32,
        /// Words that follow.
        count: u32,
    },
    /// The value is in the header.
    Immediate {
        /// Byte address.
        address: u32,
        /// Subchannel.
        subchannel: u32,
        /// 13 bits.
        value: u32,
    },
    /// The rest of the segment is skipped.
    EndSegment,
}

/// Movement of the method address from word to word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Every word goes to the next method.
    #[default]
    Increment,
    /// Every word goes to the same method.
    Stay,
    /// The first word goes to the method, all others to the next one.
    Once,
}

impl Header {
    /// Decodes a header word; `None` raises PBENTRY.
    pub(crate) fn decode(word: u32) -> Option<Self> {
        let address = (word & 0xfff) << 2;
        let subchannel = word >> 13 & 7;
        let count = word >> 16 & 0x1fff;
        let legacy =
            |step| Self::Data { step, address: word & 0x1ffc, subchannel, count: word >> 18 & 0x7ff };
        Some(match word >> 29 {
            0 if word == 0 => Self::Nop,
            // Sub-device masks (bits 17:16 not 0) select among linked GPUs; there is one.
            0 if word >> 16 & 3 != 0 => Self::Nop,
            0 => legacy(Step::Increment),
            1 => Self::Data { step: Step::Increment, address, subchannel, count },
            2 => legacy(Step::Stay),
            3 => Self::Data { step: Step::Stay, address, subchannel, count },
            4 => Self::Immediate { address, subchannel, value: count },
            5 => Self::Data { step: Step::Once, address, subchannel, count },
            7 => Self::EndSegment,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_decode_as_documented() {
        let segment = |subroutine| Entry::Segment { va: 0x1_2345_6780, words: 10, subroutine };
        assert_eq!(Entry::decode(0x0000_2801_2345_6780), Some(segment(false)));
        assert_eq!(Entry::decode(0x0000_2a01_2345_6780), Some(segment(true)));
        assert_eq!(Entry::decode(0), Some(Entry::Nop));
        assert_eq!(Entry::decode(1 << 32), None);
        assert_eq!(Entry::decode(1 << 42 | 0xff_ffff_fffc), None);
    }

    #[test]
    fn headers_decode_as_documented() {
        let data = |step, address, subchannel, count| Header::Data { step, address, subchannel, count };
        assert_eq!(Header::decode(0x2005_0017), Some(data(Step::Increment, 0x5c, 0, 5)));
        assert_eq!(Header::decode(0x2001_20ad), Some(data(Step::Increment, 0x2b4, 1, 1)));
        assert_eq!(Header::decode(0x6008_206d), Some(data(Step::Stay, 0x1b4, 1, 8)));
        let immediate = Header::Immediate { address: 0x2c0, subchannel: 1, value: 9 };
        assert_eq!(Header::decode(0x8009_20b0), Some(immediate));
        assert_eq!(Header::decode(6 << 29), None);
        assert_eq!(Header::decode(0), Some(Header::Nop));
    }

    proptest! {
        /// Any word is a header or an error, and never addresses anything outside the method space.
        #[test]
        fn any_word_decodes(word in any::<u32>(), entry in any::<u64>()) {
            match Header::decode(word) {
                Some(Header::Data { address, subchannel, .. } | Header::Immediate { address, subchannel, .. }) => {
                    prop_assert!(address < nv_hw::class::METHOD_SPACE && subchannel < 8);
                }
                Some(Header::Nop | Header::EndSegment) => {}
                None => prop_assert_eq!(word >> 29, 6),
            }
            if let Some(Entry::Segment { va, words, .. }) = Entry::decode(entry) {
                prop_assert!(words > 0 && va % 4 == 0 && va + u64::from(words) * 4 < ENTRY_VA_END);
            }
        }
    }
}
