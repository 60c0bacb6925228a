//! Pushbuffers: the method writes a channel is sent, with the names and fields of their classes.
//!
//! The state a segment leaves behind (which class is bound to which subchannel, a method whose data goes on in the next
//! segment, an inline QMD half loaded) is carried over, as the hardware does.

pub(crate) mod command;
pub(crate) mod decoder;
mod halves;
mod print;

pub use command::{Command, FieldValue, Generation, InlineQmd, Problem, Pushbuffer, Segment, Write};
pub use decoder::Decoder;
