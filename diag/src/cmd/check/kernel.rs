//! One kernel of a cubin, launched on the software GPU.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{Buffer, Device, LaunchConfig, QueueError, Selector, SyncPoint};
use nvdiag::cubin::{Cubin, Kernel};
use sass::Arch;

use crate::cmd::check::argument::{Argument, Contents, Element, Shown, extent};
use crate::cmd::input::{read_input, read_regular};

/// Elements that are printed where no number is given.
const FEW: u64 = 16;
/// Elements of a printed line.
const LINE: usize = 8;

/// Time after which a wait looks whether the software GPU has found that a launch never ends.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Heading of these options in the help.
const HEADING: &str = "Options of a kernel of a cubin";

/// A launch.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Args {
    /// The kernel, as the cubin or its source spells it [default: the only one].
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Blocks of the grid [default: 1].
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    grid: Option<[u32; 3]>,
    /// Threads of a block [default: 32].
    #[arg(long, value_name = "X,Y,Z", value_parser = extent)]
    block: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    #[arg(long, value_name = "BYTES")]
    shared: Option<u32>,
    /// An argument, in the kernel's order: buffer:BYTES (nothing is written to it), buffer:BYTES:zero,
    /// buffer:BYTES:ramp (0, 1, 2 as u32), buffer:BYTES:ramp.f32, buffer:BYTES:FILE, u32:7, i32:-1,
    /// f32:1.5 and so on, bytes:HEX.
    #[arg(long = "arg", value_name = "SPEC", allow_hyphen_values = true)]
    arguments: Vec<Argument>,
    /// Print a buffer after the launch: its argument's number from 0, a type and a number of elements.
    #[arg(long = "print", value_name = "ARG[:TYPE[:COUNT]]")]
    shown: Vec<Shown>,
    /// Seconds after which the launch is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    deadline: u32,
}

/// A cubin's file, which must be one.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = read_input(path)?;
    if let Some(what) = other_input(path, &bytes) {
        bail!("{what}");
    }
    Ok(bytes)
}

/// Kind of a file that people take for a cubin, and the command that makes one of it.
fn other_input(path: &Path, bytes: &[u8]) -> Option<String> {
    let file = path.display();
    let cubin: PathBuf = path.with_extension("cubin");
    let cubin = cubin.display();
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
    let directive = |name: &str| {
        let mut lines = start.lines().filter_map(|line| line.trim_start().strip_prefix(name));
        lines
            .find_map(|rest| rest.split_whitespace().next().map(|word| word.trim_end_matches(',').to_owned()))
    };
    if bytes.starts_with(b"\x7fELF") {
        let machine = bytes.get(18..20).map(|word| u16::from_le_bytes([word[0], word[1]]));
        // The machines of x86-64 and of aarch64 (elf.h).
        let is_program = matches!(machine, Some(62 | 183));
        return is_program.then(|| {
            format!(
                "{file} is a program of this machine, no cubin\n  \
                 try: nvdiag check -- {file}, or of CUDA kernels in it cuobjdump -xelf all {file}"
            )
        });
    }
    match (directive(".version"), directive(".target")) {
        (Some(_), Some(target)) => Some(format!(
            "{file} is PTX, and the software GPU executes machine code\n  \
             try: ptxas -arch={target} -lineinfo {file} -o {cubin}"
        )),
        _ if path.extension().is_some_and(|extension| extension == "cu") || start.contains("__global__") => {
            Some(format!(
                "{file} is source code, and the software GPU executes machine code\n  \
                 try: nvcc -cubin -arch=sm_87 -lineinfo {file} -o {cubin}"
            ))
        }
        _ => None,
    }
}

