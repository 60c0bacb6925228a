//! The interface of a driver: all that differs between drivers, and nothing else.
//!
//! A backend hands out memory that is mapped into one GPU address space, channels that run in it, and a way
//! to ring their doorbell; and it reports what the GPU is and what went wrong. It knows nothing of
//! pushbuffers, signals, launches or programs. Addresses are chosen above it.

use std::ops::Range;
use std::ptr::NonNull;

use crate::address::GpuVa;
use crate::error::Error;
use crate::error::report::SmRecord;
use crate::info::Info;

pub(crate) mod calls;
pub(crate) mod kernel_log;
pub(crate) mod nvgpu;
pub(crate) mod rm;
#[cfg(feature = "sim")]
pub(crate) mod software;
#[cfg(test)]
pub(crate) mod tests;

/// A driver with one address space open.
pub(crate) trait Backend: Send + Sync {
    /// The GPU's description.
    fn info(&self) -> &Info;

    /// The address ranges buffers may use, and the windows they may not.
    fn layout(&self) -> &Layout;

    /// Allocates memory and maps it at exactly `request.va`.
    ///
    /// The memory reads as zero to the GPU where the driver promises it; callers clear what they rely on.
    fn allocate(&self, request: &MemoryRequest) -> Result<Memory, Error>;

    /// Unmaps and frees `memory`. The caller has made sure that no GPU work touches it any more and that
    /// nothing uses its CPU pointer.
    fn free(&self, memory: MemoryId) -> Result<(), Error>;

    /// Called before the CPU reads or writes memory of that kind through its pointer, when no work of the GPU
    /// touches the range: makes what the GPU wrote visible, and has the GPU see what the CPU is about to
    /// write.
    fn before_cpu_access(&self, _: MemoryKind) -> Result<(), Error> {
        Ok(())
    }

    /// Creates a channel that is bound to the address space, has its engine objects, and is scheduled.
    fn create_channel(&self, request: &ChannelRequest) -> Result<RawChannel, Error>;

    /// Stops and removes a channel; what it still had queued does not run. Its pointers end here.
    fn destroy_channel(&self, channel: ChannelId);

    /// Signals the host that the channel with this token has new entries. Ring, `GP_PUT` and everything they
    /// lead to have been written and fenced before; the backend adds what its doorbell needs after the store.
    fn ring_doorbell(&self, token: u32);

    /// The error notifier's code if the channel was stopped. Cheap: it is called in wait loops.
    fn channel_error(&self, channel: ChannelId) -> Option<u32>;

    /// Whether kernels give way to other contexts and the driver between two instructions, so that a channel
    /// can be closed beside them.
    fn gives_way(&self) -> bool {
        true
    }

    /// Whether all channels share one group, which an error of one, or closing one beside work that does not
    /// give way, takes down.
    fn shares_group(&self) -> bool {
        false
    }

    /// Asks the driver whether it has given the channel up: it may do so without an error notification. A
    /// system call.
    fn is_given_up(&self, _: ChannelId) -> bool {
        false
    }

    /// Everything the driver reports about the error that stopped `channel`. May take milliseconds.
    fn fault(&self, channel: ChannelId) -> RawFault;

    /// Bytes of memory that can be allocated now, as far as the driver says; else all there are.
    fn free_memory(&self) -> Result<u64, Error> {
        Ok(self.info().memory)
    }

    /// A software GPU's account of work that does not end; empty on hardware.
    fn explanation(&self) -> Vec<String> {
        Vec::new()
    }

    /// The GPU's clock in ns, the one that timestamps are taken from.
    fn gpu_time(&self) -> Result<u64, Error>;
}

/// The address space as the driver lets it be used.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Addresses for rings, pushbuffers, QMDs, arguments and semaphores: below 2^40.
    pub low: Range<u64>,
    /// Addresses for everything else; may equal `low`, must not overlap it otherwise.
    pub high: Range<u64>,
    /// Base of the window through which generic addresses reach shared memory.
    pub shared_window: GpuVa,
    /// Base of the window through which generic addresses reach local memory.
    pub local_window: GpuVa,
    /// Ranges that hold those windows, with room to spare; no buffer is placed in them.
    pub reserved: [Range<u64>; 2],
    /// Warps per SM that local memory is provided for: the most that the SM, or its driver, counts.
    pub local_warps: u32,
    /// Mappings start and end on multiples of this power of two.
    pub granule: u64,
    /// Bytes of `low` that a channel's own memory takes; 0 where the driver places it itself.
    pub channel_va: u64,
}

