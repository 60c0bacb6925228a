//! The cost of the software GPU's checks: processor time of three kernels with each check, and with all, over
//! their time without any, all of them with one worker.
//!
//! ```sh
//! cargo bench -p ga10b-tests --bench checks
//! cargo bench -p ga10b-tests --bench checks -- memory init     # these alone
//! cargo bench -p ga10b-tests --bench checks -- race atomics    # of one kernel
//! ```

use std::sync::Arc;
use std::time::Duration;

use ga10b_sim::sm::Config;
use ga10b_sim::{Checks, Sim, SimConfig};
use hcq::{Args, Device, DeviceOptions, LaunchConfig};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

const BENCH: &[u8] = include_bytes!("../kernels/bench.sm_87.cubin");
const COSTS: &[u8] = include_bytes!("../kernels/costs.sm_87.cubin");
/// Runs of each, the fastest of which counts.
const RUNS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(300);

/// A kernel, its grid, and the lengths of its buffers in words, which `n` follows as an argument.
struct Workload {
    name: &'static str,
    program: &'static [u8],
    kernel: &'static str,
    grid: [u32; 3],
    buffers: &'static [u64],
    n: u32,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "streaming (add_f32)",
        program: BENCH,
        kernel: "add_f32",
        grid: [4096, 1, 1],
        buffers: &[1 << 22; 3],
        n: 1 << 20,
    },
    Workload {
        name: "tiles, barriers (multiply_tiles)",
        program: COSTS,
        kernel: "multiply_tiles",
        grid: [16, 16, 1],
        buffers: &[1 << 16; 3],
        n: 256,
    },
    Workload {
        name: "atomics (count_bytes)",
        program: COSTS,
        kernel: "count_bytes",
        grid: [32, 1, 1],
        buffers: &[1 << 19, 256],
        n: 1 << 19,
    },
];

/// User time of this process.
fn user_time() -> Duration {
    let spent: TimeVal = getrusage(UsageWho::RUSAGE_SELF).expect("Linux counts it").user_time();
    Duration::new(spent.tv_sec() as u64, 1000 * spent.tv_usec() as u32)
}

/// The time of a workload under `check`.
fn time(workload: &Workload, check: Checks) -> Duration {
    let executor = Config { workers: 1, ..Config::default() };
    let sim = Sim::new(SimConfig { check, executor, ..SimConfig::default() });
    let device = hcq::sim::open(Arc::clone(&sim), DeviceOptions::default()).expect("a device");
    let program = device.load(workload.program).expect("a program");
    let kernel = program.kernel(workload.kernel).expect("a kernel");
    let buffers: Vec<_> = workload.buffers.iter().map(|words| filled(&device, *words)).collect();
    let args = buffers.iter().fold(Args::new(), |args, buffer| args.buffer(buffer)).u32(workload.n);
    let mut queue = device.queue().expect("a queue");
    let mut launch = || {
        let before = user_time();
        let shape = LaunchConfig::new(workload.grid, 256);
        // SAFETY: the kernel reaches its buffers, which are as long as `n` and the grid say.
        unsafe { queue.launch(&kernel, shape, &args) }.expect("a launch");
        queue.submit().expect("room").wait(DEADLINE).expect("it ends");
        user_time() - before
    };
    let best = (0..RUNS).map(|_| launch()).min().unwrap_or_default();
    assert_eq!(sim.findings(), [], "{}", workload.name);
    best
}

/// A buffer of small numbers.
fn filled(device: &Device, words: u64) -> hcq::Buffer {
    let buffer = device.alloc(4 * words).expect("memory");
    let bytes: Vec<u8> =
        (0..words as u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9) >> 8).to_le_bytes()).collect();
    buffer.write(0, &bytes).expect("it is mapped");
    buffer
}

fn main() {
    // Cargo adds an option of its own.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut checks = vec![
        ("memory", Checks::MEMORY),
        ("init", Checks::INIT),
        ("race", Checks::RACE),
        ("sync", Checks::SYNC),
        ("order", Checks::ORDER),
        ("all", Checks::all()),
    ];
    let some = |offered: &[&str]| offered.iter().any(|name| wanted.iter().any(|wanted| wanted == name));
    if some(&checks.iter().map(|(name, _)| *name).collect::<Vec<_>>()) {
        checks.retain(|(name, _)| some(&[name]));
    }
    let mut workloads: Vec<&Workload> = WORKLOADS.iter().collect();
    let first_word = |workload: &Workload| workload.name.split([' ', ',']).next().unwrap_or_default();
    if some(&WORKLOADS.each_ref().map(first_word)) {
        workloads.retain(|workload| some(&[first_word(workload)]));
    }
    print!("{:<34} {:>9}", "user time, best of 3 runs", "unchecked");
    checks.iter().for_each(|(name, _)| print!(" {name:>7}"));
    println!();
    for workload in workloads {
        let without = time(workload, Checks::empty());
        print!("{:<34} {:>6.1} ms", workload.name, without.as_secs_f64() * 1e3);
        for (_, check) in &checks {
            print!(" {:>7.2}", time(workload, *check).as_secs_f64() / without.as_secs_f64());
        }
        println!();
    }
}
