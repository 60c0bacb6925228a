//! Continuous batching: requests come and go while others are decoded.
//!
//! A [`Scheduler`] owns the sequences of an engine ([`Sequences`](crate::Sequences), which
//! [`Columns`](crate::Columns) are) and a queue of requests. Each call of [`Scheduler::step`] processes a chunk
//! of a prompt, if one has any left, and one step: a token of every text that is being written, and pieces of
//! prompts in the rest of the columns. Events of a request are [`Event`]s; a request that nobody waits for any more is cancelled.
//! The text of a request depends on its prompt and its options alone: so does which of its tokens are in
//! which chunk ([`Cut`](crate::Cut)). Prompts that begin like others share their pages
//! ([`Scheduler::with_prefix_cache`]): those whose keys and values are what they would write themselves.

mod choices;
mod parts;
mod prefixes;
mod proposals;
mod reading;
mod requests;
mod scheduler;

pub use requests::{Event, Finish, Reading, Request, RequestId};
pub use scheduler::{Load, Scheduler};
