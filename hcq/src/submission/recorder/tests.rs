//! The links and waits of launches, and that every order a barrier asks for is kept.

use std::collections::HashMap;

use proptest::prelude::*;

use super::net::{Member, Start};
use super::*;

const KICK: u32 = 0x2001_20ad;
const WAIT: u32 = 0x8000_2044;

struct Bench {
    recorder: Recorder,
    memory: HashMap<u64, qmd::Qmd>,
    /// QMDs written, rewrites included.
    writes: usize,
}

impl Bench {
    fn new(chain: bool) -> Self {
        Self { recorder: Recorder::new(chain), memory: HashMap::new(), writes: 0 }
    }

    fn with_sink(&mut self, f: impl FnOnce(&mut Recorder, &mut QmdSink<'_>)) {
        let (memory, writes) = (&mut self.memory, &mut self.writes);
        let mut sink = |va: GpuVa, q: &qmd::Qmd| {
            memory.insert(va.raw() >> 8, q.clone());
            *writes += 1;
            Ok(())
        };
        f(&mut self.recorder, &mut sink);
    }

    /// A launch as the kernels' templates make it.
    fn qmd() -> qmd::Qmd {
        let mut qmd = qmd::Qmd::new(qmd::Version::V03);
        qmd.set_membar(qmd::Membar::System);
        qmd
    }

    fn launch(&mut self, n: u64) {
        self.with_sink(|r, sink| r.launch(GpuVa::inside(n << 8), Self::qmd(), sink).unwrap());
    }

    fn copy_by_kernel(&mut self, n: u64) {
        self.with_sink(|r, sink| r.copy_by_kernel(GpuVa::inside(n << 8), Self::qmd(), sink).unwrap());
    }

    /// Ends the commands with a release of `value`, and hands them over or not; whether the last launch
    /// releases it.
    fn close(&mut self, value: u64, in_launch: bool, submit: bool) -> bool {
        let mut released = false;
        let at = GpuVa::inside(0x10_0000_0000);
        self.with_sink(|r, sink| {
            let closed = r.close((at, value), in_launch, sink).unwrap();
            released = closed.in_launch;
            if submit {
                closed.submitted();
            }
        });
        released
    }

    fn finish(&mut self) {
        self.with_sink(|r, sink| r.finish(sink).unwrap());
    }

    /// The launches linked to one, as far as its QMD was written: nothing is linked to one that was not.
    fn next_of(&self, n: u64) -> Option<u64> {
        self.memory.get(&n)?.dependent(0).map(|d| d.address >> 8)
    }

    fn membar_of(&self, n: u64) -> Option<qmd::Membar> {
        self.memory.get(&n)?.membar()
    }

    /// The launches kicked, with 0 for each wait.
    fn events(&mut self) -> Vec<u32> {
        let words = self.recorder.words().words().to_vec();
        let mut events = Vec::new();
        for (i, word) in words.iter().enumerate() {
            match *word {
                KICK => events.push(words[i + 1]),
                WAIT => events.push(0),
                _ => (),
            }
        }
        events
    }
}

#[test]
fn launches_without_a_barrier_are_kicked_one_by_one() {
    let mut b = Bench::new(true);
    (1..4).for_each(|n| b.launch(n));
    assert_eq!(b.events(), [1, 2, 3]);
    assert_eq!(b.next_of(1), None);
}

#[test]
fn a_line_of_launches_is_linked() {
    let mut b = Bench::new(true);
    for n in 1..4 {
        b.launch(n);
        b.recorder.barrier();
    }
    assert_eq!(b.events(), [1]);
    assert_eq!((b.next_of(1), b.next_of(2), b.next_of(3)), (Some(2), Some(3), None));
    b.finish();
    b.finish();
    assert_eq!((b.writes, b.next_of(3)), (3, None), "each QMD is written once");
}

#[test]
fn what_the_last_launch_of_a_line_wrote_is_visible_to_everyone() {
    let mut b = Bench::new(true);
    for n in 1..4 {
        b.launch(n);
        b.recorder.barrier();
    }
    b.finish();
    let membars = [1, 2, 3].map(|n| b.membar_of(n));
    let [device, system] = [Some(qmd::Membar::Device), Some(qmd::Membar::System)];
    assert_eq!(membars, [device, device, system]);

    let mut b = Bench::new(true);
    b.launch(1);
    b.recorder.barrier();
    b.launch(2);
    b.launch(3);
    b.finish();
    assert_eq!(
        [1, 2, 3].map(|n| b.membar_of(n)),
        [system; 3],
        "none of a line that was taken apart is left out"
    );
}

#[test]
fn the_scheduler_chases_tasks_along_a_line_where_the_layout_can_say_so() {
    let chasing = |qmd: &qmd::Qmd| {
        let field = ::qmd::field(qmd.version(), "CWD_MEMBAR_TASK_CHASING_ENABLE").expect("v4.0 has it");
        qmd.get(field).expect("a field of its own") == 1
    };
    let mut b = Bench::new(true);
    let launch = |b: &mut Bench, n: u64| {
        let mut qmd = qmd::Qmd::new(qmd::Version::V04);
        qmd.set_membar(qmd::Membar::System);
        b.with_sink(|r, sink| r.launch(GpuVa::inside(n << 8), qmd, sink).unwrap());
    };
    for n in 1..4 {
        launch(&mut b, n);
        b.recorder.barrier();
    }
    b.finish();
    assert_eq!([1, 2, 3].map(|n| chasing(&b.memory[&n])), [true, true, false]);

    let mut b = Bench::new(true);
    launch(&mut b, 1);
    b.recorder.barrier();
    launch(&mut b, 2);
    launch(&mut b, 3);
    b.finish();
    assert_eq!([1, 2, 3].map(|n| chasing(&b.memory[&n])), [false; 3], "the line was taken apart");
}

#[test]
fn every_launch_that_was_recorded_is_written() {
    let others: [fn(&mut Recorder); 4] = [
        |r| r.acquire(GpuVa::inside(0x1000), 1),
        |r| r.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4),
        |r| r.timestamp(GpuVa::inside(0x1000)),
        Recorder::settle,
    ];
    for other in others {
        let mut b = Bench::new(true);
        b.launch(1);
        other(&mut b.recorder);
        b.launch(2);
        other(&mut b.recorder);
        b.finish();
        assert_eq!((b.memory.len(), b.writes), (2, 2));
    }
}

