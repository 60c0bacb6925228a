//! One instruction that has issued, and what later ones still have to wait for.

use crate::lint::step::Step;
use crate::lint::unit::Queue;
use crate::registers::RegisterSet;

/// Hazard between two instructions: the consequence of a missing wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hazard {
    /// It reads a register before the earlier one has written it.
    ReadAfterWrite,
    /// It writes a register, and the result of the earlier one arrives later.
    WriteAfterWrite,
    /// It writes a register before the earlier one has read it.
    WriteAfterRead,
}

/// After so many cycles every result of fixed latency is there.
pub(super) const HORIZON: u8 = 40;

/// An issued instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Pending {
    /// The fewest cycles since issue, saturating at [`HORIZON`].
    pub cycles: u8,
    /// Its results are not waited for.
    writes: bool,
    /// That it has read its sources is not waited for.
    reads: bool,
    /// Barriers that signal its results, on every path.
    written_by: u8,
    /// Barriers that signal that it has read its sources, on every path.
    read_by: u8,
    /// The predicate of its guard still has its value of then, on every path.
    guard_holds: bool,
}

fn mask(barrier: Option<u8>) -> u8 {
    barrier.map_or(0, |barrier| 1 << barrier)
}

/// Whether two instructions pass one queue, so that the first one's accesses precede the second one's.
fn is_ordered(first: Option<Queue>, second: Option<Queue>) -> bool {
    first.is_some() && first == second
}

impl Pending {
    /// Accesses of an instruction that issues; `None` if no other has to wait for it.
    pub fn new(step: &Step) -> Option<Self> {
        let control = step.control();
        let pending = Self {
            cycles: control.cycles().min(HORIZON),
            writes: !step.writes.is_empty(),
            reads: !step.late_sources.is_empty(),
            written_by: mask(control.write_barrier),
            read_by: mask(control.read_barrier),
            guard_holds: !step.writes.contains(step.guard()),
        };
        (pending.writes || pending.reads).then_some(pending)
    }

    /// Returns the accesses still pending after the barriers of `waits` have been waited for.
    pub fn wait(mut self, waits: u8) -> Option<Self> {
        self.writes &= self.written_by & waits == 0;
        self.reads &= (self.read_by | self.written_by) & waits == 0;
        (self.writes || self.reads).then_some(self)
    }

    /// The registers over which `next` conflicts with `first`, the instruction pending.
    pub fn conflicts(
        &self,
        first: &Step,
        next: &Step,
    ) -> impl Iterator<Item = (Hazard, RegisterSet)> + use<> {
        let none = RegisterSet::EMPTY;
        let written = match (self.writes, self.reads) {
            (false, _) => none,
            (true, true) => first.writes,
            (true, false) => first.writes - first.early_results,
        };
        let overwritten =
            if is_ordered(first.results_queue, next.results_queue) { none } else { written & next.writes };
        let replaced = match is_ordered(first.replacement_queue, next.replacement_queue) {
            false if self.reads => first.late_sources & next.writes,
            _ => none,
        };
        let all = [
            (Hazard::ReadAfterWrite, written & next.reads),
            // One register is one conflict.
            (Hazard::WriteAfterWrite, overwritten - next.reads),
            (Hazard::WriteAfterRead, replaced - written),
        ];
        let excluded = self.guard_holds && first.is_opposite(next);
        all.into_iter().filter(move |(_, registers)| !excluded && !registers.is_empty())
    }

    /// Returns the accesses of `first` still pending when `next` has issued, at the issue of what follows.
    pub fn advance(self, first: &Step, next: &Step) -> Option<Self> {
        let mut pending = self.wait(next.waits())?;
        // A finding at one instruction is not repeated further on. Results of fixed latency end by
        // themselves.
        if first.is_variable && pending.conflicts(first, next).next().is_some() {
            return None;
        }
        let control = next.control();
        if is_ordered(first.results_queue, next.results_queue) {
            pending.written_by |= mask(control.write_barrier);
        }
        if is_ordered(first.sources_queue, next.sources_queue) {
            pending.read_by |= mask(control.write_barrier) | mask(control.read_barrier);
        }
        pending.guard_holds &= !next.writes.contains(first.guard());
        pending.cycles = pending.cycles.saturating_add(control.cycles()).min(HORIZON);
        (first.is_variable || pending.cycles < HORIZON).then_some(pending)
    }

    /// Two paths meet.
    pub fn join(self, other: Self) -> Self {
        Self {
            cycles: self.cycles.min(other.cycles),
            writes: self.writes | other.writes,
            reads: self.reads | other.reads,
            written_by: self.written_by & other.written_by,
            read_by: self.read_by & other.read_by,
            guard_holds: self.guard_holds & other.guard_holds,
        }
    }
}
