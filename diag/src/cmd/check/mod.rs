//! `nvdiag check`: runs a program, or one kernel, on the software GPU and reports its mistakes.

mod argument;
mod kernel;
mod program;
mod seeds;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ga10b_sim::Checks;
use nvdiag::Report;
use nvdiag::checked::{Checked, Records};

use crate::cmd::finding::{Finding, show};
use crate::cmd::input::read_regular;
use crate::cmd::interrupts::Interrupts;
use crate::cmd::output_file::OutputFile;
use crate::cmd::replaced::ensure_same_kind;
use program::{Device, Program};
use seeds::Seeds;

/// Most bytes of a file of findings: each machine leaves some hundred lines at most.
const FINDINGS_BYTES: u64 = 64 << 20;

/// Find races and other mistakes of kernels on the software GPU: of a program, or of one kernel of a cubin.
///
/// The program is one that uses hcq, or the driver's interface of a Jetson (/dev/nvgpu, /dev/nvhost-*). It and
/// the processes that it starts run with a software GPU that executes the machine code of its kernels and
/// checks each access; no GPU is needed. Programs on the CUDA runtime have no such interface: launch their
/// kernels from a cubin, as `nvcc -cubin -arch=sm_87 -lineinfo` makes it. -lineinfo gives findings their lines.
///
/// Checks: memory (accesses outside buffers), init (memory that nothing wrote), race, sync (barriers that lanes
/// miss), order (launches and copies that nothing orders).
#[derive(Debug, clap::Args)]
#[command(override_usage = "nvdiag check [OPTIONS] -- PROGRAM [ARGUMENT]...\n       \
    nvdiag check [OPTIONS] CUBIN [--kernel NAME] [--grid X,Y,Z] [--block X,Y,Z] [--arg SPEC]...")]
#[command(after_help = "Examples:
  nvdiag check -- ./program --its-options
  nvdiag check --checks race,sync --seeds 1..8 -- ./program
  nvdiag check sum.cubin --kernel sum --grid 4 --block 256 --arg buffer:4096:ramp \\
    --arg buffer:4:zero --arg u32:1024 --print 1:u32:1
  nvdiag check --json --report findings.json -- ./program

Exit codes: 3, or that of --error-exitcode, mistakes were found; else the program's code, or 128 and the
number of the signal that ended it: of a kernel 0; 2 also for bad usage, or if it cannot be run.")]
pub struct Args {
    /// A cubin, of which one kernel is launched in place of a program.
    #[arg(required_unless_present = "program")]
    cubin: Option<PathBuf>,
    /// Search for these, separated by commas: memory, init, race, sync, order, or all.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = checks)]
    checks: Checks,
    /// Run what nothing orders in the random order of this seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run it once for each seed from A to B, and report all findings together.
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    seeds: Option<Seeds>,
    /// Exit code where mistakes are found.
    #[arg(long, value_name = "CODE", default_value_t = 3)]
    error_exitcode: u8,
    /// Write the findings to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The software GPU: sim (the one in a program on hcq), nvgpu (libnvgpu_sim.so, below the system calls)
    /// [default: sim where the program's file contains one].
    #[arg(long, conflicts_with = "cubin")]
    device: Option<Device>,
    #[command(flatten)]
    kernel: kernel::Args,
    /// The program and its arguments.
    #[arg(last = true)]
    program: Vec<OsString>,
    /// Launch the kernel here.
    #[arg(long, hide = true)]
    in_this_process: bool,
}

/// A list of checks with at least one.
fn checks(list: &str) -> Result<Checks, String> {
    let checks: Checks = list.parse().map_err(|error: ga10b_sim::UnknownCheck| error.to_string())?;
    if checks.is_empty() { Err(format!("expected {}", Checks::EXPECTED)) } else { Ok(checks) }
}

impl Args {
    /// Runs the program, once or for each seed, and prints what was found.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        if let (true, Some(cubin)) = (self.in_this_process, &self.cubin) {
            self.kernel.launch(cubin, out)?;
            return Ok(Finding::Clean);
        }
        let mut program = self.program()?;
        // With JSON stdout is the document's.
        program.is_quiet = json && self.report.is_none();
        let mut report = match &self.report {
            Some(path) => {
                ensure_same_kind(path, "a report of nvdiag check", is_report)?;
                Some(OutputFile::named(path, "--report")?)
            }
            None => None,
        };
        let interrupts = Interrupts::hear()?;
        let words = program.command.iter().map(|word| word.to_string_lossy().into_owned());
        let mut checked = Checked::new(words.collect(), self.checks);
        let seeds: Vec<Option<u64>> = match self.seeds {
            Some(seeds) => seeds.each().map(Some).collect(),
            None => vec![self.seed],
        };
        let folder = tempfile::tempdir().context("cannot make a folder for the findings")?;
        for (number, seed) in seeds.into_iter().enumerate() {
            if interrupts.signal().is_some() {
                break;
            }
            let file = folder.path().join(number.to_string());
            let ended = program.run(self.checks, seed, &file, &interrupts)?;
            checked.add(seed, ended, &records(&file)?);
        }
        if let (0, false, Some(why)) = (checked.launches(), checked.has_problem(), program.why_silent()) {
            eprintln!("nvdiag: no launch was seen\n  {why}");
        }
        match &mut report {
            Some(file) => file.replace(&printed(&checked, json)?)?,
            None => drop(show(&checked, json, out)?),
        }
        Ok(Finding::Program(if checked.has_problem() { self.error_exitcode } else { checked.code() }))
    }

    /// The program to run: the user's, or this one with the kernel.
    fn program(&self) -> anyhow::Result<Program> {
        let Some(cubin) = &self.cubin else {
            if let Some(option) = self.kernel.first_given() {
                bail!("{option} is of a kernel of a cubin, and the program after -- launches its own");
            }
            return Program::of_user(&self.program, self.device);
        };
        ensure!(self.program.is_empty(), "either a cubin is given, or a program after --");
        let arch = self.kernel.arch(cubin)?;
        // The same command line, for a process of its own: a kernel may end it.
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let at =
            arguments.iter().position(|word| word == "check").context("the command's name is missing")?;
        arguments.insert(at + 1, "--in-this-process".into());
        let itself = std::env::current_exe().context("cannot find the program itself")?;
        Ok(Program::with_kernel(cubin, itself, arguments, arch))
    }
}

/// Whether a file begins as a report does.
fn is_report(start: &[u8]) -> bool {
    start.starts_with(b"========= NVDIAG CHECK") || start.starts_with(b"{\n  \"schema\": \"nvdiag.check/")
}

/// The lines that machines left; none if no machine had something to tell.
fn records(file: &Path) -> anyhow::Result<Records> {
    match read_regular(file, FINDINGS_BYTES) {
        Ok(text) => Ok(Records::read(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Records::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read the findings, {}", file.display())),
    }
}

/// The report as it is written to a file.
fn printed(checked: &Checked, json: bool) -> anyhow::Result<Vec<u8>> {
    let mut text = anstream::StripStream::new(Vec::new());
    match json {
        true => checked.print_json(&mut text)?,
        false => checked.print(&mut text)?,
    }
    Ok(text.into_inner())
}
