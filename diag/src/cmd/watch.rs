//! `nvdiag watch`: a small service that keeps what explains a fault, before the process is gone.

use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use nvdiag::Report;
use nvdiag::process_map::ProcessMap;
use nvdiag::saved::Saved;
use nvdiag::session::Session;

use crate::cmd::finding::Finding;
use crate::cmd::follow::{Log, Next, follow};
use crate::cmd::keeper::{Keeper, Tail};
use crate::cmd::store::{self, Limits, Store};

/// Most faults explained of one read of the log.
const BATCH: usize = 200;

/// Save each GPU fault as it occurs: its report, log lines, process and address map.
///
/// Follows the kernel log until interrupted (ctrl-c, SIGTERM). `nvdiag list` and `nvdiag show` read what it has
/// saved. Of a process that still lives it keeps /proc/PID/cmdline, exe, maps and status (no environment, no
/// memory), and its GPU address space.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo nvdiag watch                           saves to /var/lib/nvdiag
  nvdiag watch --log kern.log --save faults   follows a file
  sudo systemctl enable --now nvdiag-watch    the same as a service, from the Debian package

Exit codes: 0 ended, and there was no fault; 1 there was one; 2 bad usage, the log cannot be
followed, or a fault could not be saved.")]
pub struct Args {
    /// Where to save; made if it is not there. Without it /var/lib/nvdiag of root, ~/.local/state/nvdiag of
    /// other users.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// A log to follow instead of the kernel's own: a file from its end on, through rotation, or a pipe; `-`
    /// for stdin.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Keep this many faults, the newest.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// Keep at most this much of them together, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    size: u32,
    /// Where programs leave their address maps (those started with HCQ_MAP_DIR): the map of a process that
    /// has ended is looked for there.
    #[arg(long, value_name = "DIR", env = "HCQ_MAP_DIR", hide_env_values = true)]
    maps: Option<PathBuf>,
}

impl Args {
    /// Follows the log, and saves.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let folder = match &self.save {
            Some(folder) => folder.clone(),
            None => store::default_folder()?,
        };
        let limits = Limits { faults: self.keep as usize, bytes: u64::from(self.size) << 20 };
        let log = match &self.log {
            Some(path) => Log::of(path)?,
            None => Log::of_kernel()?,
        };
        let folder =
            std::path::absolute(&folder).with_context(|| format!("cannot save to {}", folder.display()))?;
        let store = Store::open(folder, limits)?;
        let maps = self.maps.clone().filter(|maps| !maps.as_os_str().is_empty());
        let mut keeper = Keeper::new(store, maps, log.name());
        let mut session = Session::new(ProcessMap::default(), BATCH);
        let tail = RefCell::new(Tail::default());
        follow(log, &mut session, &mut |bytes| tail.borrow_mut().add(bytes), &mut |session| {
            for saved in keeper.hear(session, tail.borrow().bytes()) {
                // A reader that is gone, or a full disk that stdout is on, is no reason not to save.
                let _ = announce(&saved, json, out);
            }
            Ok(Next::Continue)
        })?;
        keeper.end(&mut |saved| {
            let _ = announce(saved, json, out);
        })
    }
}

/// Prints the saved fault: a line of text, or of JSON.
fn announce(saved: &Saved, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    match json {
        true => writeln!(out, "{}", saved.json()?)?,
        false => {
            writeln!(out, "saved as {}: {} ({})", saved.entry.number, saved.entry.verdict, saved.folder)?
        }
    }
    Ok(out.flush()?)
}
