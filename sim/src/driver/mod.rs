//! The drivers: nvgpu and nvmap.

pub(crate) mod address_space;
pub(crate) mod channel;
pub(crate) mod descriptor;
pub(crate) mod dmabuf;
pub(crate) mod event;
pub(crate) mod files;
pub(crate) mod heaps;
mod interrupts;
mod known_buffers;
pub(crate) mod late_faults;
mod log;
pub(crate) mod machine;
pub(crate) mod mappings;
pub(crate) mod nodes;
pub(crate) mod notifier;
pub(crate) mod nvmap;
pub(crate) mod recovery;
pub(crate) mod session;
mod subcontexts;
pub(crate) mod tsg;
pub(crate) mod unbind;
