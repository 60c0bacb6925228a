//! Buffers: memory a program fills, names in launches, and reads back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::address::{Bytes, GpuVa};
use crate::backend::MemoryKind;
use crate::context::Context;
use crate::error::Error;
use crate::memory::Piece;
use crate::timeline::{LastReplay, Timeline, Uses};

struct Inner {
    context: Arc<Context>,
    /// `Some` until the buffer is dropped.
    piece: Option<Piece>,
    va: GpuVa,
    len: u64,
    kind: MemoryKind,
    uses: Uses,
    /// A number no other buffer of the process has, not 0.
    id: u64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.context.retire(vec![piece], Vec::new(), std::mem::take(&mut self.uses));
        }
    }
}

/// GPU memory. Cloning is cheap and names the same memory; it goes back when the last clone is gone and the last
/// submission that names it has completed. What a new buffer contains is not specified.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} at {})", Bytes::new(self.0.len), self.0.va)
    }
}

impl Buffer {
    pub(crate) fn new(context: &Arc<Context>, piece: Piece) -> Self {
        let (va, len, kind) = (piece.va(), piece.len(), piece.kind());
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let context = context.clone();
        Self(Arc::new(Inner { context, piece: Some(piece), va, len, kind, uses: Uses::default(), id }))
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no buffer is empty")]
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Where the GPU sees it: a multiple of 256, of 2 MiB from 8 MiB on.
    pub fn va(&self) -> GpuVa {
        self.0.va
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn kind(&self) -> MemoryKind {
        self.0.kind
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    pub(crate) fn mark(&self, timeline: &Arc<Timeline>, value: u64) {
        self.0.uses.mark(timeline, value);
    }

    pub(crate) fn mark_graph(&self, last: &LastReplay) {
        self.0.uses.mark_graph(last);
    }

    /// Refuses a range that is not inside the buffer.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        if offset.checked_add(len).is_none_or(|end| end > self.0.len) {
            let size = Bytes::new(self.0.len);
            return Err(Error::OutOfBounds { what: "buffer", offset, len, size });
        }
        Ok(())
    }

    fn piece(&self) -> Result<&Piece, Error> {
        // Taken only by `drop`.
        self.0.piece.as_ref().ok_or(Error::Discarded)
    }

    /// Writes `data` at `offset`, after the last submission that names the buffer has completed (waiting at most
    /// [`patience`](crate::DeviceOptions::patience)). Work that was recorded but not submitted is not waited for.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Timeout`] and [`Error::Fault`] of that submission.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        self.0.context.alive()?;
        self.0.uses.wait(&self.0.context, self.0.context.patience())?;
        self.0.context.upload(self.piece()?, offset, data)
    }

    /// Reads into `data` from `offset`, after the last submission that names the buffer has completed (waiting at most
    /// [`patience`](crate::DeviceOptions::patience)). Work that was recorded but not submitted is not waited for.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Timeout`] and [`Error::Fault`] of that submission.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        self.0.context.alive()?;
        self.0.uses.wait(&self.0.context, self.0.context.patience())?;
        self.0.context.download(self.piece()?, offset, data)
    }
}
