//! Instructions under way when another one issues, over all paths.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::lint::flow::Flow;
use crate::lint::pending::{Hazard, Pending};
use crate::registers::RegisterSet;

/// Issued instructions, by their index.
type Underway = BTreeMap<usize, Pending>;

/// One instruction that has to wait for another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conflict {
    /// The earlier instruction.
    pub first: usize,
    /// The later one.
    pub next: usize,
    pub hazard: Hazard,
    /// The registers that both name.
    pub registers: RegisterSet,
    /// The fewest cycles between their issue, saturating.
    pub cycles: u8,
}

/// All pairs of instructions of which the later one has to wait for the earlier one, where no awaited barrier
/// signals its end.
pub(super) fn conflicts(flow: &Flow) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (next, state) in before_each(flow).iter().enumerate() {
        let Some(step) = &flow.nodes[next].step else { continue };
        for (&first, pending) in state {
            let Some(earlier) = &flow.nodes[first].step else { continue };
            let Some(pending) = pending.wait(step.waits()) else { continue };
            for (hazard, registers) in pending.conflicts(earlier, step) {
                found.push(Conflict { first, next, hazard, registers, cycles: pending.cycles });
            }
        }
    }
    found
}

/// Returns the instructions under way when each instruction issues.
fn before_each(flow: &Flow) -> Vec<Underway> {
    let mut before = vec![Underway::new(); flow.nodes.len()];
    let mut open: VecDeque<usize> = (0..flow.nodes.len()).collect();
    let mut queued: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(at) = open.pop_front() {
        queued.remove(&at);
        let after = after(flow, &before[at], at);
        for &next in &flow.nodes[at].next {
            if join(&mut before[next], &after) && queued.insert(next) {
                open.push_back(next);
            }
        }
    }
    before
}

/// The state after `at` has issued, at the issue of what follows.
fn after(flow: &Flow, before: &Underway, at: usize) -> Underway {
    let Some(step) = &flow.nodes[at].step else { return Underway::new() };
    let advanced = before.iter().filter_map(|(&first, pending)| {
        let earlier = flow.nodes[first].step.as_ref()?;
        Some((first, pending.advance(earlier, step)?))
    });
    let mut after: Underway = advanced.collect();
    after.remove(&at);
    after.extend(Pending::new(step).map(|pending| (at, pending)));
    after
}

/// Adds the instructions under way on another path; returns whether that changed anything.
fn join(known: &mut Underway, other: &Underway) -> bool {
    let mut changed = false;
    for (&first, &pending) in other {
        match known.entry(first) {
            Entry::Vacant(entry) => {
                entry.insert(pending);
                changed = true;
            }
            Entry::Occupied(mut entry) => {
                let joined = entry.get().join(pending);
                changed |= joined != *entry.get();
                entry.insert(joined);
            }
        }
    }
    changed
}

/// The path from `conflict.first` to `conflict.next` with the fewest cycles on which the conflict stands: the
/// indices of the instructions, both ends included.
pub(super) fn path(flow: &Flow, conflict: &Conflict) -> Vec<usize> {
    let Some(first) = flow.nodes[conflict.first].step else { return Vec::new() };
    let mut came_from: BTreeMap<(usize, Pending), Option<(usize, Pending)>> = BTreeMap::new();
    let mut open: BTreeSet<(u8, usize, Pending)> = BTreeSet::new();
    if let Some(pending) = Pending::new(&first) {
        for &next in &flow.nodes[conflict.first].next {
            came_from.insert((next, pending), None);
            open.insert((pending.cycles, next, pending));
        }
    }
    while let Some((_, at, pending)) = open.pop_first() {
        let Some(step) = &flow.nodes[at].step else { continue };
        if at == conflict.next
            && pending.wait(step.waits()).is_some_and(|left| {
                left.cycles <= conflict.cycles
                    && left.conflicts(&first, step).any(|(hazard, _)| hazard == conflict.hazard)
            })
        {
            let mut path = vec![at];
            let mut back = came_from.get(&(at, pending)).copied().flatten();
            while let Some(key) = back {
                path.push(key.0);
                back = came_from.get(&key).copied().flatten();
            }
            path.push(conflict.first);
            path.reverse();
            return path;
        }
        let Some(advanced) = pending.advance(&first, step) else { continue };
        for &next in &flow.nodes[at].next {
            if let Entry::Vacant(entry) = came_from.entry((next, advanced)) {
                entry.insert(Some((at, pending)));
                open.insert((advanced.cycles, next, advanced));
            }
        }
    }
    Vec::new()
}
