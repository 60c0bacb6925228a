//! Pushbuffers: the method writes a channel is sent, with the names and fields of their classes.
//!
//! The state after a segment (which class is bound to which subchannel, a method whose data continues in the
//! next segment, an inline QMD half loaded) is carried over, as the hardware does.

pub(crate) mod command;
pub(crate) mod decoder;
mod halves;
pub(crate) mod print;

pub use command::{Command, FieldValue, Generation, InlineQmd, Problem, Pushbuffer, Segment, Write};
pub use decoder::Decoder;
