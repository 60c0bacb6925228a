//! Launches that start others: dependents, the scheduler's counters, latches.

use crate::machine::kernel::Fill;
use crate::machine::*;
use ga10b_sim::SimConfig;
use qmd::{Dependent, Launch, Qmd};
use sass::Arch;
use std::time::{Duration, Instant};

/// INVALIDATE_PREFETCH_COPY_SCHEDULE.
const COPY_SCHEDULE: u32 = 0xa;
/// DECREMENT_DEPENDENCE.
const DECREMENT: u32 = 7;

/// Three kernels that fill one page each.
struct Three {
    kernels: [Fill; 3],
    out: [Buffer; 3],
    signal: Buffer,
}

impl Three {
    fn new(machine: &Machine) -> Self {
        let kernels = [Fill::load(machine), Fill::load(machine), Fill::load(machine)];
        let out = [machine.buffer(4096), machine.buffer(4096), machine.buffer(4096)];
        Self { kernels, out, signal: machine.buffer(4096) }
    }

    fn launch(&self, n: usize) -> Launch {
        let (kernel, out, base) = (&self.kernels[n], self.out[n].va, 100 * n as u32 + 1);
        let launch = kernel.describe(out, base, 4);
        if kernel.target.version() == qmd::Version::V04 {
            // Parameters of sm_90's code.
            kernel.bank.write(0x210, &out.to_le_bytes());
            kernel.bank.write(0x218, &base.to_le_bytes());
        }
        launch
    }

    fn put(&self, n: usize, qmd: &Qmd) {
        self.kernels[n].qmd.write(0, qmd.as_bytes());
    }

    fn va(&self, n: usize) -> u64 {
        self.kernels[n].qmd.va
    }

    fn pcas(&self, n: usize, action: u32) -> [u32; 4] {
        [inc(1, 0x2b4, 1), (self.va(n) >> 8) as u32, inc(1, 0x2c0, 1), action]
    }

    /// Returns which have run since the last call.
    fn ran(&self) -> [bool; 3] {
        [0, 1, 2].map(|n| {
            let ran = self.out[n].words(0, 1)[0] == 100 * n as u32 + 1;
            self.out[n].write(0, &[0; 4]);
            ran
        })
    }

    /// Two launches that lower the counter of a third.
    fn join(&self, self_copy: bool) {
        let third = Dependent::decrement(self.va(2));
        for n in 0..2 {
            self.put(n, &self.launch(n).dependent(0, third).build().unwrap());
        }
        let mut joined = self.launch(2).dependence_counter(2).build().unwrap();
        let field = qmd::field(joined.version(), "SELF_COPY_ON_COMPLETION").unwrap();
        joined.set(field, self_copy.into()).unwrap();
        self.put(2, &joined);
    }

    fn submit(&self, channel: &mut Channel<'_>, actions: &[(usize, u32)], value: u64) {
        let mut words: Vec<u32> = actions.iter().flat_map(|(n, action)| self.pcas(*n, *action)).collect();
        words.extend(release(self.signal.va, value));
        channel.submit(&words);
    }
}

fn machine(arch: Arch) -> Machine {
    Machine::with(SimConfig { arch, sm_count: 4, memory: 4 << 30, ..SimConfig::default() })
}

#[test]
fn a_counter_is_set_by_an_action_that_copies_and_again_by_the_descriptor_itself() {
    for arch in [Arch::Sm87, Arch::Sm90] {
        for self_copy in [false, true] {
            let machine = machine(arch);
            let mut channel = machine.channel();
            channel.start();
            let three = Three::new(&machine);
            three.join(self_copy);
            // Handed over, it waits for both.
            three.submit(&mut channel, &[(2, COPY_SCHEDULE), (0, COPY_SCHEDULE)], 1);
            channel.wait(three.signal.u64(0), 1);
            assert_eq!(three.ran(), [true, false, false], "{arch}");
            three.submit(&mut channel, &[(1, COPY_SCHEDULE)], 2);
            channel.wait(three.signal.u64(0), 2);
            assert_eq!(three.ran(), [false, true, true], "{arch}");
            if self_copy {
                three.submit(&mut channel, &[(0, COPY_SCHEDULE), (1, COPY_SCHEDULE)], 3);
                channel.wait(three.signal.u64(0), 3);
                assert_eq!(three.ran(), [true; 3], "{arch}");
            } else {
                // The counter is used up.
                channel.submit(&three.pcas(0, COPY_SCHEDULE));
                assert_eq!(channel.wait_error(), 13, "{arch}");
            }
        }
    }
}

#[test]
fn the_pushbuffer_lowers_a_counter_too() {
    let machine = machine(Arch::Sm87);
    let mut channel = machine.channel();
    channel.start();
    let three = Three::new(&machine);
    three.join(false);
    three.submit(&mut channel, &[(2, COPY_SCHEDULE), (2, DECREMENT), (0, COPY_SCHEDULE)], 1);
    channel.wait(three.signal.u64(0), 1);
    assert_eq!(three.ran(), [true, false, true]);
}

#[test]
fn a_latch_that_no_grid_arrives_at_never_opens() {
    for (arrives, opens) in [(5, true), (6, false)] {
        let machine = machine(Arch::Sm90);
        let mut channel = machine.channel();
        channel.start();
        let three = Three::new(&machine);
        let mut first = three.launch(0).dependent(0, Dependent::schedule(three.va(1))).build().unwrap();
        first.set_latch_arrival(Some(arrives)).unwrap();
        let mut second = three.launch(1).build().unwrap();
        second.set_latch_wait(Some(5)).unwrap();
        three.put(0, &first);
        three.put(1, &second);
        channel.submit(&three.pcas(0, COPY_SCHEDULE));
        let hung = |machine: &Machine| machine.sim.violations().iter().any(|v| v.text.contains("latch 0x5"));
        let began = Instant::now();
        while !hung(&machine) && three.out[1].words(0, 1)[0] != 101 {
            assert!(began.elapsed() < Duration::from_secs(60), "neither ran nor hung");
            std::thread::yield_now();
        }
        assert_eq!((three.ran()[1], hung(&machine)), (opens, !opens));
    }
}
