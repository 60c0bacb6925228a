//! `nvdiag provoke`: makes a fault in a child process, and explains it.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{Device, DeviceOptions, Error, GpuVa, Kernel, LaunchConfig, QueueError, Selector};
use nvdiag::Hex;
use nvdiag::process_map::{Mapping, ProcessMap, WINDOW_BYTES, Window};
use nvdiag::provoke::{Capture, IMAGES, Kind, Outcome, Provoked, plant_illegal_word};

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;

/// Time limit of the kernel.
const DEADLINE: Duration = Duration::from_secs(3);
/// Polls after which the endless kernel ends: some seconds on a GPU.
const POLLS: u32 = 20_000_000;
/// Context-switch time after which the driver of the software ga10b stops the endless kernel.
const SWITCH_LIMIT: Duration = Duration::from_millis(500);
/// Warp instructions after which the software ga10b reports a kernel as hung.
const STALL_BUDGET: u64 = 1 << 20;

/// Make a fault on purpose, and show its report.
///
/// The fault happens in a process of its own and stops that process's channel alone. Kinds: misaligned, oob,
/// unmapped, illegal-instruction, window, stack, shared, constant, trap, timeout.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag provoke --list                     what the kinds do
  nvdiag provoke oob                        on the software ga10b
  nvdiag provoke misaligned --device nvgpu  on a Jetson

Exit codes: 0 the fault is the one that was meant; 1 it is another, or none; 2 bad usage, or no
device.")]
pub struct Args {
    /// Which fault.
    #[arg(required_unless_present = "list")]
    kind: Option<Kind>,
    /// Which device: sim (the software ga10b), rm (a desktop GPU), nvgpu (a Jetson's), auto.
    #[arg(long, env = "HCQ_DEVICE", default_value_t = Selector::Sim)]
    device: Selector,
    /// Seconds after which the child is killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    deadline: u32,
    /// Say what each kind does, and do nothing.
    #[arg(long)]
    list: bool,
    /// Make the fault here and print what is known of it.
    #[arg(long, hide = true)]
    in_this_process: bool,
}

