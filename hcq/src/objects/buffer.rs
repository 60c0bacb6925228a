//! Buffers: memory a program fills, names in launches, and reads back.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::address::{Bytes, GpuVa};
use crate::backend::MemoryKind;
use crate::error::{Error, MemoryError};
use crate::memory::manager::Piece;
use crate::memory::plain::Plain;
use crate::memory::range_lock::{Access, RangeLock};
use crate::objects::shared::Shared;
use crate::submission::limbo::Keep;
use crate::submission::timeline::Timeline;
use crate::submission::uses::{Replays, Uses};
use zerocopy::IntoBytes;

struct Inner {
    shared: Arc<Shared>,
    memory: Arc<Piece>,
    uses: Uses,
    /// Held while the CPU copies, so that what one thread writes is read by others whole or not at all.
    access: RangeLock,
    /// A number no other buffer of the process has, not 0.
    id: u64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.shared.core.is_open_here() {
            return;
        }
        // Memory that nothing uses is freed right here, by its own drop.
        if !self.uses.have_ended() {
            let uses = std::mem::take(&mut self.uses);
            self.shared.limbo.retire(uses, [self.memory.clone() as Keep]);
        }
    }
}

/// GPU memory. Cloning is cheap and names the same memory; it goes back when the last clone is gone and the
/// last submission that names it has completed. The content of a new buffer is not specified.
///
/// Threads may [`read`](Self::read) and [`write`](Self::write) a buffer at the same time: each call is one
/// whole access to all others of this program, clones of the buffer included, and calls for different bytes
/// run beside each other. Work of the GPU is not kept
/// away: a call waits for what was submitted before it, and bytes that work submitted meanwhile changes are
/// read before or after the change, in aligned words of 8 bytes.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

/// A place in a buffer, which [`Buffer::at`] names.
#[derive(Clone, Copy, Debug)]
pub struct BufferAt<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) offset: u64,
}

impl<'a> From<&'a Buffer> for BufferAt<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        buffer.at(0)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} at {})", Bytes(self.len()), self.va())
    }
}

impl Buffer {
    pub(crate) fn new(shared: &Arc<Shared>, memory: Piece) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (shared, memory) = (shared.clone(), Arc::new(memory));
        Self(Arc::new(Inner { shared, memory, uses: Uses::default(), access: RangeLock::default(), id }))
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no buffer is empty")]
    pub fn len(&self) -> u64 {
        self.0.memory.len()
    }

    /// The GPU address: a multiple of 256, of 2 MiB from 8 MiB on.
    pub fn va(&self) -> GpuVa {
        self.0.memory.va()
    }

    /// The CPU's address of the memory, where it is the CPU's ([`Device::alloc_host`](crate::Device::alloc_host));
    /// `None` for another buffer, and in a fork.
    ///
    /// Valid for reads and writes of [`len`](Self::len) bytes as long as a clone of the buffer lives. No call orders
    /// what is read and written through it: the program waits for the submissions that use the buffer before
    /// ([`wait`](Self::wait)), makes them after, and keeps its threads' [`read`](Self::read) and
    /// [`write`](Self::write) away meanwhile. The checks of the software ga10b do not see it.
    pub fn host_pointer(&self) -> Option<NonNull<u8>> {
        self.0.memory.host_pointer()
    }

