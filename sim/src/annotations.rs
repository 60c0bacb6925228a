//! The program's annotations, from which the checks learn the content of its memory, and its own use of it. A
//! program that says nothing is checked by what its driver calls and its commands say.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::files::Object;
use crate::findings::Checks;
use crate::gpu::memory::GpuMemory;
use crate::order::ledger::Ledger;
use crate::pieces::note::Note;
use crate::sim::Sim;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

/// Takes what a program says of one address space, as valgrind takes client requests. Addresses are the GPU's.
/// Meaningless annotations are dropped, as is everything in a fork of the program and without a check.
#[derive(Debug)]
pub struct Annotations {
    sim: Arc<Sim>,
    /// The program closes it when it likes.
    space: Weak<AddressSpace>,
}

impl Sim {
    /// The receiver of the program's annotations of an address space; `None` for a descriptor that is none.
    pub fn annotations(self: &Arc<Self>, address_space: BorrowedFd<'_>) -> Option<Annotations> {
        let Ok(Some(Object::AddressSpace(space))) = self.machine.object(address_space) else { return None };
        Some(Annotations { sim: Arc::clone(self), space: Arc::downgrade(&space) })
    }
}

impl Annotations {
    fn space(&self) -> Option<Arc<AddressSpace>> {
        // In a fork a lock may be held by a thread that is not there.
        self.sim.is_here().then(|| self.space.upgrade()).flatten()
    }

    /// The ledger, and its address of what lies at `va`.
    fn in_ledger(&self, va: u64) -> Option<(&Ledger, u64)> {
        let ledger = self.sim.machine.gpu.units.ledger.as_deref()?;
        Some((ledger, self.space()?.host_address(va)?))
    }

    /// Something lies in the address space, or no longer.
    pub fn note(&self, note: &Note<'_>) {
        if !self.sim.checks().is_empty()
            && let Some(space) = self.space()
        {
            let mapping = match note {
                Note::Piece(piece) => space.find_mapping(piece.va).map(|(start, len, _)| start..start + len),
                _ => None,
            };
            space.tables().pieces().take(note, mapping);
        }
    }

    /// The program has read `value` from the semaphore at `va`, and goes on as if all the work that wrote it had
    /// ended.
    pub fn observed(&self, va: u64, value: u64) {
        if let Some((ledger, at)) = self.in_ledger(va) {
            ledger.state().observe(at, value);
        }
    }

    /// The program is about to read, or to write, `len` bytes.
    pub fn accesses(&self, va: u64, len: u64, writes: bool) {
        if let Some((ledger, at)) = self.in_ledger(va) {
            ledger.program_access(at, len, writes);
        }
    }

    /// The program is about to write `data` at `va`: bytes that hold the pattern of fresh memory afterwards are no
    /// longer fresh.
    pub fn stores(&self, va: u64, data: &[u8]) {
        if self.sim.checks().contains(Checks::INIT)
            && let Some(space) = self.space()
        {
            let tables = space.tables();
            let _memory_stays = tables.dram().hold();
            let memory = GpuMemory::new(tables);
            memory.seen().store(va, data, |word| memory.word_at(word));
        }
    }

    /// The program is about to publish the entries before `put` in the ring of the channel that `token` names.
    pub fn submits(&self, token: u32, put: u32) {
        if let Some(ledger) = &self.sim.machine.gpu.units.ledger
            && self.sim.is_here()
        {
            ledger.state().submit(token, put);
        }
    }
}
