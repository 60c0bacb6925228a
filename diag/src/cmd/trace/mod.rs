//! `nvdiag trace`: shows the calls a program makes on GPU nodes.

mod capture;
mod kernel;
mod sink;
mod tracer;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ArgGroup;
use nvdiag::trace::{self, Header, LogReader, View};

use self::sink::{Files, Sink, Style};
use self::tracer::{End, Events, Tracer};
use crate::cmd::finding::Finding;
use crate::cmd::{executable, process};

/// Show a program's calls to the GPU's drivers: every ioctl with its arguments, open, close, mmap, dup.
///
/// The program runs as it is; its threads and children are followed. Needs permission to trace: one's own
/// programs, as a rule; for --pid see /proc/sys/kernel/yama/ptrace_scope.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag trace -- ./program --its-options        each call, with its arguments
  nvdiag trace --summary -o calls.txt -- ./program
  nvdiag trace --log calls.jsonl -- env LD_PRELOAD=libnvgpu_sim.so ./program
  nvdiag trace --replay calls.jsonl --summary
  nvdiag trace --submissions -- ./program        each launch, copy and semaphore; with -v in full
  nvdiag trace --submissions --perfetto trace.json -- ./program      for ui.perfetto.dev
  nvdiag trace --submissions -v --normalize -o run1.txt -- ./program to compare with another run
  sudo nvdiag trace --pid 4711                   until Ctrl-C

Exit codes: those of the program, or 128 and the number of the signal that ended it or
the trace; with --replay 0, or 1 where the log is damaged; with --pid 0 after Ctrl-C; 2 bad usage, or the program cannot be
traced.")]
#[group(skip)]
#[command(group = ArgGroup::new("traced").required(true).args(["pid", "replay", "command"]))]
pub struct Args {
    /// Follow a process that runs already, until it ends or an interrupt (Ctrl-C); it runs on then.
    #[arg(long, value_parser = process::number)]
    pid: Option<u32>,
    /// Print a log again.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Keep the calls in this file, with all bytes, for --replay.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    log: Option<PathBuf>,
    /// Write here instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print a table of calls, times and failures instead of the calls.
    #[arg(long)]
    summary: bool,
    /// Write a time line of calls and submissions, which <https://ui.perfetto.dev> displays.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    #[command(flatten)]
    capture: capture::Args,
    /// Show names in order of appearance in place of addresses, handles and payloads, and no times, so that
    /// two runs can be compared.
    #[arg(long, conflicts_with = "summary")]
    normalize: bool,
    /// Another node that belongs to a GPU, by the start of its path.
    #[arg(long, value_name = "PATH")]
    node: Vec<String>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl Args {
    /// Traces or replays, and prints.
    pub fn run(&self, json: bool, verbose: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        sink::ensure_different(&[
            ("--replay", self.replay.as_deref()),
            ("--log", self.log.as_deref()),
            ("--perfetto", self.perfetto.as_deref()),
            match &self.output {
                Some(path) => ("--output", Some(path)),
                None => ("stdout", Some(Path::new("/dev/stdout"))),
            },
        ])?;
        if self.capture.qmd.is_some() && !self.capture.submissions && self.replay.is_none() {
            bail!("--qmd saves what is submitted\n  try: --submissions --qmd DIR, or --replay LOG --qmd DIR");
        }
        let view = match (self.capture.submissions, verbose) {
            (false, _) => View::Calls,
            (true, false) => View::Submissions,
            (true, true) => View::All,
        };
        let style = Style { json, summary: self.summary, view, normalize: self.normalize };
        match &self.replay {
            Some(path) => self.replay(path, style, out),
            None => self.live(style, out),
        }
    }

    fn sink<'o>(&self, style: Style, out: &'o mut dyn Write, header: &Header) -> anyhow::Result<Sink<'o>> {
        let files = Files {
            output: self.output.as_deref(),
            log: self.log.as_deref(),
            qmds: self.capture.qmd.as_deref(),
            perfetto: self.perfetto.as_deref(),
        };
        Sink::new(files, style, header, out)
    }

    fn replay(&self, path: &Path, style: Style, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        let reader = LogReader::new(BufReader::new(file)).with_context(cannot)?;
        let mut sink = self.sink(style, out, &reader.header)?;
        let mut damage = Damage::default();
        for event in reader {
            if !sink.listens() {
                break;
            }
            match event {
                Ok(event) => sink.event(event),
                Err(error) if error.is_of_one_line() => damage.add(&error),
                Err(error) => return Err(error).with_context(cannot),
            }
        }
        let calls = sink.served + sink.failed;
        sink.finish()?;
        Ok(damage.report(path, calls))
    }

    fn live(&self, style: Style, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let filtered = self.pid.is_none() && kernel::has_filters();
        let words: Vec<String> = match self.pid {
            Some(pid) => vec![format!("process {pid}")],
            None => self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        };
        let header = Header::new(words, if filtered { "seccomp" } else { "ptrace" });
        let hidden = self.pid.is_some_and(hides_calls);
        let started = match self.pid {
            Some(_) => None,
            None => Some((program(&self.command)?, self.capture.variables()?)),
        };
        let mut sink = self.sink(style, out, &header)?;
        sink.rings = self.capture.rings();
        let nodes = self.node.clone();
        let tracer = match (self.pid, &started) {
            (_, Some((command, variables))) => Tracer::spawn(command, variables, filtered, nodes, &mut sink)
                .context("cannot trace a child")?,
            (pid, None) => {
                let pid = pid.unwrap_or_default();
                Tracer::attach(pid, nodes, &mut sink).with_context(|| {
                    match Path::new(&format!("/proc/{pid}")).exists() {
                        true => format!("cannot trace process {pid}"),
                        false => {
                            format!("there is no process {pid}: it has ended, or runs in another container")
                        }
                    }
                })?
            }
        };
        let end = tracer.run();
        let (served, failed, rings) = (sink.served, sink.failed, sink.rings.take());
        sink.finish()?;
        let end = end.context("the trace broke off")?;
        if served == 0 {
            explain_silence(failed, hidden);
        }
        rings.iter().for_each(capture::Rings::explain);
        Ok(match end {
            End::Exited(0) | End::Detached => Finding::Clean,
            End::Exited(code) => {
                eprintln!("nvdiag: the program ended with code {code}");
                Finding::Program(u8::try_from(code).unwrap_or(1))
            }
            End::Killed(signal) => {
                eprintln!("nvdiag: signal {signal} ended the program");
                Finding::Program(u8::try_from(128 + signal).unwrap_or(1))
            }
            End::Requested(signal) => {
                eprintln!("nvdiag: signal {signal} ended the trace");
                Finding::Program(u8::try_from(128 + signal).unwrap_or(1))
            }
        })
    }
}

