//! Mistakes in the order of work, planted in programs that use `hcq`: each is found by the software ga10b's
//! `order` check, and the same program without it is clean with the same seeds.

use std::sync::Arc;
use std::time::Duration;

use ga10b_sim::sm::{self, Schedule};
use ga10b_sim::{Checks, Finding, Sim, SimConfig};
use hcq::{Args, Buffer, Device, DeviceOptions, Kernel, LaunchConfig};

const CUBIN: &[u8] = include_bytes!("../../kernels/suite.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);
const COUNT: u32 = 4096;
const BYTES: u64 = 4 * COUNT as u64;
const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// A device with the check, and what the programs below use.
struct Bench {
    sim: Arc<Sim>,
    device: Device,
    fill: Kernel,
    step: Kernel,
    data: Buffer,
}

impl Bench {
    fn new(schedule: Schedule, change: impl FnOnce(&mut DeviceOptions)) -> Self {
        let executor = sm::Config { checks: Checks::ORDER, schedule, ..sm::Config::default() };
        let sim = Sim::new(SimConfig { executor, ..SimConfig::default() });
        let mut options = DeviceOptions::default();
        change(&mut options);
        let device = hcq::sim::open(sim.clone(), options).unwrap();
        let program = device.load(CUBIN).unwrap();
        let (fill, step) = (program.kernel("fill").unwrap(), program.kernel("step").unwrap());
        let data = device.alloc(BYTES).unwrap();
        Self { sim, device, fill, step, data }
    }

    fn shape() -> LaunchConfig {
        LaunchConfig::new(COUNT / 128, 128)
    }

    /// `data[i] = value + i`. The buffer is named by its address: no access of the CPU waits for it by itself.
    fn fill(&self, value: u32) -> Args {
        Args::new().u64(self.data.va().raw()).u32(COUNT).u32(value)
    }

    /// `data[i] = data[i] * mul + add`.
    fn step(&self, mul: u32, add: u32) -> Args {
        Args::new().u64(self.data.va().raw()).u32(COUNT).u32(mul).u32(add)
    }

    fn words(&self) -> Vec<u32> {
        self.data.read_vec(0, COUNT as usize).unwrap()
    }
}

/// The findings and data of a program.
type Outcome = (Vec<Finding>, Vec<u32>);

/// The right program is clean and right in every order; the wrong one is found in every order, and gives other
/// data in one of them at least if `shows`.
fn planted(run: impl Fn(Schedule, bool) -> Outcome, shows: bool, detail: &str) -> Finding {
    let schedules: Vec<Schedule> =
        std::iter::once(Schedule::Deterministic).chain(SEEDS.map(Schedule::Shuffled)).collect();
    let (_, right) = run(Schedule::Deterministic, true);
    let (mut found, mut differs) = (None, false);
    for schedule in schedules {
        let (findings, data) = run(schedule, true);
        assert!(findings.is_empty(), "{schedule:?}: {findings:#?}");
        assert!(data == right, "{schedule:?}: the right program gives wrong data");
        let (findings, data) = run(schedule, false);
        let finding = findings.iter().find(|finding| finding.detail.contains(detail));
        found = Some(finding.unwrap_or_else(|| panic!("{schedule:?}: {findings:#?}")).clone());
        differs |= data != right;
    }
    assert_eq!(differs, shows, "wrong data");
    found.unwrap()
}

#[test]
fn a_missing_barrier_between_launches_is_found() {
    for chain in [false, true] {
        let found = planted(
            |schedule, right| {
                let bench = Bench::new(schedule, |options| options.chain_launches = chain);
                let mut queue = bench.device.queue().unwrap();
                // SAFETY: both stay within the buffer.
                unsafe {
                    queue.launch(&bench.fill, Bench::shape(), &bench.fill(5)).unwrap();
                    if right {
                        queue.barrier();
                    }
                    queue.launch(&bench.step, Bench::shape(), &bench.step(3, 1)).unwrap();
                }
                queue.submit().unwrap().wait(DEADLINE).unwrap();
                (bench.sim.findings(), bench.words())
            },
            true,
            "no barrier or wait orders launch ",
        );
        assert!(found.event.pc != 0 && found.program != 0 && found.address.is_some());
        assert!(found.earlier.is_some_and(|earlier| earlier.pc != 0), "the other launch's instruction");
    }
}

#[test]
fn a_missing_wait_between_queues_is_found() {
    planted(
        |schedule, right| {
            let bench = Bench::new(schedule, |_| ());
            let (mut one, mut two) = (bench.device.queue().unwrap(), bench.device.queue().unwrap());
            // SAFETY: both stay within the buffer.
            unsafe { one.launch(&bench.fill, Bench::shape(), &bench.fill(5)) }.unwrap();
            let point = one.submit().unwrap();
            if right {
                two.wait_for(&point).unwrap();
            }
            // SAFETY: as above.
            unsafe { two.launch(&bench.step, Bench::shape(), &bench.step(3, 1)) }.unwrap();
            let last = two.submit().unwrap();
            last.wait(DEADLINE).unwrap();
            point.wait(DEADLINE).unwrap();
            (bench.sim.findings(), bench.words())
        },
        true,
        "no barrier or wait orders launch ",
    );
}

#[test]
fn a_missing_wait_between_a_launch_and_a_copy_is_found() {
    planted(
        |schedule, right| {
            let bench = Bench::new(schedule, |_| ());
            let other = bench.device.alloc(BYTES).unwrap();
            let (mut compute, mut copies) =
                (bench.device.queue().unwrap(), bench.device.copy_queue().unwrap());
            other.write(0, &vec![1; BYTES as usize]).unwrap();
            // SAFETY: within the buffer.
            unsafe { compute.launch(&bench.fill, Bench::shape(), &bench.fill(5)) }.unwrap();
            let point = compute.submit().unwrap();
            if right {
                copies.wait_for(&point).unwrap();
            }
            copies.copy(&bench.data, 0, &other, 0, BYTES).unwrap();
            copies.submit().unwrap().wait(DEADLINE).unwrap();
            point.wait(DEADLINE).unwrap();
            let findings = bench.sim.findings();
            let mut bytes = vec![0; BYTES as usize];
            other.read(0, &mut bytes).unwrap();
            (findings, bytes.into_iter().map(u32::from).collect())
        },
        true,
        "no barrier or wait orders ",
    );
}

#[test]
fn a_read_by_the_cpu_without_a_wait_is_found() {
    let found = planted(
        |schedule, right| {
            let bench = Bench::new(schedule, |_| ());
            let mut queue = bench.device.queue().unwrap();
            // SAFETY: within the buffer.
            unsafe { queue.launch(&bench.fill, Bench::shape(), &bench.fill(5)) }.unwrap();
            let point = queue.submit().unwrap();
            if right {
                point.wait(DEADLINE).unwrap();
            }
            bench.words();
            point.wait(DEADLINE).unwrap();
            (bench.sim.findings(), bench.words())
        },
        false,
        "the program's access",
    );
    let sides = [Some(&found.event), found.earlier.as_ref()];
    assert!(sides.iter().flatten().any(|event| event.sass == "the program on the CPU"), "{found}");
}
