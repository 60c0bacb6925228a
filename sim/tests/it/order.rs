//! The `order` check on a machine whose program reports nothing: launches in flight that change, and launches
//! of a channel in the order of a seed.

use crate::machine::kernel::Fill;
use crate::machine::*;
use ga10b_sim::sm::{Config, Schedule};
use ga10b_sim::{Checks, SimConfig};
use qmd::Release;
use std::sync::atomic::Ordering;

fn machine(schedule: Schedule) -> Machine {
    let executor = Config { schedule, ..Config::default() };
    let (sm_count, memory, check) = (4, 4 << 30, Checks::ORDER);
    Machine::with(SimConfig { sm_count, memory, executor, check, ..SimConfig::default() })
}

/// Words that release `payload` at `va` without waiting for anything.
fn release_now(va: u64, payload: u64) -> [u32; 6] {
    let mut words = release(va, payload);
    words[5] = 0x0100_0001;
    words
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Bank,
    Descriptor,
}

/// While a kernel waits for its flag, the program changes the memory of its launch.
#[test]
fn a_launch_that_is_changed_in_flight_is_found() {
    for change in [Change::None, Change::Bank, Change::Descriptor] {
        let machine = machine(Schedule::Shuffled(1));
        let mut channel = machine.channel();
        channel.start();
        let kernel = Fill::waiting(&machine);
        let (flag, out, signal) = (machine.buffer(4096), machine.buffer(4096), machine.buffer(4096));
        let launch = kernel.describe_pointers(flag.va, out.va).release(0, Release::new_u64(signal.va, 1));
        kernel.qmd.write(0, launch.build().unwrap().as_bytes());
        let mut words = vec![inc(1, 0x2b4, 1), (kernel.qmd.va >> 8) as u32, inc(1, 0x2c0, 1), 9];
        words.extend(release_now(signal.va + 16, 1));
        channel.submit(&words);
        // The descriptor was handed over; the kernel runs, or will.
        channel.wait(signal.u64(16), 1);
        match change {
            Change::None => {}
            // Places that neither the kernel nor the scheduler looks at.
            Change::Bank => kernel.bank.write(0x100, &[1]),
            Change::Descriptor => kernel.qmd.write(0, &[1]),
        }
        flag.u32(0).store(1, Ordering::Release);
        channel.wait(signal.u64(0), 1);
        let found = machine.sim.findings();
        let texts: Vec<&str> = found.iter().map(|finding| finding.text.as_str()).collect();
        match change {
            Change::None => assert!(found.is_empty(), "{found:#?}"),
            Change::Bank => {
                assert_eq!(texts, ["its constant bank was changed while the launch was in flight"]);
                assert_eq!(found[0].address, Some(kernel.bank.va + 0x100));
            }
            Change::Descriptor => {
                assert_eq!(texts, ["its descriptor was changed while the launch was in flight"]);
                assert_eq!(found[0].address, Some(kernel.qmd.va));
            }
        }
        let text = found.first().map(ToString::to_string).unwrap_or_default();
        assert!(found.is_empty() || text.contains("launch 1 of channel 511 (kernel at 0x"), "{text}");
    }
}

/// Two launches that store to the same words: which one is the last depends on the seed alone, and not at all
/// with a wait between.
#[test]
fn a_seed_gives_the_order_of_launches_that_nothing_orders() {
    let last = |seed: u64, waits: bool| {
        let machine = machine(Schedule::Shuffled(seed));
        let mut channel = machine.channel();
        channel.start();
        let (one, two) = (Fill::load(&machine), Fill::load(&machine));
        let (out, signal) = (machine.buffer(0x4000), machine.buffer(4096));
        let mut words = Vec::new();
        for (kernel, base) in [(&one, 0x1000), (&two, 0x2000)] {
            kernel.qmd.write(0, kernel.describe(out.va, base, 4).build().unwrap().as_bytes());
            words.extend([inc(1, 0x2b4, 1), (kernel.qmd.va >> 8) as u32, inc(1, 0x2c0, 1), 9]);
            if waits {
                words.extend([inc(1, 0x110, 1), 0]);
            }
        }
        words.extend(release(signal.va, 1));
        channel.submit(&words);
        channel.wait(signal.u64(0), 1);
        assert_eq!(machine.sim.findings().is_empty(), waits, "{:#?}", machine.sim.findings());
        out.words(0, 1024).into_iter().map(|word| word >> 12).collect::<Vec<u32>>()
    };
    let orders: Vec<Vec<u32>> = (0..16).map(|seed| last(seed, false)).collect();
    assert!(orders.iter().any(|order| order[0] == 1) && orders.iter().any(|order| order[0] == 2));
    let mixed = |order: &Vec<u32>| order.contains(&1) && order.contains(&2);
    assert!(orders.iter().any(mixed), "blocks of the two run side by side");
    for seed in 0..16 {
        assert_eq!(last(seed, false), orders[seed as usize], "seed {seed}");
        assert_eq!(last(seed, true), [2; 1024], "seed {seed}");
    }
}
