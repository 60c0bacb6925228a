//! Memory of a device: which addresses are free, what is mapped there, and buffers.

pub(crate) mod kept;
mod limit;
pub(crate) mod manager;
pub(crate) mod plain;
pub(crate) mod range_lock;
pub(crate) mod range_set;
pub(crate) mod shared_bytes;
pub(crate) mod va_space;
