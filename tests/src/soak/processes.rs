//! Several processes: one that is killed with work in flight, two that work at once, one that forks.
//!
//! A desktop GPU and a Jetson's serve all processes at once. A software ga10b is one process's own: there the
//! parts show that processes do not meet, and that a killed one leaves nothing that stops the next.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hcq::{Args, Device, Error, Kernel, LaunchConfig};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{DEADLINE, open};
use crate::kernels::Kernels;
use crate::output::line;
use crate::soak::one_process::{churn, fill_words};
use crate::soak::plan::Plan;

/// The line of a process whose work is in flight.
const BUSY: &str = "busy";
/// Launches in flight when a process is killed.
const IN_FLIGHT: usize = 16;
/// A process that the test started ends by itself this long after its work, whatever happens to the test.
const LIFETIME: Duration = Duration::from_secs(300);

/// A process of the same program, killed when it is dropped.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(plan: &Plan, arguments: &[String]) -> Result<Self> {
        let mut command = Command::new(&plan.program);
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).spawn().context("starting a process")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, output })
    }

    /// Its next line; empty when it has ended.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(%error, "a process that the test started could not be killed");
        }
    }
}

/// The role of `hcq-soak` as a process of a test.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Keeps work in flight until it is killed.
    Busy,
    /// Allocates, launches, copies and frees for a time, and prints the number of its rounds.
    Churn {
        /// For how long.
        time: Duration,
        /// Seed of what it chooses.
        seed: u64,
    },
}

/// Plays a role.
///
/// # Errors
/// The first thing that went wrong.
pub fn play(role: Role) -> Result<()> {
    let work = match role {
        Role::Busy => Duration::ZERO,
        Role::Churn { time, .. } => time,
    };
    thread::spawn(move || {
        thread::sleep(work + LIFETIME);
        std::process::exit(3);
    });
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    match role {
        Role::Busy => busy(&device, &kernels),
        Role::Churn { time, seed } => {
            let fill = kernels.get("fill")?;
            line(churn(&device, &fill, StdRng::seed_from_u64(seed), Instant::now() + time)?)
        }
    }
}

/// Two queues with polling kernels and copies in flight, for ever.
fn busy(device: &Device, kernels: &Kernels) -> Result<()> {
    let poll = kernels.get("await")?;
    let (flag, out) = (device.alloc(4)?, device.alloc(4)?);
    let [from, to] = [device.alloc(64 << 20)?, device.alloc(64 << 20)?];
    flag.write(0, &[0; 4])?;
    let (mut queue, mut copies) = (device.queue()?, device.copy_queue()?);
    let args = Args::new().buffer(&flag).buffer(&out).u32(100_000);
    for round in 0_u64.. {
        let mut last = None;
        for _ in 0..IN_FLIGHT {
            // SAFETY: `await` reads the flag, writes `out`, and ends after 100,000 polls.
            unsafe { queue.launch(&poll, LaunchConfig::new(1, 1), &args)? };
            queue.barrier();
            copies.copy(&from, 0, &to, 0, 64 << 20)?;
            last = Some((queue.submit()?, copies.submit()?));
        }
        if round == 0 {
            line(BUSY)?;
        }
        let (launched, copied) = last.context("no submission")?;
        launched.wait(DEADLINE)?;
        copied.wait(DEADLINE)?;
    }
    Ok(())
}

/// The device does what it should.
fn check(device: &Device, fill: &Kernel, value: u32) -> Result<()> {
    let [from, to] = [device.alloc(4 << 10)?, device.alloc(4 << 10)?];
    let mut queue = device.queue()?;
    fill_words(&mut queue, fill, &from, 1024, value)?;
    queue.copy(&from, 0, &to, 0, 4 << 10)?;
    queue.submit()?.wait(DEADLINE)?;
    ensure!(to.read_vec::<u32>(0, 1024)?.into_iter().eq(value..value + 1024), "wrong words after {value}");
    Ok(())
}

