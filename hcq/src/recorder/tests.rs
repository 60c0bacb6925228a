//! What is linked, what waits, and that every order a barrier asks for is kept.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const KICK: u32 = 0x2001_20ad;
const WAIT: u32 = 0x8000_2044;

struct Bench {
    recorder: Recorder,
    memory: HashMap<u64, qmd::Qmd>,
}

impl Bench {
    fn new(chain: bool) -> Self {
        Self { recorder: Recorder::new(chain), memory: HashMap::new() }
    }

    fn launch(&mut self, n: u64) {
        let memory = &mut self.memory;
        let mut sink = |va: GpuVa, q: &qmd::Qmd| {
            memory.insert(va.raw() >> 8, q.clone());
            Ok(())
        };
        self.recorder.launch(GpuVa::inside(n << 8), qmd::Qmd::new(qmd::Version::V03), &mut sink).unwrap();
    }

    fn next_of(&self, n: u64) -> Option<u64> {
        self.memory[&n].dependent(0).map(|d| d.address >> 8)
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
    let memory = &mut b.memory;
    let mut sink = |va: GpuVa, q: &qmd::Qmd| {
        memory.insert(va.raw() >> 8, q.clone());
        Ok(())
    };
    assert!(b.recorder.release_in_launch(at, 7, &mut sink).unwrap());
    b.recorder.withdraw_release(&mut sink).unwrap();
    assert!(b.recorder.release_in_launch(at, 7, &mut sink).unwrap());
    assert_eq!(b.memory[&2].release(0).map(|r| r.address), Some(at.raw()));
    b.recorder.reset_running();
    b.launch(3);
    assert_eq!(b.events(), [0, 3], "what follows waits");
    b.launch(4);
    assert!(!b.recorder.release_in_launch(at, 8, &mut |_, _| Ok(())).unwrap());
    b.recorder.reset_running();
    b.recorder.assume_ended();
    b.launch(5);
    assert_eq!(b.events(), [5], "what follows known ends does not wait");
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
    b.recorder.reset();
    b.recorder.copy(GpuVa::inside(0x1000), GpuVa::inside(0x2000), 4);
    b.recorder.barrier();
    b.launch(3);
    assert_eq!(b.events(), [0, 3]);
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

/// Position of each launch's start in the words (of the head of its chain), and of each copy, wait and engine wait.
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
    /// Whatever is recorded: every launch runs once, and starts after everything before the last barrier has ended.
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