/// The purpose of a piece of memory; the backend chooses placement and caching by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MemoryKind {
    /// Bulk data and code. The CPU pointer may be absent.
    Device,
    /// Pushbuffers, QMDs, constant banks: written by the CPU, read by the GPU (which may write into QMDs).
    /// Has a CPU pointer. Reading through it is very slow where it is write-combined: on a desktop GPU, and
    /// on a Jetson by its profile. Where it is cacheable the GPU's reads snoop.
    Command,
    /// Timelines and timestamps: both sides read and write words. Has a CPU pointer.
    Signal,
    /// Staging and host buffers: both sides read and write, the CPU's reads are cached and coherent. Has a
    /// CPU pointer.
    Shared,
}

/// A request for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryRequest {
    /// Length, a multiple of the layout's granule.
    pub len: u64,
    /// Its purpose.
    pub kind: MemoryKind,
    /// GPU address of the mapping.
    pub va: GpuVa,
}

/// A backend's name for a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MemoryId(pub u64);

/// Memory that has been allocated and mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Its name.
    pub id: MemoryId,
    /// CPU address, valid for the requested length until the memory is freed; `None` if it is not mapped.
    pub cpu: Option<NonNull<u8>>,
}

// SAFETY: the pointer is a plain address of a shared mapping; accesses through it are argued where they
// happen.
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` itself is immutable.
unsafe impl Sync for Memory {}

/// The work a channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Engine {
    /// Compute on subchannel 1 and the graphics runlist's copy engine on subchannel 4.
    Compute,
    /// Copies on subchannel 4.
    Copy,
}

/// A request for a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelRequest {
    /// The engine that executes its work.
    pub engine: Engine,
    /// Entries of the GPFIFO ring, a power of two.
    pub entries: u32,
    /// A free range of `Layout::channel_va` bytes in `Layout::low`, where that is not 0.
    pub va: Option<GpuVa>,
}

/// A backend's name for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChannelId(pub u64);

/// A channel that takes work: its memory and its name, without any bookkeeping. Its creator destroys it.
#[derive(Debug)]
pub(crate) struct RawChannel {
    /// Its name.
    pub id: ChannelId,
    /// The GPFIFO ring: `entries` 8-byte words, 8-byte aligned, valid until the channel is destroyed, as is
    /// USERD.
    pub ring: NonNull<u64>,
    /// USERD: 512 bytes of which `GP_PUT` at 0x8C is written.
    pub userd: NonNull<u8>,
    /// Work-submit token for the doorbell.
    pub token: u32,
}

// SAFETY: plain addresses of shared mappings; accesses through them are argued where they happen.
unsafe impl Send for RawChannel {}
// SAFETY: as above; `RawChannel` itself is immutable.
unsafe impl Sync for RawChannel {}

/// The driver's record of an error, undecoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawFault {
    /// Error notifier code (13 = SM exception, 31 = MMU fault, 32 = pushbuffer, ...).
    pub notifier: u32,
    /// SMs that recorded an exception.
    pub sms: Vec<SmRecord>,
    /// The MMU's record, where the driver gives it.
    pub mmu: Option<MmuError>,
    /// Lines of the kernel log about it, where they can be read.
    pub log: Vec<String>,
    /// The software GPU's account of it; empty on hardware.
    pub explanation: Vec<String>,
    /// The block that it stopped; `None` on hardware.
    pub stopped: Option<Box<Stopped>>,
}

/// A block as it stood when a fault stopped it. Its exception is not in it.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    /// Its SM.
    pub sm: u32,
    /// Its grid; handles are left open.
    pub grid: core_dump::Grid,
    /// The block with its warps.
    pub block: core_dump::Block,
}

/// An MMU fault record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmuError {
    /// Faulting address; hardware may give its page only.
    pub va: u64,
    /// Fault type number (0 PDE, 2 PTE, 6 write to read-only, ...), where known.
    pub kind: Option<u32>,
    /// Whether it was a store, or else a load, where known.
    pub store: Option<bool>,
}
