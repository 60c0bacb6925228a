//! GPFIFO entries: where the pushbuffer segments of a channel are.

use serde::Serialize;

use crate::hex::Hex;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8;

/// Action of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Fetches a segment.
    Fetch,
    /// Nothing.
    Nop,
    /// Raises an interrupt.
    Illegal,
    /// Checks or resets a checksum of the entries.
    GpCrc,
    /// Checks or resets a checksum of the pushbuffer.
    PbCrc,
    /// Sets the address bits above 40 of the segments that follow (Hopper).
    ExtendedBase,
    /// No operation that is known.
    Unknown,
}

/// An entry of a GPFIFO. Bits as in NVIDIA's `clc76f.h`, `GP_ENTRY0` and `GP_ENTRY1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Place in the ring.
    pub index: usize,
    /// The entry itself.
    pub word: Hex,
    /// Action.
    pub action: Action,
    /// Address of the segment; the operand of an entry that fetches none.
    pub address: Hex,
    /// Length of the segment.
    pub size_bytes: u64,
    /// Whether the segment counts as a subroutine.
    pub subroutine: bool,
    /// Whether the fetch waits until everything before it is done.
    pub waits: bool,
    /// Whether it depends on the sub-device mask.
    pub conditional: bool,
    /// Problem of the entry.
    pub problem: Option<String>,
}

impl Entry {
    /// Decodes one entry.
    #[must_use]
    pub fn decode(index: usize, word: u64) -> Self {
        let words = word >> 42 & 0x1f_ffff;
        let opcode = word >> 32 & 0xff;
        let action = match (words, opcode) {
            (1.., _) => Action::Fetch,
            (0, 0) => Action::Nop,
            (0, 1) => Action::Illegal,
            (0, 2) => Action::GpCrc,
            (0, 3) => Action::PbCrc,
            (0, 4) => Action::ExtendedBase,
            _ => Action::Unknown,
        };
        let address = match action {
            Action::Fetch => word & 0xff_ffff_fffc,
            _ => word & 0xffff_fffc,
        };
        let size_bytes = words * 4;
        let problem = match action {
            Action::Illegal => Some("the ILLEGAL operation: the channel stops (GPENTRY)".to_owned()),
            Action::Unknown => {
                Some(format!("operation {opcode} is not defined: the channel stops (GPENTRY)"))
            }
            Action::Fetch if address + size_bytes >= 1 << 40 => Some(
                "the segment reaches the end of the 40-bit space: the channel stops (GPENTRY)".to_owned(),
            ),
            _ if word >> 40 & 1 != 0 => Some("bit 40 is set, which has no meaning".to_owned()),
            _ => None,
        };
        Self {
            index,
            word: Hex(word),
            action,
            address: Hex(address),
            size_bytes,
            subroutine: word >> 41 & 1 != 0,
            waits: word >> 63 != 0,
            conditional: word & 1 != 0,
            problem,
        }
    }

    /// Decodes a whole ring, up to a last entry that is cut off.
    pub fn decode_all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        let words = bytes.chunks_exact(ENTRY_BYTES).filter_map(|chunk| chunk.first_chunk());
        words.enumerate().map(|(index, word)| Self::decode(index, u64::from_le_bytes(*word)))
    }

    /// Describes the action in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        let what = match self.action {
            Action::Fetch => format!("{} words at {}", self.size_bytes / 4, self.address),
            Action::Nop => "nothing".to_owned(),
            Action::Illegal => "ILLEGAL".to_owned(),
            Action::GpCrc => format!("GP_CRC {}", self.address),
            Action::PbCrc => format!("PB_CRC {}", self.address),
            Action::ExtendedBase => format!("extended base {}", self.address),
            Action::Unknown => "unknown operation".to_owned(),
        };
        let flags =
            [(self.subroutine, "subroutine"), (self.waits, "waits"), (self.conditional, "conditional")];
        let flags: Vec<_> = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
        match flags.is_empty() {
            true => what,
            false => format!("{what}, {}", flags.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_as_working_drivers_write_them() {
        let entry = Entry::decode(3, 0x0000_2801_2345_6780);
        assert_eq!((entry.action, entry.address, entry.size_bytes), (Action::Fetch, Hex(0x1_2345_6780), 40));
        assert!(!entry.subroutine && !entry.waits && entry.problem.is_none());
        let entry = Entry::decode(0, 0x8000_2a01_2345_6780);
        assert_eq!(entry.describe(), "10 words at 0x123456780, subroutine, waits");
    }

    #[test]
    fn control_entries_and_what_stops_a_channel() {
        assert_eq!(Entry::decode(0, 0).action, Action::Nop);
        assert_eq!(Entry::decode(0, 4 << 32).action, Action::ExtendedBase);
        for bad in [1u64 << 32, 9 << 32, 0xff_ffff_fffc | 1 << 42, 1 << 40] {
            assert!(Entry::decode(0, bad).problem.is_some(), "{bad:#x}");
        }
    }
}
