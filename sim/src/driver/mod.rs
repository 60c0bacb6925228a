//! The nvgpu and nvmap drivers.

pub(crate) mod address_space;
pub(crate) mod channel;
pub(crate) mod dmabuf;
pub(crate) mod files;
pub(crate) mod ids;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod nodes;
pub(crate) mod notifier;
pub(crate) mod nvmap;
pub(crate) mod recovery;
pub(crate) mod tsg;
