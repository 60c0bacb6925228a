//! `llm-demo serve`: an HTTP server with OpenAI's interface.
//!
//! [`app`] answers requests, [`scheduler`] queues them for a thread of its own, in which [`batch`]
//! generates their texts; [`job`] is all that passes between both.

pub mod access;
pub mod app;
pub mod batch;
pub mod framing;
pub mod job;
pub mod listen;
pub mod metrics;
pub mod openai;
pub mod places;
pub mod scheduler;
mod stops;

#[cfg(test)]
mod tests;
