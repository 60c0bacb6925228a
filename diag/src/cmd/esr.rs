//! `nvdiag esr`: explains why the GPU stopped, from the kernel log, from registers, or from a live process.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nvdiag::Report;
use nvdiag::address_map::{Window, ga10b_windows};
use nvdiag::fault::Incident;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;

use crate::cmd::finding::{Finding, is_broken_pipe, show};
use crate::cmd::follow::{Log, Next, follow};
use crate::cmd::input::{MAX_STREAM, architecture, read_input, read_map, read_source};
use crate::cmd::pictures::Pictures;
use crate::cmd::process::{Descriptor, Process};
use crate::cmd::register::{Register, address, register};
use crate::cmd::{kernel_log, live, process, vamap};

/// Explain GPU faults: what happened, where, which instruction, likely causes, what to try.
///
/// Reads a file, else what is piped in, else the live kernel log, unless an option names another source. Knows
/// the lines of nvgpu (Jetson), of the desktop driver (Xid), of nouveau, and of the SMMU, the memory controller
/// and nvmap beside them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo nvdiag esr                                  the faults in the live kernel log
  nvdiag esr kern.log.gz --last 1                  the last one of a file
  dmesg | nvdiag esr                               those of what another tool prints
  nvdiag esr --log kern.log --map map.json         with what the process had mapped
  nvdiag esr --log kern.log --map map.json --html report.html
  nvdiag esr --log kern.log --exe ./app            which instruction of a CUDA program
  nvdiag esr --warp-esr 16 --pc 0x1000001480 --cubin k.cubin:main@0x1000001300
  sudo nvdiag esr --pid 4711                       the records of a running process
  sudo nvdiag esr --watch --json                   one JSON document for each fault, as it occurs

Exit codes: 0 no fault, or only corrected errors; 1 a fault; 2 bad usage, or something cannot be
read.")]
pub struct Args {
    /// A saved kernel log instead of the live one, compressed with gzip or not; `-` for stdin.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["warp_esr", "pid"])]
    log: Option<PathBuf>,
    /// The same as --log FILE.
    #[arg(value_name = "LOG", conflicts_with_all = ["log", "warp_esr", "pid"])]
    file: Option<PathBuf>,
    /// A warp error register, typed by hand: hexadecimal with 0x, or decimal as nvgpu prints it.
    #[arg(long, value_name = "NUMBER", value_parser = register)]
    warp_esr: Option<Register>,
    /// The SM-wide error register beside it, in the same forms.
    #[arg(long, value_name = "NUMBER", value_parser = register)]
    global_esr: Option<Register>,
    /// The program counter beside it, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = address)]
    pc: Option<u64>,
    /// A running process: reads from the driver the SM records of its channel groups (nvgpu), through copies
    /// of its descriptors.
    #[arg(long, value_name = "PID", value_parser = process::number, conflicts_with_all = ["warp_esr", "watch"])]
    pid: Option<u32>,
    /// Follow the log and explain each fault as it occurs, until interrupted: the live one from now on, a
    /// file of --log from its end on (through rotation), a pipe until it ends. Exits with 1 if there was a
    /// fault.
    #[arg(long, conflicts_with = "warp_esr")]
    watch: bool,
    /// A program that was loaded: names the instruction at the pc. KERNEL's code begins at BASE; without
    /// KERNEL BASE is the address of the file's first byte; without BASE the address is guessed.
    #[arg(long, value_name = "FILE[:KERNEL][@BASE]")]
    cubin: Vec<String>,
    /// A CUDA program, or a shared library with its kernels: the same for the cubins in it that the GPU of the log
    /// runs. Without BASE the instructions that can have failed so are named as a guess.
    #[arg(long, value_name = "FILE[:KERNEL][@BASE]")]
    exe: Vec<String>,
    /// The GPU's architecture, e.g. sm_87, where the log does not tell it.
    #[arg(long, value_name = "SM", value_parser = architecture)]
    sm: Option<u32>,
    /// Address map: a file that hcq wrote (HCQ_MAP_DIR), or the output of `nvdiag vamap --json`.
    #[arg(long, value_name = "FILE")]
    map: Vec<PathBuf>,
    /// A window of the process that no map names, such as shared@0xfe00000000.
    #[arg(long, value_name = "NAME@ADDRESS", value_parser = vamap::window)]
    window: Vec<Window>,
    /// Show at most this many faults, the last ones.
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: usize,
    #[command(flatten)]
    pictures: Pictures,
}

