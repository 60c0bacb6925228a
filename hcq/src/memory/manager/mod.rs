//! GPU memory: large pieces mapped one by one and kept for a while when they are freed, small ones cut from
//! larger pieces.
//!
//! A [`Piece`] owns its memory and gives it back when it is dropped. The owner that drops one has made sure
//! that no work of the GPU uses it any more. In a fork of the process that allocated it, a piece is out of
//! reach, and stays the parent's when it is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::address::{Bytes, GpuVa};
use crate::backend::{Backend, Memory, MemoryKind, MemoryRequest};
use crate::error::{DriverError, Error, MemoryError};
use crate::memory::kept::Kept;
use crate::memory::limit;
use crate::memory::range_set::RangeSet;
use crate::memory::shared_bytes;
use crate::memory::va_space::{Place, Reach, VaSpace};
use crate::observer::Observer;
use crate::process::Process;
use crate::sync::lock;

/// Pieces up to this size are cut from chunks.
const SMALL: u64 = 256 << 10;
/// Size of a chunk.
const CHUNK: u64 = 2 << 20;
/// Unit and alignment of a piece of a chunk; what a QMD and a constant bank need.
const UNIT: u64 = 256;

/// A range of the address space that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// First address.
    pub va: GpuVa,
    /// Length asked for, in bytes.
    pub len: u64,
    /// The kind of object: "buffer", "program", "command ring", ...
    pub what: &'static str,
}

/// A piece of GPU-visible memory; freed when it is dropped.
pub(crate) struct Piece {
    va: GpuVa,
    len: u64,
    kind: MemoryKind,
    cpu: Option<NonNull<u8>>,
    home: Home,
    manager: Arc<MemoryManager>,
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} at {})", Bytes(self.len), self.va)
    }
}

// SAFETY: the pointer is the address of a shared mapping; every access through it is atomic.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

enum Home {
    /// A mapping of its own, at this place.
    Own(Memory, Place),
    /// Part of a chunk.
    Chunk,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.manager.process.is_current() {
            return;
        }
        if let Err(error) = self.manager.free(self) {
            tracing::warn!(va = %self.va, %error, "memory could not be freed");
        }
    }
}

impl Piece {
    /// The GPU address.
    pub fn va(&self) -> GpuVa {
        self.va
    }

    /// The address `offset` bytes in; the caller stays within the length.
    pub fn at(&self, offset: u64) -> GpuVa {
        debug_assert!(offset <= self.len);
        GpuVa::inside(self.va.raw() + offset)
    }

    /// Length asked for, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Its kind.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The memory tables it is listed in.
    pub fn manager(&self) -> &Arc<MemoryManager> {
        &self.manager
    }

    /// Whether the CPU can reach it.
    pub fn is_mapped(&self) -> bool {
        self.cpu.is_some()
    }

    /// Its place in the process, of memory that is the CPU's.
    pub fn host_pointer(&self) -> Option<NonNull<u8>> {
        self.cpu.filter(|_| self.kind == MemoryKind::Shared && self.manager.process.is_current())
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Memory(MemoryError::OutOfBounds {
                what: "memory",
                offset,
                len,
                size: self.len,
            }));
        }
        Ok(())
    }

    fn pointer(&self, offset: u64, len: u64) -> Result<NonNull<u8>, Error> {
        // A fork has no mapping there.
        self.manager.process.check()?;
        self.check(offset, len)?;
        let base = self.cpu.ok_or(Error::Memory(MemoryError::NotMapped { va: self.va }))?;
        // SAFETY: `offset` is inside the mapping, which is `self.len` bytes long.
        Ok(unsafe { base.add(offset as usize) })
    }

    /// Copies into the memory. It has a CPU mapping unless it is of the device kind. Threads that copy to or
    /// from the same bytes at once order themselves; the GPU may use them meanwhile.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let to = self.pointer(offset, data.len() as u64)?;
        // SAFETY: the destination is mapped for `data.len()` bytes as long as `self` exists, and what else in
        // the program reaches it is atomic and ordered by the caller.
        unsafe { shared_bytes::write(to, data) };
        Ok(())
    }

    /// Copies words into the memory, in the byte order of the GPU.
    pub fn write_words(&self, offset: u64, words: &[u32]) -> Result<(), Error> {
        if cfg!(target_endian = "little") {
            self.write(offset, zerocopy::IntoBytes::as_bytes(words))
        } else {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.write(offset, &bytes)
        }
    }

    /// Copies out of the memory; as [`write`](Self::write).
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let from = self.pointer(offset, data.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { shared_bytes::read(from, data) };
        Ok(())
    }

    /// The 64-bit word at `offset`, a multiple of 8, which the GPU may write at any time.
    pub fn atomic(&self, offset: u64) -> Result<&AtomicU64, Error> {
        debug_assert!(offset.is_multiple_of(8));
        let at = self.pointer(offset, 8)?;
        // SAFETY: mapped and aligned (pieces start on multiples of 256) as long as `self` exists, since
        // dropping it is what frees it; atomics allow writers outside the program.
        Ok(unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) })
    }
}

