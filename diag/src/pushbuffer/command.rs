//! Decoded contents of a pushbuffer.

use nv_hw::class;
use serde::Serialize;

use crate::gpfifo::Entry;
use crate::hex::Hex;
use crate::queue_metadata::description::Metadata;

/// Generation, which decides the classes of a channel before any `SET_OBJECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// ga10b and its family.
    Ampere,
    /// GH100.
    Hopper,
}

impl Generation {
    pub(super) const fn host(self) -> u32 {
        match self {
            Self::Ampere => class::AMPERE_CHANNEL_GPFIFO_B,
            Self::Hopper => class::HOPPER_CHANNEL_GPFIFO_A,
        }
    }

    pub(super) const fn compute(self) -> u32 {
        match self {
            Self::Ampere => class::AMPERE_COMPUTE_B,
            Self::Hopper => class::HOPPER_COMPUTE_A,
        }
    }

    pub(super) const fn copy(self) -> u32 {
        match self {
            Self::Ampere => class::AMPERE_DMA_COPY_B,
            Self::Hopper => class::HOPPER_DMA_COPY_A,
        }
    }
}

/// Work sent to a channel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pushbuffer {
    /// Entries of the GPFIFO, where they were captured.
    pub gpfifo: Vec<Entry>,
    /// Segments, in the order they are fetched.
    pub segments: Vec<Segment>,
    /// Errors at which the hardware would stop, and parts that the capture does not hold.
    pub problems: Vec<Problem>,
}

/// A segment.
#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    /// Its GPU address, where that is known.
    pub address: Option<Hex>,
    /// Its length.
    pub size_bytes: u64,
    /// Its commands.
    pub commands: Vec<Command>,
}

/// A method header and its data.
#[derive(Clone, Debug, Serialize)]
pub struct Command {
    /// Offset of the header from the start of the segment.
    pub offset: Hex,
    /// The header; absent where the data belongs to a header of the segment before.
    pub header: Option<Hex>,
    /// `inc`, `non_inc`, `one_inc`, `immediate`, `legacy_inc`, `legacy_non_inc`, `nop`, `end`, ...
    pub form: &'static str,
    /// Subchannel, for methods.
    pub subchannel: Option<u8>,
    /// Number of the class that takes the methods.
    pub class: Option<Hex>,
    /// Its name.
    pub class_name: Option<&'static str>,
    /// Words: data words of methods, zeros of a run of NOPs, words skipped after the end.
    pub words: usize,
    /// The writes.
    pub writes: Vec<Write>,
    /// The QMD that this command completes.
    pub qmd: Option<InlineQmd>,
}

/// One method write.
#[derive(Clone, Debug, Serialize)]
pub struct Write {
    /// Byte offset of the method.
    pub method: Hex,
    /// Its name, where the class is known.
    pub name: Option<&'static str>,
    /// Element of an array of methods.
    pub index: Option<u32>,
    /// The data word.
    pub value: Hex,
    /// Its fields.
    pub fields: Vec<FieldValue>,
    /// Effect, together with the writes before it.
    pub note: Option<String>,
}

/// A field of a data word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldValue {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: u32,
    /// The name of the value.
    pub value_name: Option<&'static str>,
}

/// A QMD sent through the pushbuffer.
#[derive(Clone, Debug, Serialize)]
pub struct InlineQmd {
    /// Address of the scheduler's copy.
    pub address: Option<Hex>,
    /// Decoded QMD; absent if its version is not known.
    pub metadata: Option<Metadata>,
}

/// Something the hardware stops at, or that the capture does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Segment, counted from 0; absent for a GPFIFO entry.
    pub segment: Option<usize>,
    /// Offset from the start of the segment or of the GPFIFO.
    pub offset: Hex,
    /// The problem.
    pub text: String,
}
