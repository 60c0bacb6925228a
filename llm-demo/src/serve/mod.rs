//! `llm-demo serve`: an HTTP server with OpenAI's interface.
//!
//! [`app`] has the routes, [`state`] is what they share, [`scheduler`] queues them for a thread of its own, in which [`batch`]
//! generates their texts; [`job`] is all that passes between both.

pub mod access;
mod answering;
pub mod app;
mod asking;
pub mod batch;
mod calls;
mod embedding;
pub mod framing;
pub mod job;
pub mod listen;
pub mod metrics;
pub mod openai;
mod page;
mod parts;
pub mod places;
mod prompts;
mod responding;
pub mod scheduler;
pub mod state;
mod stops;
mod weighing;
mod words;

#[cfg(test)]
mod tests;
