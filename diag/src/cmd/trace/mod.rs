//! `nvdiag trace`: shows the calls a program makes on GPU nodes.

mod kernel;
mod tracer;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ArgGroup;
use nvdiag::Report;
use nvdiag::trace::{self, Event, Header, LogReader, LogWriter, Summary};

use self::tracer::{End, Tracer};
use crate::cmd::finding::Finding;

/// Show what a program asks of the GPU's drivers: every ioctl with its arguments, open, close, mmap, dup.
///
/// The program runs as it is; its threads and children are followed. Needs the right to trace: one's own programs, as a
/// rule; for --pid see /proc/sys/kernel/yama/ptrace_scope.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("traced").required(true).args(["pid", "replay", "command"]))]
pub struct Args {
    /// Follow a process that runs already, until it ends or an interrupt (Ctrl-C); it runs on then.
    #[arg(long)]
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
    /// Another node that belongs to a GPU, by the start of its path.
    #[arg(long, value_name = "PATH")]
    node: Vec<String>,
    /// Stop the program at every system call, for kernels without seccomp filters; slower.
    #[arg(long)]
    all_calls: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Where events go.
struct Sink<'o> {
    out: &'o mut dyn Write,
    log: Option<LogWriter<BufWriter<File>>>,
    summary: Option<Summary>,
    json: bool,
}

impl Sink<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Some(log) = &mut self.log {
            log.event(event)?;
        }
        match &mut self.summary {
            Some(summary) => summary.add(event),
            None if self.json => {
                serde_json::to_writer(&mut *self.out, &trace::to_json(event))?;
                writeln!(self.out)?;
            }
            None => trace::print(event, self.out)?,
        }
        Ok(())
    }
}

impl Args {
    /// Traces or replays, and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let mut file = match &self.output {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some(BufWriter::new(anstream::StripStream::new(file)))
            }
            None => None,
        };
        let out: &mut dyn Write = match &mut file {
            Some(file) => file,
            None => out,
        };
        let finding = match &self.replay {
            Some(path) => self.replay(path, json, out),
            None => self.live(json, out),
        }?;
        out.flush()?;
        Ok(finding)
    }

    fn sink<'o>(&self, json: bool, out: &'o mut dyn Write, header: &Header) -> anyhow::Result<Sink<'o>> {
        let log = match &self.log {
            Some(path) => {
                let cannot = || format!("cannot write {}", path.display());
                let file = File::create(path).with_context(cannot)?;
                Some(LogWriter::new(BufWriter::new(file), header).with_context(cannot)?)
            }
            None => None,
        };
        if json && !self.summary {
            serde_json::to_writer(&mut *out, header)?;
            writeln!(out)?;
        }
        Ok(Sink { out, log, summary: self.summary.then(Summary::default), json })
    }

    fn finish(sink: Sink<'_>) -> anyhow::Result<()> {
        if let Some(mut log) = sink.log {
            log.flush().context("cannot write the log")?;
        }
        if let Some(summary) = sink.summary.map(Summary::finish) {
            match sink.json {
                true => summary.print_json(sink.out)?,
                false => summary.print(sink.out)?,
            }
        }
        Ok(())
    }

    fn replay(&self, path: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        let reader = LogReader::new(BufReader::new(file)).with_context(cannot)?;
        let mut sink = self.sink(json, out, &reader.header)?;
        for event in reader {
            sink.event(&event.with_context(cannot)?)?;
        }
        Self::finish(sink)?;
        Ok(Finding::Clean)
    }

    fn live(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let filtered = !self.all_calls && self.pid.is_none() && kernel::has_filters();
        let words: Vec<String> = match self.pid {
            Some(pid) => vec![format!("process {pid}")],
            None => self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        };
        let header = Header::new(words, if filtered { "seccomp" } else { "ptrace" });
        let mut sink = self.sink(json, out, &header)?;
        let mut event = |event: Event| sink.event(&event);
        let nodes = self.node.clone();
        let end = match self.pid {
            Some(pid) => Tracer::attach(pid, nodes, &mut event)
                .with_context(|| format!("cannot trace process {pid}"))?
                .run(),
            None => {
                let command = program(&self.command)?;
                Tracer::spawn(&command, filtered, nodes, &mut event).context("cannot trace a child")?.run()
            }
        };
        let end = end.context("the trace broke off")?;
        Self::finish(sink)?;
        match end {
            End::Exited(0) | End::Detached => Ok(Finding::Clean),
            End::Exited(code) => {
                eprintln!("nvdiag: the program ended with code {code}");
                Ok(Finding::Problem)
            }
            End::Killed(signal) => {
                eprintln!("nvdiag: signal {signal} ended the program");
                Ok(Finding::Problem)
            }
        }
    }
}

/// The command as the kernel takes it, with the program found.
fn program(command: &[OsString]) -> anyhow::Result<Vec<CString>> {
    let Some(name) = command.first() else { bail!("no program to trace") };
    let folders = match name.as_bytes().contains(&b'/') {
        true => vec![PathBuf::new()],
        false => std::env::var_os("PATH").map_or(Vec::new(), |path| std::env::split_paths(&path).collect()),
    };
    let found = folders.iter().any(|folder| folder.join(name).is_file());
    anyhow::ensure!(found, "there is no program {}", name.display());
    let argument = |word: &OsString| CString::new(word.as_bytes()).context("an argument holds a zero byte");
    command.iter().map(argument).collect()
}