impl Args {
    /// Reads the input, and explains it.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        ensure!(
            self.warp_esr.is_some() || self.global_esr.is_none() && self.pc.is_none(),
            "--global-esr and --pc belong to a --warp-esr"
        );
        let mut map = self.process_map()?;
        if let Some(warp_esr) = self.warp_esr {
            let mut session = Session::new(map, self.last);
            let (warp_esr, note) = warp_esr.warp_error();
            let mut incident = Incident { notes: note.into_iter().collect(), ..Incident::default() };
            incident.add_registers(None, warp_esr, self.global_esr.map_or(0, Register::bits), self.pc, None);
            session.take(&incident);
            return self.show(session, "registers typed by hand", json, out);
        }
        if let Some(pid) = self.pid {
            if let Some(other) = map.pid.filter(|other| *other != pid) {
                anyhow::bail!("the map of --map is of process {other}, not of process {pid}");
            }
            return self.of_process(pid, map, json, out);
        }
        if let Some(pid) = map.pid.filter(|_| map.host.is_empty()) {
            map.host = process::host_ranges(pid);
        }
        let mut session = Session::new(map, self.last);
        let log = self.log.as_deref().or(self.file.as_deref());
        if self.watch {
            let log = match log {
                Some(path) => Log::of(path)?,
                None => Log::of_kernel()?,
            };
            return watch(log, session, json, out);
        }
        let log = log.or_else(|| is_given(&io::stdin()).then_some(Path::new("-")));
        let source = match log {
            Some(path) => {
                feed_file(path, &mut session)?;
                path.display().to_string()
            }
            None => kernel_log::read(&mut |bytes| session.feed(bytes))?.to_owned(),
        };
        self.show(session, &source, json, out)
    }

    /// The records of a running process, with its address map.
    fn of_process(
        &self,
        pid: u32,
        mut map: ProcessMap,
        json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<Finding> {
        let (process, descriptors) = process::look_at(pid)?;
        let mut incidents = live::records(&process, &descriptors)?;
        if incidents.is_empty() && !json && !self.pictures.is_wanted() {
            writeln!(out, "no SM has reported an exception to the channel groups of {}", process.title())?;
            return Ok(Finding::Clean);
        }
        if self.map.is_empty() {
            let note = fetch_map(&process, &descriptors, &mut map)?;
            incidents.iter_mut().for_each(|incident| incident.notes.push(note.clone()));
        }
        let mut session = Session::new(map, self.last);
        for incident in incidents {
            session.take(&incident);
        }
        self.show(session, &format!("the channel groups of {}", process.title()), json, out)
    }

    /// Prints all reports, and draws the pictures that the options name.
    fn show(
        &self,
        session: Session,
        source: &str,
        json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<Finding> {
        let map = session.map().clone();
        let list = session.finish(source);
        self.pictures.write(&list, &map)?;
        show(&list, json, out)
    }

    fn process_map(&self) -> anyhow::Result<ProcessMap> {
        let mut map = ProcessMap::default();
        for path in &self.map {
            add_map(&mut map, path)?;
        }
        for window in &self.window {
            map.add_window(&window.name, window.base.0);
        }
        map.sm = self.sm;
        for argument in &self.cubin {
            let Loaded { file, kernel, base } = Loaded::of(argument, "--cubin")?;
            let bytes = read_input(Path::new(file))?;
            map.add_cubin(file, &bytes, kernel, base, &mut read_source)
                .with_context(|| format!("cannot use {file}"))?;
        }
        for argument in &self.exe {
            let Loaded { file, kernel, base } = Loaded::of(argument, "--exe")?;
            let bytes = read_input(Path::new(file))?;
            map.add_program(file, &bytes, (kernel, base), self.sm, &mut read_source)
                .with_context(|| format!("cannot use {file}"))?;
        }
        Ok(map)
    }
}

/// Whether a stream is of one of these kinds.
fn is_of(stream: &impl AsFd, kinds: &[SFlag]) -> bool {
    let kind = |stat: FileStat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    fstat(stream).is_ok_and(|stat| kinds.contains(&kind(stat)))
}

/// Whether a user gave this stream something to read: a pipe or a file. Services and jobs have a device, or a
/// socket of which nothing ends.
fn is_given(stream: &impl AsFd) -> bool {
    is_of(stream, &[SFlag::S_IFIFO, SFlag::S_IFREG])
}

fn is_device(stream: &impl AsFd) -> bool {
    is_of(stream, &[SFlag::S_IFCHR, SFlag::S_IFBLK])
}

/// A file of code, the kernel meant and its address: `FILE[:KERNEL][@BASE]`.
struct Loaded<'a> {
    file: &'a str,
    kernel: Option<&'a str>,
    base: Option<u64>,
}