impl Args {
    /// The first option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.kernel.is_some(), "--kernel"),
            (self.grid.is_some(), "--grid"),
            (self.block.is_some(), "--block"),
            (self.shared.is_some(), "--shared"),
            (!self.arguments.is_empty(), "--arg"),
            (!self.shown.is_empty(), "--print"),
        ];
        given.into_iter().find(|option| option.0).map(|option| option.1)
    }

    /// Version of the SMs that execute the cubin, whose kernel takes the arguments.
    ///
    /// # Errors
    /// The file is no cubin, has no such kernel, or one that takes other arguments.
    pub fn arch(&self, path: &Path) -> anyhow::Result<Arch> {
        let bytes = read(path)?;
        let cubin = self.cubin(path, &bytes)?;
        let kernel = self.only(&cubin)?;
        self.check_arguments(kernel)?;
        for shown in &self.shown {
            let is_buffer = matches!(self.arguments.get(shown.argument), Some(Argument::Buffer { .. }));
            ensure!(is_buffer, "--print {}: argument {0} is no buffer", shown.argument);
        }
        ensure!(
            cubin.arch.is_run(),
            "{} is for sm_{}, and the software GPU executes sm_80, sm_86, sm_87, sm_89 and sm_90",
            path.display(),
            cubin.sm
        );
        Ok(cubin.arch)
    }

    fn cubin<'a>(&self, path: &Path, bytes: &'a [u8]) -> anyhow::Result<Cubin<'a>> {
        let cubin = Cubin::parse(bytes, self.kernel.as_deref());
        cubin.with_context(|| format!("cannot use {} as a cubin", path.display()))
    }

    /// The kernel that is meant.
    fn only<'a, 'b>(&self, cubin: &'b Cubin<'a>) -> anyhow::Result<&'b Kernel<'a>> {
        match cubin.kernels.as_slice() {
            [only] => Ok(only),
            [] => bail!("the cubin has no kernel of that name to launch"),
            several => {
                let names: Vec<_> = several.iter().map(|kernel| kernel.name).collect();
                bail!("which kernel? --kernel takes one of {}", names.join(", "))
            }
        }
    }

    /// Compares the arguments with the parameters, by the attributes of the cubin.
    fn check_arguments(&self, kernel: &Kernel<'_>) -> anyhow::Result<()> {
        let (name, given) = (kernel.name, self.arguments.len());
        let parameters = &kernel.resources.parameters;
        let sizes: Vec<_> = parameters.iter().map(|parameter| parameter.size_bytes.to_string()).collect();
        ensure!(
            parameters.len() == given,
            "{name} takes {} parameters (of {} bytes), and {given} are given by --arg",
            parameters.len(),
            if sizes.is_empty() { "no".to_owned() } else { sizes.join(", ") }
        );
        for (argument, parameter) in self.arguments.iter().zip(parameters) {
            let (ordinal, wanted) = (parameter.ordinal, parameter.size_bytes);
            ensure!(
                argument.size() == wanted as usize,
                "parameter {ordinal} of {name} has {wanted} bytes, and {} {}",
                argument.ty(),
                argument.size()
            );
        }
        Ok(())
    }

    /// Launches the kernel in this process, and prints the buffers that are asked for.
    ///
    /// # Errors
    /// Those of the launch.
    pub fn launch(&self, path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
        let bytes = read(path)?;
        let cubin = self.cubin(path, &bytes)?;
        let about = self.only(&cubin)?;
        let device = Device::open(Selector::Sim).context("cannot start the software GPU")?;
        let kernel = device.load(&bytes)?.kernel(about.name)?;
        let mut buffers = Vec::new();
        let mut args = hcq::Args::new();
        for (number, (argument, parameter)) in
            self.arguments.iter().zip(&about.resources.parameters).enumerate()
        {
            match argument {
                Argument::Buffer { bytes, contents } => {
                    let buffer = device.alloc(*bytes)?;
                    buffer.set_name(&format!("arg {number}"));
                    fill(&buffer, contents)?;
                    args = args.buffer(&buffer);
                    buffers.push((number, buffer));
                }
                Argument::Value { bytes, .. } => {
                    // Its own alignment is not in the cubin: that of its place, as far as its size has it.
                    let most = 1 << bytes.len().next_power_of_two().trailing_zeros().min(4);
                    let place = 1_usize << u32::from(parameter.offset).trailing_zeros().min(4);
                    args = args.bytes(bytes, place.min(most));
                }
            }
            let end = args.as_bytes().len() - argument.size();
            ensure!(
                end == usize::from(parameter.offset),
                "parameter {number} of {} is at offset {}, and the arguments before it end at {end}",
                about.name,
                parameter.offset
            );
        }
        let config = LaunchConfig::new(self.grid.unwrap_or([1; 3]), self.block.unwrap_or([32, 1, 1]))
            .with_dynamic_shared(self.shared.unwrap_or(0));
        let done = run(&device, &kernel, config, &args, Duration::from_secs(self.deadline.into()));
        if done.is_err() {
            // It may still run: freed memory would be a mistake of its own, and dropping the device waits for it.
            std::mem::forget((device, kernel, buffers));
            return done.with_context(|| format!("cannot run kernel {}", about.name));
        }
        for shown in &self.shown {
            let buffer = buffers.iter().find(|(number, _)| *number == shown.argument);
            print(shown, &buffer.context("it is no buffer")?.1, out)?;
        }
        Ok(())
    }
}

