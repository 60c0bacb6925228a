//! Device nodes and their ioctls.

mod address_space;
mod argument;
mod calls;
mod channel;
mod characteristics;
mod context;
mod ctrl;
mod dbg;
pub(crate) mod dispatch;
mod display;
pub(crate) mod nvmap;
pub(crate) mod paths;
mod profiler;
mod sched;
mod setup_bind;
mod tsg;
