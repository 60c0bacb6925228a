//! Reports of fetched submissions, for a tracer of the process.

use crate::gpu::memory::GpuMemory;
use ga10b_capture::{Channel, Limits, Memory, Reader, Record};
use nv_hw::class::AMPERE_CHANNEL_GPFIFO_B;
use std::sync::atomic::{AtomicU32, Ordering};

/// Reports what channels fetch.
#[derive(Debug)]
pub(crate) struct Submissions {
    limits: Limits,
    channels: AtomicU32,
}

impl Submissions {
    /// With the limits that the environment sets.
    pub(crate) fn new() -> Self {
        Self { limits: Limits::from_env(), channels: AtomicU32::new(0) }
    }

    /// Follows a channel from its first entry on.
    pub(crate) fn follow(&self, token: u32, ring_entries: u32) -> Reader {
        let number = self.channels.fetch_add(1, Ordering::Relaxed) + 1;
        let channel = Channel { number, class: AMPERE_CHANNEL_GPFIFO_B, handle: token, ring_entries };
        Reader::new(channel, self.limits)
    }
}

impl Memory for GpuMemory<'_> {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        GpuMemory::read(self, address, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// Reports one entry, before it is fetched.
pub(crate) fn report(reader: &mut Reader, index: u32, entry: u64, memory: &GpuMemory<'_>) {
    reader.entries(index, &[entry], 0, memory, &mut Record::report);
}
