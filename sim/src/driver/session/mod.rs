//! State of the nodes that programs have open.

pub(crate) mod control;
pub(crate) mod debugger;
pub(crate) mod profiler;
