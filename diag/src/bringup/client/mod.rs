//! A client of nvgpu from its requests alone, without `hcq`: nodes, memory, an address space, a channel.
//!
//! Everything is closed and unmapped in order when it is dropped.

mod channel;
pub(super) mod layout;
mod memory;
mod node;
mod words;

pub(super) use channel::{Channel, Choice};
pub(super) use memory::{Doorbell, GpuMemory, Mapping, Space, allocate};
pub(super) use node::{Nodes, Unopened, lacking, unless_lacking};
pub(super) use words::{release, set_classes, set_windows};
