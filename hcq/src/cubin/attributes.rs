//! The attribute records of `.nv.info` sections: what the compiler records for the loader about a kernel.
//!
//! A record is a format byte (1 none, 2 byte, 3 halfword, 4 sized), a code byte, and a 16-bit value or
//! length; sized records are followed by that many bytes.

use super::error::CubinError;

/// `EIATTR_MAX_THREADS`: three words.
pub const MAX_THREADS: u8 = 0x05;
/// `EIATTR_PARAM_CBANK`: symbol, offset and size of the parameters in bank 0.
pub const PARAM_CBANK: u8 = 0x0a;
/// `EIATTR_REQNTID`: three words.
pub const REQNTID: u8 = 0x10;
/// `EIATTR_FRAME_SIZE`: function symbol, bytes.
pub const FRAME_SIZE: u8 = 0x11;
/// `EIATTR_MIN_STACK_SIZE`: function symbol, bytes.
pub const MIN_STACK_SIZE: u8 = 0x12;
/// `EIATTR_KPARAM_INFO`: index, position and offset, layout with the size from bit 18 on.
pub const KPARAM_INFO: u8 = 0x17;
/// `EIATTR_REGCOUNT`: function symbol, registers.
pub const REGCOUNT: u8 = 0x2f;
/// `EIATTR_KPARAM_INFO_V2`: index, position and offset, size.
pub const KPARAM_INFO_V2: u8 = 0x45;
/// `EIATTR_NUM_BARRIERS`: a byte; CUDA 13 and later.
pub const NUM_BARRIERS: u8 = 0x4c;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The attribute's code.
    pub code: u8,
    /// The byte or halfword of an unsized record.
    pub value: u16,
    /// The content of a sized one.
    pub data: &'a [u8],
}

impl Record<'_> {
    /// Word `index` of a sized record.
    pub fn word(&self, index: usize) -> Option<u32> {
        let bytes = self.data.get(index * 4..index * 4 + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// The records of a section, up to the first that is damaged, and what is wrong with that.
pub fn records(mut bytes: &[u8]) -> (Vec<Record<'_>>, Option<CubinError>) {
    let mut records = Vec::new();
    while let [format, code, lo, hi, rest @ ..] = bytes {
        let value = u16::from_le_bytes([*lo, *hi]);
        let len = match format {
            1..=3 => 0,
            4 => usize::from(value),
            _ => return (records, Some(CubinError::Attribute { format: *format, code: *code })),
        };
        let Some((data, next)) = rest.split_at_checked(len) else {
            return (records, Some(CubinError::Truncated { what: "an attribute record" }));
        };
        records.push(Record { code: *code, value, data });
        bytes = next;
    }
    (records, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_all_formats_are_read() {
        let bytes = [1, 0x4a, 0, 0, 3, 0x19, 12, 0, 4, 0x2f, 8, 0, 7, 0, 0, 0, 40, 0, 0, 0, 2, 0x4c, 1, 0];
        let (records, damage) = records(&bytes);
        assert!(damage.is_none(), "{damage:?}");
        assert_eq!(records.len(), 4);
        assert_eq!(records[1].value, 12);
        assert_eq!((records[2].code, records[2].word(0), records[2].word(1)), (REGCOUNT, Some(7), Some(40)));
        assert_eq!(records[2].word(2), None);
        assert_eq!(records[3].value, 1);
    }

    #[test]
    fn a_record_past_the_end_is_an_error() {
        let damage = |bytes| records(bytes).1;
        assert!(matches!(damage(&[4, 0x2f, 8, 0, 1]), Some(CubinError::Truncated { .. })));
        assert!(matches!(damage(&[9, 0x2f, 0, 0]), Some(CubinError::Attribute { format: 9, code: 0x2f })));
        let (before, damage) = records(&[1, 0x4a, 0, 0, 4, 0x2f, 8, 0, 1]);
        assert_eq!((before.len(), damage.is_some()), (1, true));
    }
}