#[allow(unsafe_code, reason = "launching is unsafe")]
fn run(
    device: &Device,
    kernel: &hcq::Kernel,
    config: LaunchConfig,
    args: &hcq::Args,
    deadline: Duration,
) -> Result<(), hcq::Error> {
    let mut queue = device.queue()?;
    // SAFETY: the GPU is software, which reaches this device's memory alone, and its checks are here to tell what
    // the kernel does wrong there. Nothing else uses the buffers until the wait has ended.
    let launched = unsafe { queue.launch(kernel, config, args) };
    let ended = launched.and_then(|()| queue.submit()).and_then(|point| wait(device, &point, deadline));
    if ended.is_err() {
        // Its kernel may not have ended.
        std::mem::forget(queue);
    }
    ended
}

/// Waits for a launch, and no longer once the software GPU says that it never ends.
fn wait(device: &Device, point: &SyncPoint, deadline: Duration) -> Result<(), hcq::Error> {
    let (began, sim) = (Instant::now(), hcq::sim::of(device));
    loop {
        let left = deadline.saturating_sub(began.elapsed());
        let mut ended = point.wait(left.min(LOOK_EVERY));
        let Err(hcq::Error::Queue(QueueError::Timeout { limit, .. })) = &mut ended else { return ended };
        *limit = began.elapsed();
        if left <= LOOK_EVERY || sim.as_ref().is_some_and(|sim| !sim.faults().is_empty()) {
            return ended;
        }
    }
}

/// Writes the initial contents of a buffer.
fn fill(buffer: &Buffer, contents: &Contents) -> anyhow::Result<()> {
    let words = buffer.len().div_ceil(4);
    let ramp = |word: &dyn Fn(u32) -> [u8; 4]| {
        let mut bytes: Vec<u8> = (0..words).flat_map(|index| word(index as u32)).collect();
        bytes.truncate(buffer.len() as usize);
        bytes
    };
    let bytes = match contents {
        Contents::Nothing => return Ok(()),
        Contents::Zero => vec![0; buffer.len() as usize],
        Contents::Ramp => ramp(&|index| index.to_le_bytes()),
        Contents::RampF32 => ramp(&|index| (index as f32).to_le_bytes()),
        Contents::File(path) => read_regular(path, buffer.len())
            .with_context(|| format!("cannot fill a buffer from {}", path.display()))?,
    };
    Ok(buffer.write(0, &bytes)?)
}

fn print(shown: &Shown, buffer: &Buffer, out: &mut dyn Write) -> anyhow::Result<()> {
    let Shown { argument, element, count } = *shown;
    let (name, size) = Element::facts(element);
    let all = buffer.len() / size as u64;
    let count = count.unwrap_or(FEW).min(all);
    let mut bytes = vec![0; count as usize * size];
    buffer.read(0, &mut bytes)?;
    writeln!(out, "arg {argument}, {count} of {all} {name}:")?;
    for (line, chunk) in bytes.chunks(LINE * size).enumerate() {
        let words: Vec<_> = chunk.chunks(size).map(|bytes| element.words(bytes)).collect();
        writeln!(out, "{:>8}  {}", line * LINE, words.join(" "))?;
    }
    Ok(())
}
