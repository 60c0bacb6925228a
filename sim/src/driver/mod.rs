//! The drivers: nvgpu and nvmap.
//!
//! # Layers
//! ```text
//! nodes     nodes                           # requests of each device node
//! faults    interrupts recovery             # what the GPU reports, and what is stopped for it
//! machine   doorbells machine               # the whole: state of the driver, memory, GPU
//! files     files session                   # what descriptors are open on
//! channels  channel subcontexts tsg unbind  # channels and groups, and their end
//! memory    address_space dmabuf heaps known_buffers mappings nvmap  # buffers, and where they are mapped
//! parts     descriptor event late_faults log notifier zbc  # small things that the others hold
//! ```

pub(crate) mod address_space;
pub(crate) mod channel;
pub(crate) mod descriptor;
pub(crate) mod dmabuf;
pub(crate) mod doorbells;
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
pub(crate) mod zbc;
