//! Moves data between the program and memory: by the CPU where it can reach the memory, else by the copy engine
//! through staging memory.

use std::sync::Arc;

use crate::address::GpuVa;
use crate::backend::{Engine, MemoryKind};
use crate::context::Context;
use crate::error::Error;
use crate::lane::Lane;
use crate::memory::Piece;
use crate::pushbuffer::Pushbuffer;

/// Bytes of one staging slot.
const SLOT: usize = 2 << 20;
/// Number of slots: the CPU fills one while the engine empties others.
const SLOTS: usize = 4;

/// A copy channel with staging memory.
#[derive(Debug)]
pub(crate) struct Transfer {
    lane: Lane,
    staging: Piece,
    words: Pushbuffer,
    /// Value after which each slot is free.
    busy: [u64; SLOTS],
}

impl Transfer {
    /// A channel of its own.
    pub fn new(context: &Arc<Context>) -> Result<Self, Error> {
        let staging = context.alloc((SLOT * SLOTS) as u64, MemoryKind::Shared, "staging")?;
        let lane = match Lane::new(context, Engine::Copy) {
            Ok(lane) => lane,
            Err(error) => {
                context.free(staging);
                return Err(error);
            }
        };
        let mut words = Pushbuffer::default();
        words.set_up_copy(&context.backend().info().classes);
        let busy = [lane.last(); SLOTS];
        Ok(Self { lane, staging, words, busy })
    }

    fn copy(&mut self, context: &Context, from: GpuVa, to: GpuVa, len: usize) -> Result<u64, Error> {
        self.words.copy(from, to, len as u64);
        let value = self.lane.submit(context, &self.words, &[], false)?;
        self.words.clear();
        Ok(value)
    }

    /// Copies `data` to `to` and waits until it is there.
    pub fn upload(&mut self, context: &Context, to: GpuVa, data: &[u8]) -> Result<(), Error> {
        for (i, part) in data.chunks(SLOT).enumerate() {
            let slot = i % SLOTS;
            self.lane.wait(context, self.busy[slot])?;
            let offset = (slot * SLOT) as u64;
            self.staging.write(offset, part)?;
            let to = GpuVa::inside(to.raw() + (i * SLOT) as u64);
            self.busy[slot] = self.copy(context, self.staging.at(offset), to, part.len())?;
        }
        self.lane.wait(context, self.lane.last())
    }

    /// Copies from `from` into `data`.
    pub fn download(&mut self, context: &Context, from: GpuVa, data: &mut [u8]) -> Result<(), Error> {
        let lens: Vec<usize> = data.chunks(SLOT).map(<[u8]>::len).collect();
        let mut started = 0;
        for (i, part) in data.chunks_mut(SLOT).enumerate() {
            while started < lens.len() && started < i + SLOTS {
                let slot = started % SLOTS;
                let from = GpuVa::inside(from.raw() + (started * SLOT) as u64);
                let to = self.staging.at((slot * SLOT) as u64);
                self.busy[slot] = self.copy(context, from, to, lens[started])?;
                started += 1;
            }
            let slot = i % SLOTS;
            self.lane.wait(context, self.busy[slot])?;
            self.staging.read((slot * SLOT) as u64, part)?;
        }
        Ok(())
    }

    /// Removes the channel and frees the staging memory.
    pub fn close(self, context: &Context) {
        self.lane.close(context);
        context.free(self.staging);
    }
}

impl Context {
    fn by_cpu(&self, piece: &Piece) -> bool {
        piece.is_mapped() && !self.options.staged_copies
    }

    /// Writes into memory that no submission uses.
    pub fn upload(self: &Arc<Self>, piece: &Piece, offset: u64, data: &[u8]) -> Result<(), Error> {
        if self.by_cpu(piece) {
            return piece.write(offset, data);
        }
        self.with_transfer(|t| t.upload(self, piece.at(offset), data))
    }

    /// Reads memory that no submission uses.
    pub fn download(self: &Arc<Self>, piece: &Piece, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        if self.by_cpu(piece) {
            return piece.read(offset, data);
        }
        self.with_transfer(|t| t.download(self, piece.at(offset), data))
    }
}