struct Chunk {
    memory: Memory,
    kind: MemoryKind,
    place: Place,
    free: RangeSet,
}

impl Chunk {
    fn is_empty(&self) -> bool {
        self.free.free() == CHUNK
    }
}

struct State {
    va: VaSpace,
    chunks: BTreeMap<u64, Chunk>,
    mappings: BTreeMap<u64, Mapping>,
    kept: Kept<MemoryKind, (Memory, Place)>,
}

/// Addresses without memory; given back on drop.
pub(crate) struct Reservation {
    place: Place,
    manager: Arc<MemoryManager>,
}

impl Reservation {
    /// First address.
    pub fn va(&self) -> GpuVa {
        self.place.va
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.manager.process.is_current() {
            return;
        }
        let mut state = self.manager.state();
        state.mappings.remove(&self.place.va.raw());
        state.va.free(self.place.range.clone());
    }
}

/// All memory of a device.
pub(crate) struct MemoryManager {
    backend: Arc<dyn Backend>,
    /// The one that allocates: in a fork of it, locks may be held by threads that do not exist.
    process: Process,
    observer: Arc<dyn Observer>,
    /// Unused bytes after each piece of a chunk.
    gap: u64,
    state: Mutex<State>,
}

fn reach(kind: MemoryKind) -> Reach {
    match kind {
        MemoryKind::Device => Reach::Any,
        MemoryKind::Command | MemoryKind::Signal | MemoryKind::Shared => Reach::Low,
    }
}

impl MemoryManager {
    /// Nothing allocated yet. Keeps at most `keep` bytes of what is freed.
    pub fn new(
        backend: Arc<dyn Backend>,
        observer: Arc<dyn Observer>,
        reserve_windows: bool,
        keep: u64,
    ) -> Arc<Self> {
        let spacing = observer.spacing();
        let va = VaSpace::new(backend.layout(), reserve_windows, spacing.mappings);
        let (chunks, mappings, kept) = (BTreeMap::new(), BTreeMap::new(), Kept::new(keep));
        let state = Mutex::new(State { va, chunks, mappings, kept });
        Arc::new(Self { backend, process: Process::current(), observer, gap: spacing.pieces, state })
    }

    /// Bytes of a chunk that a piece of `len` bytes takes.
    fn units(&self, len: u64) -> u64 {
        len.next_multiple_of(UNIT) + self.gap
    }

    /// Takes addresses; those that are held back and of kept memory too if there are no others.
    fn place(&self, take: impl Fn(&mut VaSpace) -> Result<Place, Error>) -> Result<Place, Error> {
        let place = take(&mut self.state().va);
        let waiting = if place.is_err() { self.observer.let_go() } else { Vec::new() };
        if place.is_ok() || (waiting.is_empty() && self.kept() == 0) {
            return place;
        }
        self.recycle_all(waiting)?;
        self.give_back_kept()?;
        take(&mut self.state().va)
    }

    /// Freed memory that is kept for the next allocation of its size.
    pub fn kept(&self) -> u64 {
        self.state().kept.bytes()
    }

    /// Gives the memory that is kept back to the driver.
    pub fn give_back_kept(&self) -> Result<(), Error> {
        let all = self.state().kept.take_all();
        self.give_back(all)
    }

