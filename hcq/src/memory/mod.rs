//! Memory of a device: which addresses are free, what lies behind them, and buffers.

pub(crate) mod buffer;
pub(crate) mod manager;
pub(crate) mod range_set;
pub(crate) mod va_space;