/// Kills processes with work in flight. A device that was open meanwhile, and one that is opened afterwards,
/// do what they should.
pub(super) fn kills(plan: &Plan) -> Result<String> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let mut rng = StdRng::seed_from_u64(plan.seed);
    for round in 0..plan.kills {
        let mut process = Process::start(plan, &["--role".into(), "busy".into()])?;
        let line = process.line()?;
        ensure!(line == BUSY, "the process said {line:?} instead of {BUSY:?}");
        thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
        let status = process.kill()?;
        ensure!(
            status.signal() == Some(Signal::SIGKILL as i32),
            "the process ended before it was killed: {status}"
        );
        check(&device, &fill, round).with_context(|| format!("after {} kills", round + 1))?;
        let other = open().with_context(|| format!("after {} kills", round + 1))?;
        check(&other, &Kernels::load(&other)?.get("fill")?, round)?;
    }
    Ok(format!("{} processes killed with work in flight", plan.kills))
}

/// Two processes and this one work at once.
pub(super) fn neighbours(plan: &Plan) -> Result<String> {
    let start = |seed: u64| {
        let arguments =
            ["--role", "churn", "--seconds", &plan.time.as_secs().to_string(), "--seed", &seed.to_string()];
        Process::start(plan, &arguments.map(str::to_owned))
    };
    let mut processes = [start(plan.seed)?, start(plan.seed.wrapping_add(1))?];
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let rng = StdRng::seed_from_u64(plan.seed.wrapping_add(2));
    let mut rounds = churn(&device, &fill, rng, Instant::now() + plan.time)?;
    for process in &mut processes {
        let line = process.line()?;
        let status = process.child.wait()?;
        ensure!(status.success(), "a process ended with {status}");
        rounds += line.parse::<u64>().with_context(|| format!("a process said {line:?}"))?;
    }
    Ok(format!("{rounds} rounds of 3 processes"))
}

/// Forks with work in flight. The child can do nothing with the device and opens its own; the parent's work
/// goes on.
pub(super) fn forks(plan: &Plan) -> Result<String> {
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let (fill, step) = (kernels.get("fill")?, kernels.get("step")?);
    let data = device.alloc(4)?;
    data.write(0, &[0; 4])?;
    let mut queue = device.queue()?;
    let mut want = 0_u32;
    for round in 0..plan.kills {
        for k in 0..64 {
            let args = Args::new().buffer(&data).u32(1).u32(3).u32(k);
            // SAFETY: one word is read and written.
            unsafe { queue.launch(&step, LaunchConfig::new(1, 1), &args)? };
            queue.barrier();
            want = want.wrapping_mul(3).wrapping_add(k);
        }
        let point = queue.submit()?;
        // SAFETY: this program's other threads are the model's, which the child does not use, and none holds a
        // lock of the C library's for long; a child that hangs all the same is killed.
        let child = match unsafe { fork() }? {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let in_child = || -> Result<()> {
                    let refused = point.wait(DEADLINE);
                    ensure!(matches!(refused, Err(Error::Forked { .. })), "{refused:?}");
                    let refused = queue.submit().map(drop);
                    ensure!(matches!(refused, Err(Error::Forked { .. })), "{refused:?}");
                    let own = open()?;
                    check(&own, &Kernels::load(&own)?.get("fill")?, round)
                };
                let result = catch_unwind(AssertUnwindSafe(in_child));
                let good = matches!(result, Ok(Ok(())));
                if !good {
                    eprintln!("the child of a fork: {result:?}");
                }
                // SAFETY: ends the child without the exit handlers of the parent.
                unsafe { nix::libc::_exit(i32::from(!good)) }
            }
        };
        let status = reap(child)?;
        ensure!(matches!(status, WaitStatus::Exited(_, 0)), "the child of fork {round}: {status:?}");
        point.wait(DEADLINE)?;
        ensure!(data.read_vec::<u32>(0, 1)? == [want], "after {} forks", round + 1);
        check(&device, &fill, round)?;
    }
    Ok(format!("{} forks with work in flight", plan.kills))
}

/// Waits for a child; kills one that hangs.
fn reap(child: Pid) -> Result<WaitStatus> {
    let began = Instant::now();
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive if began.elapsed() < DEADLINE => thread::sleep(Duration::from_millis(2)),
            WaitStatus::StillAlive => {
                kill(child, Signal::SIGKILL)?;
                waitpid(child, None)?;
                bail!("the child of a fork hung");
            }
            ended => return Ok(ended),
        }
    }
}
