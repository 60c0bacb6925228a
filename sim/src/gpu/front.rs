//! Reports of a channel's front end to the ledger, if there is one: the order that its methods establish, and
//! the accesses of its engines.

use crate::gpu::memory::GpuMemory;
use crate::gpu::semaphore::Write;
use crate::order::known::Known;
use crate::order::ledger::{Ledger, Visible};
use crate::order::work::{Work, WorkId};
use std::sync::Arc;

/// A channel's line in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front<'a> {
    /// The ledger of the machine.
    pub(crate) ledger: &'a Arc<Ledger>,
    /// The channel's line in it.
    pub(crate) line: u32,
}

impl Front<'_> {
    /// The ring entry before `next` is fetched.
    pub(crate) fn fetch(&self, token: u32, next: u32) {
        self.ledger.state().fetch(self.line, token, next);
    }

    /// The channel has waited for its engines; `flushes`: a system membar follows.
    pub(crate) fn wait_idle(&self, flushes: bool) {
        let mut state = self.ledger.state();
        state.wait_idle(self.line);
        if flushes {
            state.flush(self.line);
        }
    }

    /// The level-1 caches are emptied.
    pub(crate) fn empty_caches(&self) {
        self.ledger.state().empty_caches();
    }

    /// A semaphore is about to be written, after `known`; by default after all that the channel has waited
    /// for.
    pub(crate) fn release(&self, memory: &GpuMemory<'_>, write: &Write, known: Option<Known>) {
        let Some(at) = memory.host(write.va) else { return };
        let value = write.result(memory);
        let mut state = self.ledger.state();
        let known = known.unwrap_or_else(|| state.front(self.line));
        state.publish(at, value, known);
    }

    /// The condition of an acquire holds.
    pub(crate) fn acquired(&self, memory: &GpuMemory<'_>, va: u64) {
        if let Some(at) = memory.host(va) {
            self.ledger.state().acquire(self.line, at);
        }
    }

    /// A transfer begins: after all of the channel's work, if it is not `pipelined`.
    pub(crate) fn begin_transfer(&self, work: Work, pipelined: bool) -> WorkId {
        let mut state = self.ledger.state();
        let known = if pipelined { state.front(self.line) } else { state.known_of_transfers(self.line) };
        let id = state.begin(self.line, work, known);
        state.transfers(self.line, id);
        id
    }

    /// A transfer reads or writes bytes.
    pub(crate) fn transfers(&self, memory: &GpuMemory<'_>, work: WorkId, va: u64, len: u64, writes: bool) {
        let mut done = 0;
        while done < len {
            let Some((host, rest)) = memory.host_range(va.wrapping_add(done)) else { return };
            let part = rest.min(len - done);
            self.ledger.unit_access(work, host, part, writes, va.wrapping_add(done));
            done += part;
        }
    }

    /// Work has ended, and its writes are visible so far.
    pub(crate) fn end(&self, work: WorkId, visible: Visible) {
        self.ledger.state().end(work, visible);
    }

    /// A transfer's own semaphore: published with the transfer.
    pub(crate) fn known_after(&self, work: WorkId) -> Known {
        self.ledger.state().known_after(work)
    }
}