impl<'a> Loaded<'a> {
    fn of(argument: &'a str, option: &str) -> anyhow::Result<Self> {
        let whole = || Self { file: argument, kernel: None, base: None };
        let (rest, base) = match argument.rsplit_once('@') {
            _ if Path::new(argument).exists() => return Ok(whole()),
            Some((rest, base)) => {
                let base = address(base).map_err(anyhow::Error::msg);
                (rest, Some(base.with_context(|| format!("cannot use {option} {argument}"))?))
            }
            None => (argument, None),
        };
        if Path::new(rest).exists() {
            return Ok(Self { file: rest, kernel: None, base });
        }
        // A demangled name has colons, too: the file is what exists.
        let mut colons = rest.match_indices(':').map(|(at, _)| at);
        let at = colons.find(|at| Path::new(&rest[..*at]).exists()).or_else(|| rest.rfind(':'));
        Ok(match at {
            Some(at) => Self { file: &rest[..at], kernel: Some(&rest[at + 1..]), base },
            None => Self { file: rest, kernel: None, base },
        })
    }
}

/// Adds the mappings of a running process: by the file that it writes itself, or by the driver's answers.
/// Returns which of them it was.
fn fetch_map(process: &Process, descriptors: &[Descriptor], map: &mut ProcessMap) -> anyhow::Result<String> {
    if let Some(path) = process::map_file(process.pid()) {
        add_map(map, &path)?;
        map.host = process.host_ranges();
        return Ok(format!("the address map is the one that the process keeps, {}", path.display()));
    }
    // Records of a process that does not permit more are worth showing.
    let found = match vamap::read_process(process, descriptors, Vec::new()) {
        Ok(found) => found,
        Err(error) => return Ok(format!("the address map cannot be read: {error:#}")),
    };
    map.add_json(found.json()?.to_string().as_bytes())
        .context("cannot use the address map of the process")?;
    let mut note = "the address map is that of the process now, by the driver".to_owned();
    if map.windows.is_empty() {
        for window in ga10b_windows() {
            map.add_window(&format!("assumed {}", window.name), window.base.0);
        }
        note += "; the windows are assumed to be where ports to ga10b put them (--window)";
    }
    Ok(note)
}

fn add_map(map: &mut ProcessMap, path: &Path) -> anyhow::Result<()> {
    let bytes = read_map(path)?;
    map.add_json(&bytes).with_context(|| format!("cannot use {} as a map", path.display()))
}

