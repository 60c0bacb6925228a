//! Methods: what the words of a pushbuffer make the units do.

pub(crate) mod compute;
pub(crate) mod copy;
pub(crate) mod host;
mod inline_data;
