//! The ledger's answers, case by case: one word, written by one piece of work and read by another.

use std::sync::Arc;

use crate::order::access::Access;
use crate::order::ledger::{Ledger, State, Visible};
use crate::order::shadow::{LINE, Threads};
use crate::order::work::{LaunchShape, Work, WorkId};

const KERNEL: Work = Work::Launch(LaunchShape { program: 0x1000, grid: [1; 3], block: [32, 1, 1] });
const COPY: Work = Work::Copy { from: None, to: 0, len: 4 };
/// The word's address, and that of a semaphore.
const AT: u64 = 0x4000;
const SEMAPHORE: u64 = 0x8000;
const WEAK: Access = Access {
    line: AT / 4 / LINE,
    mask: 1 << (AT / 4 % LINE),
    bytes: 15,
    reads: true,
    writes: false,
    strong: false,
    site: 0,
    block: 0,
    threads: Threads::one(0),
};

fn ledger() -> Ledger {
    let ledger = Ledger::new(Arc::default(), 0..0);
    ledger.state().site(0x1000, 1, || "STG".to_owned());
    ledger
}

fn begin(state: &mut State, line: u32, work: Work) -> WorkId {
    let known = state.front(line);
    state.begin(line, work, known)
}

/// Makes an access and returns what is missing, in the report's words.
fn access(state: &mut State, work: WorkId, writes: bool, strong: bool) -> Option<String> {
    let access = Access { reads: !writes, writes, strong, ..WEAK };
    state.access(work, &access, |_| true).map(|conflict| conflict.detail)
}

/// A launch writes, `between` happens, the next launch of the channel reads.
fn read_after(between: impl FnOnce(&mut State, u32, WorkId)) -> Option<String> {
    let ledger = ledger();
    let mut state = ledger.state();
    let line = state.open(511);
    let one = begin(&mut state, line, KERNEL);
    assert_eq!(access(&mut state, one, true, false), None);
    state.end(one, Visible::Device);
    between(&mut state, line, one);
    let two = begin(&mut state, line, KERNEL);
    access(&mut state, two, false, false)
}

#[test]
fn launches_of_a_channel_are_ordered_by_waits_alone() {
    let missing = "no barrier or wait orders launch 2 of channel 511 (kernel at 0x1000) after launch 1 of channel \
                   511 (kernel at 0x1000)";
    assert_eq!(read_after(|_, _, _| ()).as_deref(), Some(missing));
    assert_eq!(
        read_after(|state, line, _| state.flush(line)).as_deref(),
        Some(missing),
        "a membar is no wait"
    );
    assert_eq!(read_after(|state, line, _| state.wait_idle(line)), None);
}

#[test]
fn a_dependent_follows_its_predecessor_and_needs_its_membar() {
    for (visible, clean) in [(Visible::Nowhere, false), (Visible::Device, true), (Visible::System, true)] {
        let ledger = ledger();
        let mut state = ledger.state();
        let line = state.open(511);
        let one = begin(&mut state, line, KERNEL);
        access(&mut state, one, true, false);
        state.end(one, visible);
        let known = state.known_after(one);
        let two = state.begin(line, KERNEL, known);
        let found = access(&mut state, two, false, false);
        assert_eq!(found.is_none(), clean, "{visible:?}: {found:?}");
        assert!(found.is_none_or(|detail| detail.starts_with("no membar follows launch 1")));
    }
}

#[test]
fn channels_are_ordered_by_a_release_after_a_wait_and_an_acquire() {
    for (waits, acquires, clean) in [(true, true, true), (false, true, false), (true, false, false)] {
        let ledger = ledger();
        let mut state = ledger.state();
        let (one, two) = (state.open(511), state.open(510));
        let writer = begin(&mut state, one, KERNEL);
        access(&mut state, writer, true, false);
        state.end(writer, Visible::System);
        if waits {
            state.wait_idle(one);
        }
        let known = state.front(one);
        state.publish(SEMAPHORE, 1, known);
        if acquires {
            state.acquire(two, SEMAPHORE);
        }
        let reader = begin(&mut state, two, KERNEL);
        assert_eq!(access(&mut state, reader, false, false).is_none(), clean, "{waits} {acquires}");
    }
}