    /// Gives memory back to the driver, and says what went wrong first.
    fn give_back(&self, all: Vec<(Memory, Place)>) -> Result<(), Error> {
        let one = |(memory, place): (Memory, Place)| {
            // The addresses become free only when nothing is mapped there any more.
            self.backend.free(memory.id)?;
            self.release(place.range, 0)
        };
        all.into_iter().map(one).fold(Ok(()), Result::and)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Allocates `len` bytes, at least one, aligned to 256 bytes.
    pub fn alloc(self: &Arc<Self>, len: u64, kind: MemoryKind, what: &'static str) -> Result<Piece, Error> {
        if len == 0 {
            return Err(Error::Memory(MemoryError::EmptyBuffer));
        }
        if len <= SMALL {
            // The driver was asked for memory that many pieces share.
            return self.alloc_small(len, kind, what).map_err(|error| self.explain(error, CHUNK, kind, what));
        }
        let kept = self.state().kept.take(kind, len);
        if let Some((memory, place)) = kept {
            return Ok(self.own(memory, place, len, kind, what));
        }
        let place = self.place(|va| va.alloc(len, reach(kind)));
        let piece = place.and_then(|place| self.map(place, len, kind, what));
        piece.map_err(|error| self.explain(error, len, kind, what))
    }

    /// Allocates `len` bytes of device memory at `va`.
    pub fn alloc_at(self: &Arc<Self>, va: GpuVa, len: u64, what: &'static str) -> Result<Piece, Error> {
        if len == 0 {
            return Err(Error::Memory(MemoryError::EmptyBuffer));
        }
        let place = self.place(|free| free.alloc_at(va, len))?;
        let kind = MemoryKind::Device;
        self.map(place, len, kind, what).map_err(|error| self.explain(error, len, kind, what))
    }

    /// Takes addresses without memory.
    pub fn reserve(self: &Arc<Self>, len: u64, what: &'static str) -> Result<Reservation, Error> {
        let place = self.place(|va| va.alloc(len, Reach::Low))?;
        let mut state = self.state();
        state.mappings.insert(place.va.raw(), Mapping { va: place.va, len, what });
        Ok(Reservation { place, manager: self.clone() })
    }

    /// Has the driver map memory at `place`, which is free again after an error.
    fn allocate(&self, place: &Place, kind: MemoryKind) -> Result<Memory, Error> {
        let request = MemoryRequest { len: place.len, kind, va: place.va };
        let memory = self.backend.allocate(&request).or_else(|error| {
            if !error.is_shortage() || self.kept() == 0 {
                return Err(error);
            }
            self.give_back_kept()?;
            self.backend.allocate(&request)
        });
        memory.inspect_err(|_| self.state().va.free(place.range.clone()))
    }

    /// The error for a shortage of memory, with the sizes that are left; other errors as they are.
    fn explain(&self, error: Error, len: u64, kind: MemoryKind, what: &'static str) -> Error {
        let (info, len) = (self.backend.info(), len);
        let known = info.unified_memory || !matches!(kind, MemoryKind::Signal | MemoryKind::Shared);
        let total = known.then_some(info.memory);
        // There may be memory where there are no addresses.
        let fits = total.is_none_or(|total| len <= total);
        if !error.is_shortage() || matches!(error, Error::Memory(MemoryError::OutOfAddresses { .. })) && fits
        {
            return error;
        }
        let has_errno = matches!(error, Error::Driver(DriverError::Ioctl { .. } | DriverError::Mmap { .. }));
        if let (true, Some(limit::Reached { limit, used })) = (has_errno && fits, limit::reached_by(len)) {
            let source = Box::new(error);
            return Error::Memory(MemoryError::ProcessLimit { what, len, limit, used, source });
        }
        if matches!(error, Error::Driver(DriverError::Mmap { .. })) {
            // The driver had the memory: its sizes are not the reason.
            return error;
        }
        let free = if known { self.backend.free_memory().ok() } else { None };
        Error::Memory(MemoryError::OutOfMemory { what, len, free, total, source: Box::new(error) })
    }

    fn map(
        self: &Arc<Self>,
        place: Place,
        len: u64,
        kind: MemoryKind,
        what: &'static str,
    ) -> Result<Piece, Error> {
        let memory = self.allocate(&place, kind)?;
        Ok(self.own(memory, place, len, kind, what))
    }

    /// A piece that has the memory mapped at `place` for itself.
    fn own(
        self: &Arc<Self>,
        memory: Memory,
        place: Place,
        len: u64,
        kind: MemoryKind,
        what: &'static str,
    ) -> Piece {
        let va = place.va;
        self.state().mappings.insert(va.raw(), Mapping { va, len, what });
        self.observer.allocated(va, len, what);
        Piece { va, len, kind, cpu: memory.cpu, home: Home::Own(memory, place), manager: self.clone() }
    }

    fn alloc_small(self: &Arc<Self>, len: u64, kind: MemoryKind, what: &'static str) -> Result<Piece, Error> {
        loop {
            let mut state = self.state();
            let State { chunks, mappings, .. } = &mut *state;
            let units = self.units(len);
            let found = chunks
                .values_mut()
                .filter(|c| c.kind == kind)
                .find_map(|c| Some((c.free.take(units, UNIT)?, c)));
            if let Some((offset, chunk)) = found {
                let va = GpuVa::inside(chunk.place.va.raw() + offset);
                // SAFETY: `offset` is inside the chunk's mapping.
                let cpu = chunk.memory.cpu.map(|base| unsafe { base.add(offset as usize) });
                mappings.insert(va.raw(), Mapping { va, len, what });
                drop(state);
                self.observer.allocated(va, len, what);
                return Ok(Piece { va, len, kind, cpu, home: Home::Chunk, manager: self.clone() });
            }
            drop(state);
            let place = self.place(|va| va.alloc(CHUNK, reach(kind)))?;
            let memory = self.allocate(&place, kind)?;
            let chunk = Chunk { memory, kind, free: RangeSet::new(0..CHUNK), place };
            self.state().chunks.insert(chunk.place.va.raw(), chunk);
        }
    }

    /// Frees a piece that is being dropped.
    fn free(&self, piece: &Piece) -> Result<(), Error> {
        self.observer.freed(piece.va);
        self.state().mappings.remove(&piece.va.raw());
        match &piece.home {
            Home::Own(memory, place) => {
                let (memory, len) = ((*memory, place.clone()), place.len);
                let gone = self.state().kept.put(piece.kind, len, memory);
                self.give_back(gone)
            }
            Home::Chunk => {
                let (start, units) = (piece.va.raw(), self.units(piece.len));
                self.release(start..start + units, units)
            }
        }
    }

    /// Nothing uses these addresses any more, nor the `memory` bytes that lie there: they are free when the
    /// observer does not hold them back.
    fn release(&self, addresses: Range<u64>, memory: u64) -> Result<(), Error> {
        self.recycle_all(self.observer.hold_back(addresses, memory))
    }

    /// Makes all these addresses usable again, and says what went wrong first.
    fn recycle_all(&self, freed: Vec<Range<u64>>) -> Result<(), Error> {
        freed.into_iter().map(|freed| self.recycle(freed)).fold(Ok(()), Result::and)
    }

    /// Makes addresses usable again: those of a mapping that is gone, or a part of a chunk.
    fn recycle(&self, freed: Range<u64>) -> Result<(), Error> {
        let mut state = self.state();
        let before = state.chunks.range_mut(..=freed.start).next_back();
        let Some((&start, chunk)) = before.filter(|(start, _)| freed.start - **start < CHUNK) else {
            state.va.free(freed);
            return Ok(());
        };
        chunk.free.put(freed.start - start..freed.end - start);
        let kind = chunk.kind;
        // One empty chunk of a kind is kept, so that a single buffer that comes and goes costs no driver call.
        let spare = chunk.is_empty()
            && state.chunks.iter().any(|(s, c)| *s != start && c.kind == kind && c.is_empty());
        let Some(chunk) = (if spare { state.chunks.remove(&start) } else { None }) else { return Ok(()) };
        drop(state);
        self.backend.free(chunk.memory.id)?;
        self.state().va.free(chunk.place.range);
        Ok(())
    }

    /// The process that allocates.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Everything that is allocated, by address; nothing in a fork.
    pub fn mappings(&self) -> Vec<Mapping> {
        if !self.process.is_current() {
            return Vec::new();
        }
        self.state().mappings.values().cloned().collect()
    }

    /// The mappings before and after `va`; the first contains it or ends before it.
    pub fn around(&self, va: u64) -> (Option<Mapping>, Option<Mapping>) {
        let state = self.state();
        let before = state.mappings.range(..=va).next_back().map(|(_, m)| m.clone());
        let after = va.checked_add(1).and_then(|n| state.mappings.range(n..).next().map(|(_, m)| m.clone()));
        (before, after)
    }
}

#[cfg(test)]
mod tests;
