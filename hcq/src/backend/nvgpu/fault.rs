//! Reads back what the driver recorded about an error.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use super::handle::Handle;
use super::mmu_fault;
use crate::backend::kernel_log::KernelLog;
use crate::backend::{MmuError, RawFault};
use crate::error::report::SmRecord;

/// Error notifier of an MMU fault.
const MMU_FAULT: u32 = nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT;
/// Longest delay of an MMU fault's log line after the notifier: where the SM's exception is handled first, the
/// driver notifies of that, recovers, and then prints the fault (source: common/gr/gr_intr.c, and
/// `nvgpu_set_err_notifier_if_empty` in hal/init/hal_ga10b.c, r36.4.3). The driver's own delay is not known.
const LATE_LINES: Duration = Duration::from_millis(100);
/// Pause between two looks at the log.
const PAUSE: Duration = Duration::from_millis(2);

/// The record of one SM; `None` if it cannot be read.
fn sm_record(tsg: &Handle, sm: u32) -> Option<SmRecord> {
    let record = nvgpu_sys::sm_error_state(tsg.sys(), tsg.as_fd(), sm).ok()?;
    Some(SmRecord { sm, global_esr: record.global_esr, warp_esr: record.warp_esr, pc: record.warp_esr_pc })
}

/// Everything there is about the error of channel number `channel` of the group `tsg`, whose notifier holds
/// `notifier`. Waits for the line of an MMU fault where one has to come and the log can be read.
pub(super) fn read(
    tsg: &Handle,
    sm_count: u32,
    notifier: u32,
    channel: Option<u32>,
    log: &dyn KernelLog,
) -> RawFault {
    let records = (0..sm_count).filter_map(|sm| sm_record(tsg, sm));
    let sms: Vec<SmRecord> = records.filter(|r| r.global_esr != 0 || r.warp_esr != 0).collect();
    let due = notifier == MMU_FAULT || sms.iter().any(SmRecord::is_mmu_error);
    let (mmu, lines) = mmu_error(channel, log, if due { LATE_LINES } else { Duration::ZERO });
    // The dump of channels and pushbuffers that follows an error says nothing about its cause.
    let lines = lines.into_iter().filter(|line| !line.starts_with("__") && !line.contains(" __")).collect();
    let stopped = channel.and_then(|channel| log.stopped(channel));
    RawFault { notifier, sms, mmu, log: lines, explanation: log.explanation(), stopped }
}

/// The MMU fault of a channel, looked for until `patience` is over, and the lines of the log by then.
fn mmu_error(
    channel: Option<u32>,
    log: &dyn KernelLog,
    patience: Duration,
) -> (Option<MmuError>, Vec<String>) {
    let start = Instant::now();
    loop {
        let Some(lines) = log.lines() else { return (None, Vec::new()) };
        let Some(channel) = channel else { return (None, lines) };
        let found = mmu_fault::last(&lines, channel);
        if found.is_some() || start.elapsed() >= patience {
            return (found, lines);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const OURS: u32 = 511;

    /// A log with a line of another channel, and from a look on, from 0, one of ours.
    struct Growing {
        from: usize,
        looks: AtomicUsize,
        readable: bool,
    }

    impl KernelLog for Growing {
        fn lines(&self) -> Option<Vec<String>> {
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            let line = |channel: u32| {
                format!(
                    "[MMU FAULT] mmu engine id:  64, ch id:  {channel}, fault addr: 0x5000, fault addr aperture: 0, "
                )
            };
            let ours = (look >= self.from).then(|| line(OURS));
            self.readable.then(|| [line(7)].into_iter().chain(ours).collect())
        }
    }

    #[test]
    fn a_line_that_comes_after_the_notifier_is_waited_for() {
        let log = Growing { from: 3, looks: AtomicUsize::new(0), readable: true };
        let (found, lines) = mmu_error(Some(OURS), &log, Duration::from_secs(60));
        assert_eq!(found.map(|mmu| mmu.va), Some(0x5000));
        assert_eq!((lines.len(), log.looks.into_inner()), (2, 4));
    }

    #[test]
    fn nothing_is_waited_for_that_cannot_come_and_not_for_long_what_does_not() {
        let looks = |channel, readable, patience| {
            let log = Growing { from: usize::MAX, looks: AtomicUsize::new(0), readable };
            let (found, lines) = mmu_error(channel, &log, patience);
            assert_eq!((found, lines.len()), (None, usize::from(readable)));
            log.looks.into_inner()
        };
        let long = Duration::from_secs(60);
        assert_eq!(looks(Some(OURS), false, long), 1, "a log that cannot be read");
        assert_eq!(looks(None, true, long), 1, "a channel without a number");
        assert_eq!(looks(Some(OURS), true, Duration::ZERO), 1, "another error");
        assert!(looks(Some(OURS), true, LATE_LINES) > 1);
    }
}
