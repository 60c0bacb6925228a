//! The program, in a process with a software GPU.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use ga10b_sim::{Checks, SimConfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nvdiag::checked::Ended;
use sass::Arch;

use crate::cmd::interrupts::Interrupts;
use crate::cmd::{executable, preload};

/// The software GPU below the system calls of a program.
const LIBRARY: &str = "libnvgpu_sim.so";
/// Time that a program has to end after a signal.
const GRACE: Duration = Duration::from_secs(10);
/// Most bytes of a program's file that are searched.
const MOST_SEARCHED: u64 = 1 << 30;

/// Place of the software GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// In the program, as a part of hcq.
    Sim,
    /// In a library below its system calls.
    Nvgpu,
}

/// A program, and the surroundings that give it a software GPU.
#[derive(Debug)]
pub struct Program {
    /// Its command line, for people.
    pub command: Vec<OsString>,
    /// Whether its stdout is stderr.
    pub is_quiet: bool,
    file: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    device: Device,
    /// Whether it is this program, with a kernel.
    is_kernel: bool,
}

impl Program {
    /// A program of the user's.
    ///
    /// # Errors
    /// It is not there, or the library that it needs.
    pub fn of_user(command: &[OsString], device: Option<Device>) -> anyhow::Result<Self> {
        let (name, arguments) = command.split_first().context("no program to check")?;
        let file = executable::find(name)?;
        let device = device.unwrap_or_else(|| if has_device(&file) { Device::Sim } else { Device::Nvgpu });
        let mut variables = vec![];
        match device {
            Device::Sim => variables.push(("HCQ_DEVICE", OsString::from("sim"))),
            Device::Nvgpu => {
                let library = preload::find(LIBRARY)?.with_context(|| {
                    format!(
                        "{LIBRARY} is neither beside nvdiag nor in ../lib, and {} contains no software GPU\n  \
                         of a program whose library contains one: --device sim\n  \
                         else: cargo build -p ga10b-sim-preload",
                        file.display()
                    )
                })?;
                variables.push(("HCQ_DEVICE", "nvgpu".into()));
                variables.push((preload::VARIABLE, preload::before_others(library)));
            }
        }
        let (command, arguments) = (command.to_vec(), arguments.to_vec());
        Ok(Self { command, is_quiet: false, file, arguments, variables, device, is_kernel: false })
    }

    /// This program, which launches a kernel of a cubin for SMs of version `arch`.
    pub fn with_kernel(cubin: &Path, itself: PathBuf, arguments: Vec<OsString>, arch: Arch) -> Self {
        let arch = format!("sm_{}", arch.sm()).into();
        let variables = vec![("HCQ_DEVICE", "sim".into()), (SimConfig::ARCH, arch)];
        let command = vec![cubin.into()];
        let device = Device::Sim;
        Self { command, is_quiet: false, file: itself, arguments, variables, device, is_kernel: true }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(
        &self,
        checks: Checks,
        seed: Option<u64>,
        findings: &Path,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Ended> {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(SimConfig::CHECK, checks.to_string()).env(SimConfig::FINDINGS, findings);
        match seed {
            Some(seed) => command.env(SimConfig::SEED, seed.to_string()),
            None => command.env_remove(SimConfig::SEED),
        };
        if self.is_quiet {
            command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
        }
        let child = command.spawn();
        let mut child = child.with_context(|| format!("cannot start {}", self.file.display()))?;
        let status = wait(&mut child, interrupts).context("cannot wait for the program")?;
        Ok(ended(status))
    }

    /// Advice where no launch was seen; a kernel of a cubin that is not launched has told why.
    pub fn why_silent(&self) -> Option<String> {
        if self.is_kernel {
            return None;
        }
        Some(match self.device {
            Device::Sim => {
                "the software GPU in the program launched nothing; a program that it starts has its own, \
                            if it is on hcq\n  \
                            if its GPU is that of the system calls: --device nvgpu"
                    .to_owned()
            }
            Device::Nvgpu => format!(
                "programs on hcq, and on the driver's interface of a Jetson (/dev/nvgpu, /dev/nvhost-*), are seen\n  \
                 one that is linked statically, or is setuid, does not load {LIBRARY}\n  \
                 of a program on CUDA: nvcc -cubin -arch=sm_87 -lineinfo FILE.cu, then nvdiag check FILE.cubin"
            ),
        })
    }
}

/// The software GPU in a library: the name by which programs load it.
const LIBHCQ: &str = "libhcq.so.";

/// Whether a program's file contains a software GPU that leaves its findings, as it names the variable, or a library
/// that does.
fn has_device(file: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MOST_SEARCHED).read_to_end(&mut bytes));
    // Some may be executed and not read.
    read.is_ok()
        && [SimConfig::FINDINGS, LIBHCQ]
            .iter()
            .any(|name| memchr::memmem::find(&bytes, name.as_bytes()).is_some())
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// Waits for its end; a signal that ends this program is passed on to it.
fn wait(child: &mut Child, interrupts: &Interrupts) -> io::Result<ExitStatus> {
    let process = Pid::from_raw(child.id().cast_signed());
    let mut passed: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match (interrupts.signal(), passed) {
            (Some(signal), None) => {
                passed = Some(Instant::now());
                if !(signal == Signal::SIGINT && is_foreground()) {
                    // It may have ended meanwhile.
                    let _ = kill(process, signal);
                }
            }
            (_, Some(since)) if since.elapsed() > GRACE => child.kill()?,
            _ => {}
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the terminal sends Ctrl-C to this process and those that it started, as it does to its foreground.
fn is_foreground() -> bool {
    // After the name in brackets: state, parent, group, session, terminal, its foreground group (proc(5)).
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    fields.get(2).is_some_and(|group| fields.get(5) == Some(group))
}
