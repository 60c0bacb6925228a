//! Methods: actions of the units on the words of a pushbuffer.

pub(crate) mod compute;
pub(crate) mod copy;
pub(crate) mod host;
mod inline_data;
