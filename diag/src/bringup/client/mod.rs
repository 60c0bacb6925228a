//! A client of nvgpu from its requests alone, without `hcq`: nodes, memory, an address space, a channel.
//!
//! Everything is closed and unmapped in order when it is dropped.

mod channel;
mod memory;
mod node;
mod words;

pub(super) use channel::{Channel, Preemption};
pub(super) use memory::{Doorbell, GpuMemory, Mapping, Space, allocate};
pub(super) use node::Nodes;
pub(super) use words::{release, set_classes, set_windows};

/// Methods and addresses that the client and hcq agree on.
pub(super) mod plan {
    /// First address of the user range.
    pub(in crate::bringup) const VA_START: u64 = 1 << 32;
    /// End of the user range; the driver's own 4 GiB follow, below 2^40.
    pub(in crate::bringup) const VA_END: u64 = 0xff_0000_0000;
    /// First address for buffers.
    pub(in crate::bringup) const ARENA: u64 = 0x10_0000_0000;
    /// Base of the shared-memory window.
    pub(in crate::bringup) const SHARED_WINDOW: u64 = 0xfe_0000_0000;
    /// Base of the local-memory window, where the arena ends.
    pub(in crate::bringup) const LOCAL_WINDOW: u64 = 0xfd_0000_0000;
    /// Addresses kept free from each window's base on.
    pub(in crate::bringup) const WINDOW_ROOM: u64 = 1 << 30;
    /// Pages of memory and of the GPU's mappings.
    pub(in crate::bringup) const PAGE: u64 = 4096;
}