/// Lines of a log that could not be read.
#[derive(Default)]
struct Damage {
    lines: u64,
    first: Option<String>,
}

impl Damage {
    fn add(&mut self, error: &trace::Error) {
        self.lines += 1;
        self.first.get_or_insert_with(|| error.to_string());
    }

    fn report(self, path: &Path, calls: u64) -> Finding {
        let Some(first) = self.first else { return Finding::Clean };
        let lines =
            if self.lines == 1 { "1 line is".to_owned() } else { format!("{} lines are", self.lines) };
        let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
        eprintln!("nvdiag: {} is damaged: {calls} could be read, {lines} left out; {first}", path.display());
        Finding::Problem
    }
}

/// Whether a process contains a software ga10b that does not report its calls.
fn hides_calls(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let name = kernel::SOFTWARE_TRACE.to_bytes();
    let is_set = environment.split(|b| *b == 0).any(|variable| variable.starts_with(name));
    maps.contains("libnvgpu_sim.so") && !is_set
}

/// Says why no call was served by a GPU's driver, and what to do.
fn explain_silence(failed: u64, hidden: bool) {
    if hidden {
        eprintln!(
            "nvdiag: no calls: the process has its GPU in libnvgpu_sim.so and was started without NVGPU_SIM_TRACE=1\n  \
             try: start it with `nvdiag trace -- PROGRAM`, or with that variable"
        );
        return;
    }
    let what = match failed {
        0 => "the program made no call on a GPU's node",
        _ => "every call failed: no GPU's node here serves the program",
    };
    eprintln!(
        "nvdiag: {what}\n  \
         if its GPU is the software ga10b inside it (HCQ_DEVICE=sim, or auto without a GPU), there are no system calls to see\n  \
         try: nvdiag trace -- env LD_PRELOAD=libnvgpu_sim.so HCQ_DEVICE=nvgpu PROGRAM\n  \
         if it uses another node: --node PATH"
    );
}

/// The command as the kernel takes it, of a program that is there.
fn program(command: &[OsString]) -> anyhow::Result<Vec<CString>> {
    let Some(name) = command.first() else { bail!("no program to trace") };
    executable::find(name)?;
    let argument = |word: &OsString| CString::new(word.as_bytes()).context("an argument holds a zero byte");
    command.iter().map(argument).collect()
}