#[test]
fn a_barrier_on_a_copy_queue_sends_the_copy_engine_no_compute_methods() {
    let mut recorder = Recorder::for_copies();
    for _ in 0..3 {
        recorder.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4);
        recorder.barrier();
        recorder.acquire(GpuVa::inside(0x1000), 1);
        recorder.timestamp(GpuVa::inside(0x1000));
    }
    recorder.settle();
    let (words, mut at) = (recorder.words().words().to_vec(), 0);
    while at < words.len() {
        let (operation, count) = (words[at] >> 29, words[at] >> 16 & 0x1fff);
        let (subchannel, method) = (words[at] >> 13 & 7, (words[at] & 0xfff) << 2);
        assert!(method < 0x100 || subchannel == 4, "method {method:#x} on subchannel {subchannel}");
        at += if operation == 4 { 1 } else { 1 + count as usize };
    }
    assert_eq!(at, words.len());
}

#[test]
fn copies_of_both_kinds_follow_each_other() {
    let copy = |b: &mut Bench| b.recorder.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4);
    let mut b = Bench::new(true);
    b.copy_by_kernel(1);
    copy(&mut b);
    b.copy_by_kernel(2);
    b.copy_by_kernel(3);
    assert_eq!(b.events(), [1, 0, 0, 2], "the third is linked to the second");
    assert_eq!(b.next_of(2), Some(3));
    let order = Order::of(&mut b);
    assert!(order.waits[0] < order.copies[0] && order.copies[0] < order.engine_waits[1]);
}

#[test]
fn two_launches_after_one_are_unlinked_again() {
    let mut b = Bench::new(true);
    b.launch(1);
    b.recorder.barrier();
    b.launch(2);
    assert_eq!(b.next_of(1), Some(2));
    b.launch(3);
    assert_eq!((b.next_of(1), b.next_of(2)), (None, None));
    assert_eq!(b.events(), [1, 0, 2, 3]);
    b.recorder.barrier();
    b.launch(4);
    assert_eq!(b.events(), [1, 0, 2, 3, 0, 4]);
}

#[test]
fn without_chains_each_barrier_waits() {
    let mut b = Bench::new(false);
    b.launch(1);
    b.recorder.barrier();
    b.launch(2);
    assert_eq!(b.events(), [1, 0, 2]);
    assert_eq!(b.next_of(1), None);
}

#[test]
fn nothing_is_linked_across_a_wait_a_copy_or_a_timestamp() {
    let breaks: [fn(&mut Recorder); 3] = [
        |r| r.acquire(GpuVa::inside(0x1000), 1),
        |r| r.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4),
        |r| r.timestamp(GpuVa::inside(0x1000)),
    ];
    for event in breaks {
        let mut b = Bench::new(true);
        b.launch(1);
        event(&mut b.recorder);
        b.recorder.barrier();
        b.launch(2);
        assert_eq!(b.next_of(1), None);
        assert_eq!(b.events(), [1, 0, 2]);
    }
}

