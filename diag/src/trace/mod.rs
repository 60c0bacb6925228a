//! Traces: the calls a program makes on the nodes of GPU drivers, as a log that can be kept and decoded
//! again.
//!
//! A log is JSON lines: a [`Header`], then an [`Event`] for each call, with the bytes of its arguments before
//! and after as they were, and for each [`Submission`](submission::Submission) that was found in a ring. The
//! bytes are decoded when a log is printed ([`Printer`]), so a later version can explain more of an old log.

pub mod abi;
pub(crate) mod bytes;
pub mod decode;
pub(crate) mod event;
mod print;
mod recorder;
pub mod submission;
mod summary;
mod timeline;

pub use bytes::Bytes;
pub use event::{Call, Error, Event, Header, LogReader, LogWriter, Memory, SCHEMA, is_gpu_node, node_name};
pub use print::{Printer, View};
pub use recorder::Traced;
pub use summary::{Row, Summary};
pub use timeline::Timeline;
