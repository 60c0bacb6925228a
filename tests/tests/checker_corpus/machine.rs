//! Launches of the corpus on the software ga10b, each in a process of its own.

use std::collections::BTreeMap;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use ga10b_sim::sm;
use ga10b_sim::{Checks, Finding, Sim, SimConfig};
use hcq::{Args, Buffer, DeviceOptions, Error, LaunchConfig};

use super::cases::{Argument, Case, file, marks};
use super::judge::judge;
use super::results::Row;

/// The variable that names the kernel which this process launches.
pub const CASE: &str = "CHECKER_CORPUS_CASE";

/// A launch is given up after this time. Most take some milliseconds, but where they poll they may take seconds.
fn deadline(case: &Case) -> Duration {
    Duration::from_secs(if case.hang { 3 } else { 60 })
}

/// What happened in a launch with all checks.
#[derive(Debug)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    /// The error of the wait, where there was one.
    pub failure: Option<String>,
    /// Whether the launch did not end.
    pub hangs: bool,
}

/// The launch's arguments, and the buffers to keep until it has ended.
fn arguments(device: &hcq::Device, case: &Case) -> Result<(Args, Vec<Buffer>), Error> {
    let (mut args, mut kept, mut freed) = (Args::new(), Vec::new(), Vec::new());
    for (argument, index) in case.args.iter().zip(0..) {
        let buffer = match argument {
            Argument::Null => {
                args = args.u64(0);
                continue;
            }
            Argument::Word(word) => {
                args = args.u32(*word);
                continue;
            }
            Argument::Unwritten(len) | Argument::Freed(len) => device.alloc(*len)?,
            Argument::Bytes(bytes) => {
                let buffer = device.alloc(bytes.len() as u64)?;
                buffer.write(0, bytes)?;
                buffer
            }
        };
        buffer.set_name(&format!("argument {index}"));
        args = args.u64(buffer.va().raw());
        if matches!(argument, Argument::Freed(_)) { freed.push(buffer) } else { kept.push(buffer) }
    }
    drop(freed);
    Ok((args, kept))
}

/// Launches it and waits. Where it does not end, the device would wait for it when it is dropped.
fn launch(sim: Arc<Sim>, cubin: &[u8], case: &Case) -> Result<(), Error> {
    let device = hcq::sim::open(sim, DeviceOptions::default())?;
    let kernel = device.load(cubin)?.kernel(&case.kernel)?;
    let (args, buffers) = arguments(&device, case)?;
    let mut shape = LaunchConfig::new(case.grid, case.block);
    shape.dynamic_shared = case.shared;
    let mut queue = device.queue()?;
    // SAFETY: memory of the simulated machine alone, which is this case's.
    unsafe { queue.launch(&kernel, shape, &args) }?;
    let result = queue.submit()?.wait(deadline(case));
    std::mem::forget((device, kernel, buffers, queue));
    result
}

/// Runs the case of a kernel, prints its row, and ends the process with whatever still runs in it.
pub fn child(kernel: &str) -> ! {
    let case = Case::all().into_iter().find(|case| case.kernel == kernel).expect("a case of this name");
    let cubin = fs::read(file(&format!("{}.sm_87.cubin", case.file))).unwrap();
    let source = fs::read_to_string(file(&format!("{}.cu", case.file))).unwrap();
    let begin = Instant::now();
    // So many instructions without a store that what hangs is found within the deadline.
    let executor = sm::Config { checks: Checks::all(), stall_budget: 1 << 20, ..sm::Config::default() };
    let sim = Sim::new(SimConfig { executor, ..SimConfig::default() });
    let failure = launch(sim.clone(), &cubin, &case).err().map(|error| error.to_string());
    let time = begin.elapsed();
    let outcome = Outcome { findings: sim.findings(), failure, hangs: time >= deadline(&case) };
    let (verdict, by, text) = judge(&case, &marks(&source)[kernel], &outcome);
    let row = Row { verdict, by: by.map(str::to_owned), text, seconds: time.as_secs_f64() };
    println!("{}", serde_json::to_string(&row).unwrap());
    exit(0)
}

fn run(case: &Case) -> Row {
    let output = Command::new(env::current_exe().unwrap()).env(CASE, &case.kernel).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    row.unwrap_or_else(|| {
        panic!("{}: {}: {}", case.kernel, output.status, String::from_utf8_lossy(&output.stderr))
    })
}

/// Runs all cases, as many at once as the machine has processors; the rows are in their order. Those at the end
/// take longest, and come first.
pub fn run_all(cases: &[Case]) -> Vec<Row> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(case) = cases.iter().rev().nth(index)
                {
                    let row = run(case);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(cases.len() - index, row);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}
