//! The interface of OpenAI: what requests hold, how answers and errors look.

pub mod answer;
pub mod error;
pub mod fields;
pub mod grammars;
pub mod logprobs;
pub mod messages;
pub mod request;
pub mod responses;
pub mod tools;