    /// Refuses a process that was forked from the buffer's. Waits for nothing.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn here(&self) -> Result<(), Error> {
        self.0.shared.core.here()
    }

    /// Names it in what the checks of the software ga10b find; elsewhere the name is dropped.
    pub fn set_name(&self, name: &str) {
        self.0.shared.core.observer().named(self.va(), name);
    }

    /// The place `offset` bytes in, as an argument of a launch.
    pub fn at(&self, offset: u64) -> BufferAt<'_> {
        BufferAt { buffer: self, offset }
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn kind(&self) -> MemoryKind {
        self.0.memory.kind()
    }

    /// The address `offset` bytes in; the caller stays within the length.
    pub(crate) fn va_at(&self, offset: u64) -> GpuVa {
        self.0.memory.at(offset)
    }

    /// Refuses buffers of another device than `shared`.
    pub(crate) fn check_device<'a>(
        shared: &Arc<Shared>,
        buffers: impl IntoIterator<Item = &'a Self>,
    ) -> Result<(), Error> {
        match buffers.into_iter().all(|b| Arc::ptr_eq(&b.0.shared, shared)) {
            true => Ok(()),
            false => Err(Error::ForeignDevice { what: "buffer" }),
        }
    }

    pub(crate) fn mark(&self, timeline: &Arc<Timeline>, value: u64) {
        self.0.uses.mark(timeline, value);
    }

    pub(crate) fn mark_graph(&self, replays: &Arc<Replays>) {
        self.0.uses.mark_graph(replays);
    }

    pub(crate) fn unmark_graph(&self, replays: &Arc<Replays>) {
        self.0.uses.unmark_graph(replays);
    }

    /// Refuses a range that is not inside the buffer.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            let size = self.len();
            return Err(Error::Memory(MemoryError::OutOfBounds { what: "buffer", offset, len, size }));
        }
        Ok(())
    }

    /// Refuses copies of `len` bytes between ranges that are not inside buffers of the device, or overlap.
    pub(crate) fn check_copy(
        shared: &Arc<Shared>,
        (src, src_off): (&Self, u64),
        (dst, dst_off): (&Self, u64),
        len: u64,
    ) -> Result<(), Error> {
        Self::check_device(shared, [src, dst])?;
        src.check(src_off, len)?;
        dst.check(dst_off, len)?;
        // Clones share the memory; two buffers never do.
        match src.id() == dst.id() && src_off.abs_diff(dst_off) < len {
            true => Err(Error::Memory(MemoryError::Overlap { from: src_off, to: dst_off, len })),
            false => Ok(()),
        }
    }

    /// Waits until the last submissions that name the buffer have completed, at most `timeout`. After that, memory of
    /// [`host_pointer`](Self::host_pointer) may be touched. Work that was recorded but not submitted is not waited
    /// for.
    ///
    /// # Errors
    /// [`QueueError::Timeout`](crate::QueueError::Timeout) and [`Error::Fault`] of those submissions;
    /// [`Error::Lost`]; [`Error::Forked`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.0.shared.core.alive()?;
        self.0.uses.wait(timeout)
    }

    /// Waits until the CPU may touch `len` bytes at `offset`.
    fn claim(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(offset, len)?;
        self.wait(self.0.shared.core.patience())
    }

    /// Writes `data` at `offset`, after the last submission that names the buffer has completed (waiting at
    /// most [`patience`](crate::DeviceOptions::patience)). Work that was recorded but not submitted is not
    /// waited for.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]; [`QueueError::Timeout`](crate::QueueError::Timeout) and [`Error::Fault`]
    /// of that submission; [`Error::Lost`]; [`Error::Forked`].
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.claim(offset, data.len() as u64)?;
        let _whole = self.0.access.take(offset, data.len() as u64, Access::Write);
        self.0.shared.upload(&self.0.memory, offset, data)
    }

    /// Reads into `data` from `offset`, after the last submission that names the buffer has completed
    /// (waiting at most [`patience`](crate::DeviceOptions::patience)). Work that was recorded but not
    /// submitted is not waited for.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`]; [`QueueError::Timeout`](crate::QueueError::Timeout) and [`Error::Fault`]
    /// of that submission; [`Error::Lost`]; [`Error::Forked`].
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.claim(offset, data.len() as u64)?;
        let _whole = self.0.access.take(offset, data.len() as u64, Access::Read);
        self.0.shared.download(&self.0.memory, offset, data)
    }

    /// Writes numbers from `offset` bytes in on, as [`write`](Self::write) writes bytes. Literals need their
    /// type: `[1.0_f32; 8]`.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_slice<T: Plain>(&self, offset: u64, values: &[T]) -> Result<(), Error> {
        self.write(offset, values.as_bytes())
    }

    /// Fills `values` from `offset` bytes in on, as [`read`](Self::read) reads bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_slice<T: Plain>(&self, offset: u64, values: &mut [T]) -> Result<(), Error> {
        self.read(offset, values.as_mut_bytes())
    }

    /// Reads `count` numbers from `offset` bytes in on, as [`read`](Self::read) reads bytes.
    ///
    /// ```
    /// # use hcq::{Device, Selector};
    /// # let device = Device::open(Selector::Sim)?;
    /// let buffer = device.alloc(16)?;
    /// buffer.write_slice(0, &[1.0_f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(buffer.read_vec::<f32>(8, 2)?, [3.0, 4.0]);
    /// # Ok::<(), hcq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_vec<T: Plain>(&self, offset: u64, count: usize) -> Result<Vec<T>, Error> {
        // Refused before it is allocated.
        let len = count.saturating_mul(size_of::<T>());
        self.check(offset, len as u64)?;
        let mut values = vec![T::new_zeroed(); count];
        self.read_slice(offset, &mut values)?;
        Ok(values)
    }
}
