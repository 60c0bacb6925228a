//! Signals that ask the program to end, and the end of a step's process with it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, ensure};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

/// The signals that are heard.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Whether somebody has asked to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// Hears signals from now on, but for those that this process was started to ignore, as `nohup` does. A
    /// second signal ends the program at once.
    pub fn hear() -> anyhow::Result<Self> {
        let (heard, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let ignored = ignored();
        for signal in SIGNALS.into_iter().filter(|signal| ignored >> (*signal as u32 - 1) & 1 == 0) {
            let number = signal as i32;
            // In this order: the first signal finds the flag unset, and sets it.
            signal_hook::flag::register_conditional_shutdown(number, 128 + number, again.clone())
                .and_then(|_| signal_hook::flag::register(number, again.clone()))
                .and_then(|_| signal_hook::flag::register_usize(number, heard.clone(), number as usize))
                .with_context(|| format!("cannot wait for {signal}"))?;
        }
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

/// Ends this process when its parent ends, however that ends.
///
/// # Errors
/// If `parent` has ended already.
pub fn end_with(parent: i32) -> anyhow::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot end with the parent process")?;
    // A parent that was gone before the call sends no signal.
    ensure!(getppid() == Pid::from_raw(parent), "the process that asked for the step has ended");
    Ok(())
}