#[test]
fn a_release_goes_into_a_launch_that_ends_last() {
    let at = GpuVa::inside(0x10_0000_0000);
    let mut b = Bench::new(true);
    b.launch(1);
    b.recorder.barrier();
    b.launch(2);
    assert!(b.close(7, true, false), "and is withdrawn");
    b.finish();
    assert_eq!(b.memory[&2].release(0), None);
    b.close(7, false, true);
    b.launch(1);
    b.recorder.barrier();
    b.launch(2);
    assert!(b.close(7, true, true));
    assert_eq!(b.memory[&2].release(0).map(|r| r.address), Some(at.raw()));
    assert_eq!(b.membar_of(2), Some(qmd::Membar::System));
    b.launch(3);
    assert_eq!(b.events(), [0, 3], "what follows waits");
    b.launch(4);
    assert!(!b.close(8, true, true));
    b.launch(5);
    assert_eq!(b.events(), [5], "what follows a release in the pushbuffer does not wait");
    assert!(b.close(9, true, true));
    b.recorder.observe_end(|| false);
    b.recorder.observe_end(|| true);
    b.launch(6);
    assert_eq!(b.events(), [6], "what follows a known end does not wait");
    b.recorder.observe_end(|| panic!("asked while commands are recorded"));
}

#[test]
fn commands_that_were_not_handed_over_are_as_before() {
    let mut b = Bench::new(true);
    b.launch(1);
    b.recorder.barrier();
    b.launch(2);
    b.launch(3);
    let before = b.recorder.words().words().to_vec();
    for in_launch in [true, false] {
        b.close(7, in_launch, false);
        assert_eq!(b.recorder.words().words(), before);
    }
    b.recorder.barrier();
    b.launch(4);
    assert_eq!(b.events(), [1, 0, 2, 3, 0, 4]);
}

#[test]
fn a_copy_after_a_barrier_waits_for_grids_and_a_launch_after_that_for_the_copy() {
    let mut b = Bench::new(true);
    b.launch(1);
    b.recorder.barrier();
    b.recorder.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4);
    b.recorder.barrier();
    b.launch(2);
    assert_eq!(b.events(), [1, 0, 0, 2]);
    b.close(7, false, true);
    b.recorder.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4);
    b.recorder.barrier();
    b.launch(3);
    assert_eq!(b.events(), [0, 3]);
}

/// Records a net of launches from `first` on, with descriptors of that layout.
fn net(b: &mut Bench, version: qmd::Version, first: u64, starts: &[Start]) {
    let member = |n: u64| {
        let mut qmd = qmd::Qmd::new(version);
        qmd.set_membar(qmd::Membar::System);
        Member { kernel: "test", va: GpuVa::inside(n << 8), qmd }
    };
    let members = (first..).zip(starts).map(|(n, _)| member(n)).collect();
    let mut latch = 6;
    b.with_sink(|r, sink| {
        let mut next = || {
            latch += 1;
            latch
        };
        r.net(members, starts, &mut next, sink).unwrap();
    });
}

fn linked(to: &[usize]) -> Start {
    Start { linked_to: to.to_vec(), ..Start::default() }
}

#[test]
fn a_net_kicks_what_nothing_precedes_and_waits_between_its_stages() {
    let mut b = Bench::new(true);
    let waits = Start { waits: true, ..Start::default() };
    net(&mut b, qmd::Version::V03, 1, &[linked(&[]), linked(&[0]), waits, linked(&[]), linked(&[3])]);
    assert_eq!(b.events(), [1, 0, 3, 4]);
    assert_eq!([1, 2, 3, 4, 5].map(|n| b.next_of(n)), [Some(2), None, None, Some(5), None]);
    let [device, system] = [Some(qmd::Membar::Device), Some(qmd::Membar::System)];
    assert_eq!([1, 2, 3, 4, 5].map(|n| b.membar_of(n)), [device, system, system, device, system]);
    assert_eq!((b.recorder.launches(), b.writes), (5, 5), "each is written once");
    b.launch(9);
    assert_eq!(b.events(), [1, 0, 3, 4, 0, 9], "what comes next follows all links");
    let mut b = Bench::new(true);
    net(&mut b, qmd::Version::V03, 1, &[linked(&[]), linked(&[])]);
    b.launch(9);
    assert_eq!((b.events(), b.recorder.launches()), (vec![1, 2, 9], 3), "nothing has to be followed");
}

