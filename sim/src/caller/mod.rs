//! The process whose request is served: its memory, and what a visitor from another process is asked for.

pub(crate) mod message;
pub(crate) mod user_memory;
pub(crate) mod visitor;
