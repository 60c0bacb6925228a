//! `nvdiag esr`: says what stopped the GPU, from the kernel log, from registers, or from a live process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use nvdiag::Report;
use nvdiag::fault::Incident;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use nvgpu_sys::Linux;

use super::{kernel_log, live, number, read_input, show};
use crate::Finding;

/// Explain GPU faults: what happened, where, which instruction, likely causes, what to try.
///
/// Reads the live kernel log unless told otherwise. Knows the lines of nvgpu (Jetson), of the desktop driver (Xid), of
/// nouveau, and of the SMMU, the memory controller and nvmap beside them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A saved kernel log instead of the live one; `-` for stdin.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["warp_esr", "pid", "watch"])]
    log: Option<PathBuf>,
    /// A warp error register, typed by hand.
    #[arg(long, value_name = "HEX", value_parser = register)]
    warp_esr: Option<u32>,
    /// The SM-wide error register beside it.
    #[arg(long, value_name = "HEX", value_parser = register)]
    global_esr: Option<u32>,
    /// The program counter beside it.
    #[arg(long, value_name = "HEX", value_parser = address)]
    pc: Option<u64>,
    /// A running process: asks the driver for the SM records of its channel groups (nvgpu), through copies of its
    /// descriptors.
    #[arg(long, value_name = "PID", conflicts_with_all = ["warp_esr", "watch"])]
    pid: Option<u32>,
    /// Follow the live log and explain each fault as it comes, until interrupted.
    #[arg(long, conflicts_with = "warp_esr")]
    watch: bool,
    /// A program that was loaded: names the instruction at the pc. KERNEL's code begins at BASE; without KERNEL BASE is
    /// where the file's first byte lies; without BASE the place is guessed.
    #[arg(long, value_name = "FILE[:KERNEL][@BASE]")]
    cubin: Vec<String>,
    /// What is mapped: a file that hcq wrote (HCQ_MAP_DIR), or the output of `nvdiag vamap --json`.
    #[arg(long, value_name = "FILE")]
    map: Vec<PathBuf>,
    /// Base of the shared-memory window, where no map tells it.
    #[arg(long, value_name = "HEX", value_parser = address)]
    shared_window: Option<u64>,
    /// Base of the local-memory window, where no map tells it.
    #[arg(long, value_name = "HEX", value_parser = address)]
    local_window: Option<u64>,
    /// Show at most this many faults, the last ones.
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: usize,
}

/// Registers are pasted in hexadecimal, with or without 0x.
fn address(text: &str) -> Result<u64, String> {
    match text.starts_with("0x") || text.starts_with("0X") {
        true => number(text),
        false => number(&format!("0x{text}")),
    }
    .map_err(|_| "expected a hexadecimal number such as 0x10 or ff55a2a830".to_owned())
}

/// A register of 32 bits; the log's signed decimals are taken too.
fn register(text: &str) -> Result<u32, String> {
    let error = || "expected a register of 32 bits such as 0x10 or 0x0005000f".to_owned();
    if let Some(value) = text.strip_prefix('-') {
        return value
            .parse::<i64>()
            .ok()
            .and_then(|v| i32::try_from(-v).ok())
            .map(|v| v as u32)
            .ok_or_else(error);
    }
    u32::try_from(address(text)?).map_err(|_| error())
}

impl Args {
    /// Reads what is to be explained, and explains it.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        ensure!(
            self.warp_esr.is_some() || self.global_esr.is_none() && self.pc.is_none(),
            "--global-esr and --pc belong to a --warp-esr"
        );
        let mut session = Session::new(self.process_map()?, self.last);
        if let Some(warp_esr) = self.warp_esr {
            let mut incident = Incident::default();
            incident.add_registers(None, warp_esr, self.global_esr.unwrap_or(0), self.pc, None);
            session.take(&incident);
            return show(&session.finish("registers typed by hand"), json, out);
        }
        if let Some(pid) = self.pid {
            for incident in live::records(&Linux, pid)? {
                session.take(&incident);
            }
            return show(&session.finish(&format!("the channel groups of process {pid}")), json, out);
        }
        if self.watch {
            return watch(session, json, out);
        }
        let source = match &self.log {
            Some(path) => {
                feed_file(path, &mut session)?;
                path.display().to_string()
            }
            None => kernel_log::read(&mut |bytes| session.feed(bytes))?.to_owned(),
        };
        show(&session.finish(&source), json, out)
    }

    fn process_map(&self) -> anyhow::Result<ProcessMap> {
        let mut map = ProcessMap::default();
        for path in &self.map {
            let bytes = read_input(path)?;
            map.add_json(&bytes).with_context(|| format!("cannot use {} as a map", path.display()))?;
        }
        for (name, base) in [("shared memory", self.shared_window), ("local memory", self.local_window)] {
            if let Some(base) = base {
                map.add_window(name, base);
            }
        }
        for argument in &self.cubin {
            let (rest, base) = match argument.rsplit_once('@') {
                Some((rest, base)) => (rest, Some(address(base).map_err(anyhow::Error::msg)?)),
                None => (argument.as_str(), None),
            };
            let (file, kernel) = match rest.rsplit_once(':') {
                Some((file, kernel)) if !Path::new(rest).exists() => (file, Some(kernel)),
                _ => (rest, None),
            };
            let bytes = read_input(Path::new(file))?;
            map.add_cubin(file, &bytes, kernel, base).with_context(|| format!("cannot use {file}"))?;
        }
        Ok(map)
    }
}

/// Reads a file, or stdin for `-`, piece by piece.
fn feed_file(path: &Path, session: &mut Session) -> anyhow::Result<()> {
    let mut input: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?),
    };
    let mut bytes = vec![0; 1 << 16];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => session.feed(&bytes[..len]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Follows the live log: one report per fault, as text or as one JSON document per line.
fn watch(mut session: Session, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    /// Time between looks at the log; a fault whose lines are older than this is over.
    const LOOK: Duration = Duration::from_millis(200);
    let mut kmsg = kernel_log::Kmsg::open().context("cannot follow /dev/kmsg; run as root")?;
    kmsg.drain(&mut |_| {})?;
    eprintln!("nvdiag: following the kernel log; ctrl-c ends");
    loop {
        let mut quiet = true;
        kmsg.drain(&mut |bytes| {
            quiet = false;
            session.feed(bytes);
        })?;
        if quiet {
            session.close();
        }
        let list = session.take_reports("the kernel log (/dev/kmsg)");
        if list.has_problem() {
            match json {
                true => writeln!(out, "{}", list.json()?)?,
                false => list.print(out)?,
            }
            out.flush()?;
        }
        std::thread::sleep(LOOK);
    }
}