/// Reads a file, or stdin for `-`, piece by piece; what gzip packed is unpacked.
fn feed_file(path: &Path, session: &mut Session) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let mut input: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => {
            let file = File::open(path).with_context(failed)?;
            let kind = file.metadata().with_context(failed)?.file_type();
            ensure!(
                !kind.is_block_device() && !kind.is_char_device() || file.is_terminal(),
                "{} is a device, which may have no end: the live log is read without --log",
                path.display()
            );
            Box::new(file)
        }
    };
    let mut start = Vec::new();
    input.by_ref().take(MAGIC).read_to_end(&mut start).with_context(failed)?;
    let is_stdin = path.as_os_str() == "-";
    ensure!(
        !start.is_empty(),
        "{} is empty: no log",
        if is_stdin { "stdin".into() } else { path.display().to_string() }
    );
    let stdin = io::stdin();
    ensure!(
        !is_stdin || !is_device(&stdin) || stdin.is_terminal(),
        "stdin is a device, which may have no end, and no log"
    );
    let packed = Packed::of(&start);
    let (is_packed, mut any) = (packed.is_some(), false);
    let input = io::Cursor::new(start).chain(input);
    let mut input: Box<dyn Read> = match packed {
        None => Box::new(input),
        Some(Packed::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(input)),
        Some(Packed::Other { what, unpack }) => {
            anyhow::bail!("{} is {what}: try `{unpack} | nvdiag esr --log -`", path.display())
        }
    };
    let (mut bytes, mut line) = (vec![0; 1 << 16], 0);
    loop {
        match input.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                let unended = bytes[..len].iter().rev().take_while(|byte| **byte != b'\n').count();
                line = if unended == len { line + len as u64 } else { unended as u64 };
                ensure!(
                    line <= MAX_STREAM,
                    "{} has a line of more than 64 MiB, and so is no log: /dev/zero and the like have no end",
                    path.display()
                );
                session.feed(&bytes[..len]);
                any = true;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Of a packed log that is cut off the lines before the cut are known.
            Err(e) if is_packed && any && e.kind() == io::ErrorKind::UnexpectedEof => {
                eprintln!("nvdiag: {} is cut off: the lines before its end are read", path.display());
                return Ok(());
            }
            Err(e) => return Err(e).with_context(failed),
        }
    }
}

/// Bytes that identify a file's format.
const MAGIC: u64 = 8;

/// Compression of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packed {
    Gzip,
    /// Another tool unpacks it.
    Other {
        what: &'static str,
        unpack: &'static str,
    },
}

impl Packed {
    fn of(start: &[u8]) -> Option<Self> {
        let other = |what, unpack| Some(Self::Other { what, unpack });
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => other("packed with xz", "xzcat FILE"),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => other("packed with zstd", "zstdcat FILE"),
            [b'B', b'Z', b'h', ..] => other("packed with bzip2", "bzcat FILE"),
            b"LPKSHHRH" => other("a journal of systemd", "journalctl -k -o short-monotonic --file FILE"),
            [0x7f, b'E', b'L', b'F', ..] => other("a binary, no log", "dmesg"),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => other("text in UTF-16", "iconv -f utf-16 -t utf-8 FILE"),
            _ => None,
        }
    }
}

/// Follows a log: one report per fault, as text or as one JSON document per line.
fn watch(log: Log, mut session: Session, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let mut finding = Finding::Clean;
    let name = log.name();
    follow(log, &mut session, &mut |_| {}, &mut |session| {
        let list = session.take_reports(&name);
        if !list.has_problem() {
            return Ok(Next::Continue);
        }
        finding = Finding::Problem;
        let printed = match json {
            true => writeln!(out, "{}", list.json()?),
            false => list.print(out),
        };
        match printed.and_then(|()| out.flush()).map_err(anyhow::Error::from) {
            Err(error) if is_broken_pipe(&error) => Ok(Next::End),
            printed => printed.map(|()| Next::Continue),
        }
    })?;
    Ok(finding)
}