#[test]
fn a_cache_that_is_not_emptied_may_hold_an_old_value() {
    for empties in [false, true] {
        let ledger = ledger();
        let mut state = ledger.state();
        let line = state.open(511);
        for (work, writes) in [(KERNEL, false), (KERNEL, true)] {
            let id = begin(&mut state, line, work);
            assert_eq!(access(&mut state, id, writes, false), None);
            state.end(id, Visible::System);
            state.wait_idle(line);
        }
        if empties {
            state.empty_caches();
        }
        let strong = begin(&mut state, line, KERNEL);
        assert_eq!(access(&mut state, strong, false, true), None, "a strong load goes past it");
        let reader = begin(&mut state, line, KERNEL);
        let found = access(&mut state, reader, false, false);
        assert_eq!(found.is_none(), empties, "{found:?}");
        assert!(found.is_none_or(|detail| detail.starts_with("nothing invalidates the caches")));
    }
}

#[test]
fn the_program_knows_what_it_has_seen_and_tells_what_it_submits() {
    let ledger = ledger();
    let line = ledger.state().open(511);
    let writer = begin(&mut ledger.state(), line, KERNEL);
    access(&mut ledger.state(), writer, true, false);
    {
        let mut state = ledger.state();
        state.end(writer, Visible::Device);
        let known = state.known_after(writer);
        state.publish(SEMAPHORE, 7, known);
    }
    let found = || ledger.findings().iter().map(|finding| finding.detail.clone()).collect::<Vec<_>>();
    ledger.state().observe(SEMAPHORE, 6);
    ledger.program_access(AT, 4, false);
    assert_eq!(found().len(), 1);
    assert!(found()[0].starts_with("no wait orders the program's access after launch 1"), "{:?}", found());
    ledger.state().observe(SEMAPHORE, 7);
    ledger.program_access(AT, 4, false);
    assert!(found()[1].starts_with("no membar for the system follows launch 1"), "{:?}", found());
    ledger.state().flush(line);
    ledger.state().wait_idle(line);
    ledger.state().flush(line);
    ledger.program_access(AT, 4, true);
    assert_eq!(found().len(), 2, "{:?}", found());
    // Its writes before a submission are there, those after are not.
    for (late, clean) in [(false, true), (true, false)] {
        let mut state = ledger.state();
        state.submit(511, 5);
        drop(state);
        if late {
            ledger.program_access(AT, 4, true);
        }
        let mut state = ledger.state();
        state.fetch(line, 511, 5);
        let reader = begin(&mut state, line, KERNEL);
        assert_eq!(access(&mut state, reader, false, false).is_none(), clean);
    }
}

#[test]
fn what_synchronizes_may_meet() {
    // A kernel polls the writes of another channel's copy; a copy reads a word that kernels count in.
    for (kernel_writes, copy_writes, clean) in
        [(false, true, true), (true, false, false), (true, true, false)]
    {
        let ledger = ledger();
        let one = ledger.state().open(511);
        let two = ledger.state().open(510);
        let copy = begin(&mut ledger.state(), two, COPY);
        let kernel = begin(&mut ledger.state(), one, KERNEL);
        assert_eq!(access(&mut ledger.state(), kernel, kernel_writes, true), None);
        if kernel_writes {
            let other = begin(&mut ledger.state(), two, KERNEL);
            assert_eq!(access(&mut ledger.state(), other, true, true), None, "both are atomic");
        }
        ledger.unit_access(copy, AT, 4, copy_writes, AT);
        assert_eq!(ledger.findings().is_empty(), clean, "{kernel_writes} {copy_writes}");
    }
}

#[test]
fn what_a_stopped_channel_did_is_over() {
    assert_eq!(
        read_after(|state, line, _| {
            state.stop(line);
            state.submit(511, 1);
            state.fetch(line, 511, 1);
        }),
        None
    );
}
