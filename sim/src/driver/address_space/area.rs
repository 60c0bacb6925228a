//! Reserved ranges (`vm_area`).

use crate::driver::dmabuf::DmaBuf;
use std::sync::Arc;

/// A range that `ALLOC_SPACE` took out of the allocator.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// Bytes.
    pub(super) len: u64,
    /// Pages without a buffer read as zero instead of faulting.
    pub(super) sparse: bool,
    /// Buffers that `REMAP` placed inside: address, length, buffer.
    pub(super) buffers: Vec<(u64, u64, Arc<DmaBuf>)>,
}
