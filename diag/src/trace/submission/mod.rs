//! Submissions: a program's entries in the rings of its channels, down to QMDs and semaphores.
//!
//! [`Submissions`] keeps the state of a channel from segment to segment (bound classes, semaphore addresses),
//! so it decodes the events of a trace in their order.

mod decoded;
mod kernels;
mod launch;
pub(crate) mod names;
mod print;
pub(crate) mod recorded;
mod work;

pub use decoded::{Decoded, DecodedEntry, Problem, Submissions};
pub use kernels::Kernels;
pub use launch::{DecodedLaunch, Source};
pub use names::Names;
pub use print::{detailed, lines};
pub use recorded::{Channel, Kernel, Launch, RingEntry, Submission};
pub use work::{Copy, Semaphore, Work};