impl Args {
    /// Runs the child, and explains its fault.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        if self.list {
            if json {
                let kinds: Vec<_> = Kind::ALL
                    .iter()
                    .map(|kind| serde_json::json!({ "kind": kind.name(), "does": kind.does() }))
                    .collect();
                let list = serde_json::json!({ "schema": "nvdiag.provoke-list/1", "kinds": kinds });
                writeln!(out, "{list:#}")?;
                return Ok(Finding::Clean);
            }
            for kind in Kind::ALL {
                writeln!(out, "{:<20} {}", kind.name(), kind.does())?;
            }
            return Ok(Finding::Clean);
        }
        let kind = self.kind.context("which fault?")?;
        if self.in_this_process {
            let capture = capture(kind, self.device)?;
            serde_json::to_writer(&mut *out, &capture)?;
            out.flush()?;
            // Dropping a device whose kernel still runs would wait for it; the kernel ends with the process's
            // channel.
            std::process::exit(0);
        }
        let capture = self.child(kind)?;
        show(&Provoked::new(kind, &capture), json, out)
    }

    fn child(&self, kind: Kind) -> anyhow::Result<Capture> {
        let program = std::env::current_exe().context("cannot find the program itself")?;
        let mut child = Command::new(program)
            .args(["provoke", kind.name(), "--in-this-process", "--device", &self.device.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the child process")?;
        let reader = |stream: Option<Box<dyn Read + Send>>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                stream.map_or(Ok(0), |s| s.take(64 << 20).read_to_end(&mut bytes)).map(|_| bytes)
            })
        };
        let text = reader(child.stdout.take().map(|s| Box::new(s) as _));
        let errors = reader(child.stderr.take().map(|s| Box::new(s) as _));
        let began = Instant::now();
        let limit = Duration::from_secs(self.deadline.into());
        let status = loop {
            match child.try_wait().context("cannot wait for the child process")? {
                Some(status) => break status,
                None if began.elapsed() > limit => {
                    child.kill().context("cannot end the child process")?;
                    child.wait()?;
                    bail!("the child process did not end within {limit:?} and was killed");
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        let join = |thread: thread::JoinHandle<io::Result<Vec<u8>>>| {
            thread.join().ok().and_then(Result::ok).unwrap_or_default()
        };
        let (text, errors) = (join(text), join(errors));
        ensure!(
            status.success(),
            "the child process could not make the fault ({status}): {}",
            String::from_utf8_lossy(&errors).trim_end().trim_start_matches("nvdiag: ")
        );
        serde_json::from_slice(&text).context("the child process printed something else than what it knows")
    }
}

/// Makes the fault in this process.
fn capture(kind: Kind, selector: Selector) -> anyhow::Result<Capture> {
    let mut options = DeviceOptions::default();
    options.reserve_windows = kind != Kind::Window;
    options.patience = DEADLINE;
    let mut config = ga10b_sim::SimConfig::from_env()?;
    config.executor.stall_budget = STALL_BUDGET;
    if kind == Kind::Timeout {
        // Alone on the GPU a kernel without an end is silence. Beside a desktop, on a driver that cannot
        // preempt it, a context switch waits for it.
        (config.session, config.cilp) = (ga10b_sim::Session::Desktop, false);
        options.switch_limit = Some(SWITCH_LIMIT);
    }
    let opened = if selector == Selector::Sim {
        let sim = ga10b_sim::Sim::try_new(config).context("cannot start the software ga10b")?;
        hcq::sim::open(sim, options)
    } else {
        Device::open_with(selector, options)
    };
    let device = opened.with_context(|| format!("cannot open device {selector}"))?;
    let arch = sass::Arch::from_sm(device.info().sm_number()).context("no code for this GPU")?;
    let image = match kind {
        Kind::IllegalInstruction => {
            plant_illegal_word(arch, kind.kernel()).context("the kernel has no load")?
        }
        _ => IMAGES.for_sm(arch.sm())?.to_vec(),
    };
    let program = device.load(&image)?;
    let kernel = program.kernel(kind.kernel())?;
    let failed = || format!("cannot run kernel {}", kind.kernel());
    let Launched { words, output, result } = launch(kind, &device, &kernel).with_context(failed)?;
    let mut map = address_space(&device);
    map.add_cubin("provoke", &image, Some(kind.kernel()), Some(kernel.address().raw()), &mut |_| None)?;
    let map = map.document();
    let capture = match result {
        Ok(()) => Capture::new(Outcome::Finished, String::new(), map),
        Err(error @ Error::Queue(QueueError::Timeout { .. })) => {
            Capture::new(Outcome::Timeout, error.to_string(), map)
        }
        Err(Error::Fault(report) | Error::Lost(report)) => Capture::of_fault(&report, map),
        Err(error) => return Err(error).with_context(failed),
    };
    Ok(Capture {
        device: format!("{} ({})", device.info().name, device.info().backend),
        launched: words,
        came_back: output.into_iter().map(|word| Hex(word.into())).collect(),
        ..capture
    })
}

/// The windows and mappings of a device.
fn address_space(device: &Device) -> ProcessMap {
    let mut map = ProcessMap::default();
    for (name, base) in device.windows() {
        let hopper = device.info().sm >= 0x900 && name.starts_with("shared");
        let size_bytes = if hopper { 4 << 30 } else { WINDOW_BYTES };
        map.windows.push(Window { name: name.to_owned(), base: Hex(base.raw()), size_bytes });
    }
    map.mappings.extend(device.memory_map().iter().map(|m| Mapping {
        what: m.what.to_owned(),
        va: Hex(m.va.raw()),
        size_bytes: m.len,
        ..Mapping::default()
    }));
    map
}

/// A launch, and what came of it.
struct Launched {
    /// Kernel, size and arguments.
    words: String,
    /// The first words of the output of a kernel that ran to its end.
    output: Vec<u32>,
    result: Result<(), Error>,
}

#[allow(unsafe_code, reason = "launching is unsafe")]
fn launch(kind: Kind, device: &Device, kernel: &Kernel) -> Result<Launched, Error> {
    // Large enough for memory of its own, so that no other buffer follows it.
    let buffer = device.alloc(16 << 20)?;
    let out = device.alloc(4096)?;
    buffer.write(0, &[0; 64])?;
    let args = hcq::Args::new();
    // Far past the tables of 64 bytes, and past an SM's memory of that kind.
    let index = 1_u32 << 20;
    let mut trapped = None;
    let args = match kind {
        Kind::Misaligned => args.u64(buffer.va().raw() + 4).buffer(&out),
        Kind::Oob => args.u64(behind(device, buffer.va().raw())).u32(1),
        Kind::Unmapped => args.u64(0).buffer(&out),
        Kind::IllegalInstruction => args.buffer(&buffer).buffer(&out),
        Kind::Window => {
            let base = device.windows()[0].1;
            let inside = GpuVa::new(base.raw() + (2 << 20)).unwrap_or(base);
            let lies_there = trapped.insert(device.alloc_at(inside, 64 << 10)?);
            args.buffer(lies_there).buffer(&out)
        }
        Kind::Stack => args.buffer(&out).u32(index).u32(3),
        Kind::Shared => args.buffer(&out).u32(index),
        // Past the bank's end, within the 64 KiB that a bank can have.
        Kind::Constant => args.buffer(&out).u32(0x3f00),
        Kind::Trap => args.buffer(&out).u32(1),
        Kind::Timeout => args.buffer(&buffer).u32(POLLS),
    };
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words: Vec<_> = args.as_bytes().chunks(4).map(|bytes| Hex(word(bytes)).to_string()).collect();
    let words =
        format!("kernel {} in 1 block of 1 thread, words of arguments {}", kind.kernel(), words.join(" "));
    let mut queue = device.queue()?;
    // SAFETY: the kernels touch `buffer`, `out`, and one word that nothing is mapped at or that the SM
    // refuses; they end by themselves.
    let end = unsafe { queue.launch(kernel, LaunchConfig::new(1, 1), &args) }.and_then(|()| queue.submit());
    let result = end.and_then(|end| end.wait(DEADLINE));
    let output = if result.is_ok() { out.read_vec(0, 2)? } else { Vec::new() };
    // Memory that the kernel may still read, and that the report shows as mapped, stays until the process
    // ends.
    std::mem::forget((queue, trapped, buffer, out));
    Ok(Launched { words, output, result })
}

/// The first address after the mapping at `va` that has nothing near it.
fn behind(device: &Device, va: u64) -> u64 {
    let mut map: Vec<(u64, u64)> =
        device.memory_map().iter().map(|m| (m.va.raw(), m.va.raw() + m.len)).collect();
    map.sort_unstable();
    // A driver may map in pages of 2 MiB.
    const PAGE: u64 = 2 << 20;
    let mut end = va;
    for (from, to) in map {
        if to > end && from <= end.next_multiple_of(PAGE) + PAGE {
            end = to;
        }
    }
    end.next_multiple_of(PAGE)
}
