//! A part of the work in a process of its own, which may hang or die without taking the rest with it.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;

use super::interrupt::Interrupts;

/// Most bytes that a child may print.
const LIMIT: u64 = 8 << 20;

/// What to run.
#[derive(Debug)]
pub struct Child<'a> {
    /// Its arguments.
    pub args: &'a [String],
    /// How long it may take.
    pub deadline: Duration,
    /// A variable of its environment.
    pub with: Option<(&'a str, &'a str)>,
    /// What ends it before its time.
    pub interrupts: &'a Interrupts,
}

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, after it printed this.
    Printed(Vec<u8>),
    /// Otherwise, after it printed this on standard error.
    Failed(ExitStatus, String),
    /// Not by itself.
    Late(Duration),
    /// Because this program was asked to end.
    Interrupted(Signal),
}

impl Ended {
    /// In words.
    pub fn reason(&self) -> String {
        match self {
            Self::Printed(_) => "it ended by itself".to_owned(),
            Self::Interrupted(signal) => format!("its process was killed after {signal}"),
            Self::Late(limit) => format!("its process did not end within {limit:?} and was killed"),
            Self::Failed(status, text) => match status.signal() {
                Some(libc::SIGBUS) => {
                    "its process got a bus error (SIGBUS): memory of the driver that it had \
                                       mapped went away, as the doorbell's does when the GPU powers down"
                        .to_owned()
                }
                Some(signal) => format!("its process was ended by signal {signal}: {text}"),
                None => format!("its process ended with {status}: {text}"),
            },
        }
    }
}

impl Child<'_> {
    /// Runs it to its end, or to the deadline.
    pub fn run(&self) -> anyhow::Result<Ended> {
        let program = std::env::current_exe().context("cannot find the program itself")?;
        let mut command = Command::new(program);
        command.args(self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.with);
        // A signal from the terminal reaches this program alone, which ends the step and says so.
        command.process_group(0);
        let mut child = command.spawn().context("cannot start a process for the step")?;
        let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for the step's process")? {
                break status;
            }
            if let Some(signal) = self.interrupts.signal() {
                end(&mut child, Duration::from_secs(2))?;
                return Ok(Ended::Interrupted(signal));
            }
            if began.elapsed() > self.deadline {
                end(&mut child, Duration::from_secs(10))?;
                return Ok(Ended::Late(self.deadline));
            }
            thread::sleep(Duration::from_millis(5));
        };
        let (printed, said) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
        match status.success() {
            true => Ok(Ended::Printed(printed)),
            false => {
                let text = String::from_utf8_lossy(&said);
                Ok(Ended::Failed(status, text.trim_end().trim_start_matches("nvdiag: ").to_owned()))
            }
        }
    }
}

/// Kills a process, and waits for its end. One that is in the kernel may not end before the driver lets go of
/// it; who waited for that would hang as well.
fn end(child: &mut process::Child, patience: Duration) -> anyhow::Result<()> {
    child.kill().context("cannot end the step's process")?;
    let began = Instant::now();
    while child.try_wait()?.is_none() && began.elapsed() < patience {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Reads a stream to its end, and keeps its beginning.
fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is kept.
            let _ = stream.by_ref().take(LIMIT).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        bytes
    })
}