#[test]
fn a_launch_of_a_net_that_follows_several_is_handed_over_before_they_start() {
    let mut b = Bench::new(true);
    let early = Start { early: true, ..linked(&[2]) };
    net(&mut b, qmd::Version::V04, 1, &[linked(&[]), linked(&[]), linked(&[0, 1]), early]);
    assert_eq!(b.events(), [3, 1, 2]);
    let of = |n: u64| &b.memory[&n];
    assert_eq!([1, 2, 3, 4].map(|n| of(n).dependence_counter()), [0, 0, 2, 0]);
    let third = qmd::Dependent::decrement(3 << 8).prefetched();
    assert_eq!([1, 2].map(|n| of(n).dependent(0)), [Some(third); 2]);
    assert_eq!(of(3).dependent(0), Some(qmd::Dependent::schedule(4 << 8).prefetched()));
    assert_eq!([1, 2, 3, 4].map(|n| of(n).latch_arrival()), [None, None, Some(7), None]);
    assert_eq!([1, 2, 3, 4].map(|n| of(n).latch_wait()), [None, None, None, Some(7)]);
}

const ENGINE_WAIT: u32 = 0x2001_001e;
const COPY: u32 = 0x2001_80c0;

#[derive(Clone, Copy, Debug)]
enum Op {
    Launch,
    Copy,
    Barrier,
    Acquire,
}

/// Position of each launch's start in the words (of the head of its chain), and of each copy, wait and engine
/// wait.
struct Order {
    heads: HashMap<u64, usize>,
    copies: Vec<usize>,
    waits: Vec<usize>,
    engine_waits: Vec<usize>,
}

impl Order {
    fn of(bench: &mut Bench) -> Self {
        let words = bench.recorder.words().words().to_vec();
        let at = |header: u32| words.iter().enumerate().filter(move |(_, w)| **w == header).map(|(i, _)| i);
        let mut heads = HashMap::new();
        for kick in at(KICK) {
            let mut n = Some(u64::from(words[kick + 1]));
            while let Some(launch) = n {
                assert!(heads.insert(launch, kick).is_none(), "launch {launch} runs twice");
                n = bench.next_of(launch);
            }
        }
        let (copies, waits) = (at(COPY).collect(), at(WAIT).collect());
        Self { heads, copies, waits, engine_waits: at(ENGINE_WAIT).collect() }
    }

    fn any_between(list: &[usize], from: usize, to: usize) -> bool {
        list.iter().any(|at| (from..to).contains(at))
    }
}

proptest! {
    /// Whatever is recorded: every launch runs once, and starts after everything before the last barrier has
    /// ended.
    #[test]
    fn barriers_are_kept(
        ops in prop::collection::vec(prop_oneof![4 => Just(Op::Launch), 1 => Just(Op::Copy), 3 => Just(Op::Barrier), 1 => Just(Op::Acquire)], 1..40),
        chain in any::<bool>(),
    ) {
        let mut bench = Bench::new(chain);
        // Number of each launch or copy, and how many barriers came before it.
        let (mut launches, mut copies) = (Vec::new(), Vec::new());
        let mut barriers = 0;
        for op in ops {
            match op {
                Op::Launch => {
                    launches.push(barriers);
                    // Numbers that are no header.
                    bench.launch(launches.len() as u64);
                }
                Op::Copy => {
                    copies.push(barriers);
                    bench.recorder.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4);
                }
                Op::Acquire => bench.recorder.acquire(GpuVa::inside(0x1000), 1),
                Op::Barrier => {
                    barriers += 1;
                    bench.recorder.barrier();
                }
            }
        }
        let order = Order::of(&mut bench);
        prop_assert_eq!(order.heads.len(), launches.len());
        prop_assert_eq!(order.copies.len(), copies.len());
        let follows = |a: u64, b: u64| std::iter::successors(bench.next_of(a), |n| bench.next_of(*n)).any(|n| n == b);
        for (i, before) in launches.iter().enumerate() {
            let a = i as u64 + 1;
            for (j, after) in launches.iter().enumerate() {
                let b = j as u64 + 1;
                let (start, end) = (order.heads[&a], order.heads[&b]);
                if before < after {
                    prop_assert!(follows(a, b) || Order::any_between(&order.waits, start, end), "{} then {}", a, b);
                }
            }
            for (copy, at) in copies.iter().zip(&order.copies) {
                let launch = order.heads[&a];
                if before < copy {
                    prop_assert!(Order::any_between(&order.waits, launch, *at));
                } else if copy < before {
                    prop_assert!(Order::any_between(&order.engine_waits, *at, launch));
                }
            }
        }
    }
}
