//! Methods: what the words of a pushbuffer make the units do.

mod compute;
mod copy;
mod host;
mod inline_data;
mod table;

pub(crate) use compute::{ComputeMethods, REDUCTIONS};
pub(crate) use copy::CopyMethods;
pub(crate) use host::HostMethods;
