//! The kernel log: the driver's lines in the driver's own format.

use crate::clock::Clock;
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

/// Longest message the driver prints; the rest of a line is lost.
const MESSAGE_MAX: usize = 159;
/// Lines kept.
const LINES: usize = 4096;
/// Platform name of the GPU.
pub(crate) const DEVICE: &str = "17000000.gpu";

/// Place in the driver that prints a line: function and source line (L4T r36.4.3).
pub(crate) type Site = (&'static str, u32);

/// The driver's lines since the machine started.
#[derive(Debug)]
pub(crate) struct KernelLog {
    lines: Mutex<VecDeque<String>>,
    echo: bool,
}

impl KernelLog {
    /// An empty log; `echo` also prints every line to stderr.
    pub(crate) fn new(echo: bool) -> Self {
        Self { lines: Mutex::default(), echo }
    }

    /// A line of the driver at error level.
    pub(crate) fn error(&self, clock: &Clock, (function, line): Site, message: &str) {
        let cut = message.char_indices().nth(MESSAGE_MAX).map_or(message.len(), |(at, _)| at);
        let message = &message[..cut];
        self.push(clock, format!("nvgpu: {DEVICE} {function:>33}:{line:<4} [ERR]  {message}"));
    }

    /// A line of the dump after recovery.
    pub(crate) fn dump(&self, clock: &Clock, text: &str) {
        self.push(clock, format!("__ga10b__ {text}"));
    }

    /// Any other kernel line.
    pub(crate) fn push(&self, clock: &Clock, text: String) {
        let up = clock.uptime();
        let line = format!("[{:5}.{:06}] {text}", up.as_secs(), up.subsec_micros());
        if self.echo {
            // A failed write to stderr is no reason to stop.
            let _ = writeln!(io::stderr(), "{line}");
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// All lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;

    #[test]
    fn lines_have_the_drivers_frame_and_are_cut_where_it_cuts() {
        let (log, clock) = (KernelLog::new(false), Clock::new(&Time::Host));
        log.error(&clock, ("gv11b_fb_mmu_fault_info_dump", 294), &"x".repeat(200));
        log.error(&clock, ("gv11b_gr_intr_record_sm_error_state", 1949), "sm");
        let lines = log.lines();
        let (_, first) = lines[0].split_once("] ").unwrap();
        let expected = "nvgpu: 17000000.gpu      gv11b_fb_mmu_fault_info_dump:294  [ERR]  ";
        assert_eq!(first, format!("{expected}{}", "x".repeat(159)));
        assert!(lines[1].ends_with("nvgpu: 17000000.gpu gv11b_gr_intr_record_sm_error_state:1949 [ERR]  sm"));
    }
}
