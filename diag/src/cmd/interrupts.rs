//! Signals that end the program.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// The signals that are handled.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Signals of one wish come within this time.
const TOGETHER: Duration = Duration::from_secs(1);

/// Whether a signal has come.
#[derive(Clone, Debug, Default)]
pub struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// Hears signals from now on, but for those that this process was started to ignore, as `nohup` does. A
    /// second signal ends the program at once, unless it comes with the first: `timeout` sends one to its child
    /// and another to the child's group.
    pub fn hear() -> anyhow::Result<Self> {
        let heard = Arc::new(AtomicUsize::new(0));
        let ignored = ignored();
        let heeded = SIGNALS.iter().filter(|signal| ignored >> (**signal as u32 - 1) & 1 == 0);
        let mut signals =
            Signals::new(heeded.map(|signal| *signal as i32)).context("cannot wait for signals")?;
        let writer = heard.clone();
        thread::spawn(move || {
            let mut first = None;
            for signal in signals.forever() {
                writer.store(signal as usize, Ordering::Relaxed);
                if first.get_or_insert_with(Instant::now).elapsed() >= TOGETHER {
                    low_level::exit(128 + signal);
                }
            }
        });
        Ok(Self(heard))
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<Signal> {
        Signal::try_from(i32::try_from(self.0.load(Ordering::Relaxed)).ok()?).ok()
    }
}

/// The set of signals that this process ignores, signal n in bit n - 1 (proc(5), `SigIgn`).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}
