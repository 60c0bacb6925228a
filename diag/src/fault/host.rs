//! The host interface: method headers, ring entries, error notifiers.

use nv_hw::fault::{notifier, xid};
use std::fmt;

/// A pushbuffer method header, in one of the two forms that logs show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodHeader {
    /// Kind of header: 1 incrementing, 3 not incrementing, 4 immediate, 5 incrementing once.
    pub kind: u32,
    /// Subchannel.
    pub subchannel: u32,
    /// Byte address of the method.
    pub method: u32,
    /// Words that follow, or the immediate value; absent in the decoded form.
    pub count: Option<u32>,
}

impl MethodHeader {
    /// From the decoded register: `PBH`, `HEADER` of dumps.
    #[must_use]
    pub const fn decoded(word: u32) -> Self {
        Self { kind: word >> 29, subchannel: word >> 16 & 7, method: word & 0x3ffc, count: None }
    }

    /// From the word as in the pushbuffer: `SHADOW`, `HDR` of dumps. Can be stale after a switch of channels.
    #[must_use]
    pub const fn raw(word: u32) -> Self {
        Self {
            kind: word >> 29,
            subchannel: word >> 13 & 7,
            method: (word & 0xfff) << 2,
            count: Some(word >> 16 & 0x1fff),
        }
    }
}

impl fmt::Display for MethodHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            1 => "incrementing",
            3 => "not incrementing",
            4 => "immediate",
            5 => "incrementing once",
            7 => "end of segment",
            _ => "of a reserved kind",
        };
        write!(f, "method {:#06x} on subchannel {}, {kind}", self.method, self.subchannel)?;
        match (self.count, self.kind) {
            (Some(value), 4) => write!(f, ", value {value:#x}"),
            (Some(count), _) => write!(f, ", {count} words"),
            (None, _) => Ok(()),
        }
    }
}

/// Address and length in words of a ring entry.
#[must_use]
pub const fn ring_entry(low: u32, high: u32) -> (u64, u32) {
    (((high & 0xff) as u64) << 32 | (low & !3) as u64, high >> 10 & 0x1f_ffff)
}

/// Name and meaning of an error notifier's code.
#[must_use]
pub fn notifier_words(code: u32) -> (&'static str, &'static str) {
    let name =
        nv_hw::name(notifier::NAMES, code).or_else(|| nv_hw::name(xid::NAMES, code)).unwrap_or("unknown");
    let words = match code {
        8 => "work did not leave the engine in time",
        12 | 25 => "a method that the engine does not have",
        13 => "an exception of the graphics engine: an SM, the scheduler or the front end",
        24 => "a semaphore did not reach its value in time",
        31 => "an MMU fault",
        32 => "the pushbuffer unit refused what it was given",
        37 => "a method that the context firmware does not have",
        43 => "the channel was reset as a bystander; the cause is another channel's",
        45 => "the channel was removed because of an earlier error",
        80 => "a pushbuffer checksum does not match",
        _ => "another error",
    };
    (name, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_header_are_read() {
        let decoded = MethodHeader::decoded(0x2154_0300);
        assert_eq!((decoded.kind, decoded.subchannel, decoded.method), (1, 4, 0x300));
        let raw = MethodHeader::raw(0x2001_2044);
        assert_eq!((raw.subchannel, raw.method, raw.count), (1, 0x110, Some(1)));
        assert_eq!(raw.to_string(), "method 0x0110 on subchannel 1, incrementing, 1 words");
        assert_eq!(ring_entry(0xfe10_c000, 0x10ff), (0xff_fe10_c000, 4));
    }
}
