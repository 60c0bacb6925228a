//! Reads back what the driver recorded about an error.

use std::os::fd::AsFd;

use super::handle::Handle;
use super::mmu_fault;
use crate::backend::RawFault;
use crate::backend::kernel_log::KernelLog;
use crate::fault::report::SmRecord;

/// The record of one SM; `None` if it cannot be read.
fn sm_record(tsg: &Handle, sm: u32) -> Option<SmRecord> {
    let record = nvgpu_sys::sm_error_state(tsg.sys(), tsg.as_fd(), sm).ok()?;
    Some(SmRecord { sm, global_esr: record.global_esr, warp_esr: record.warp_esr, pc: record.warp_esr_pc })
}

/// Everything there is about the error of channel number `channel` of the group `tsg`, whose notifier holds
/// `notifier`.
pub(super) fn read(
    tsg: &Handle,
    sm_count: u32,
    notifier: u32,
    channel: Option<u32>,
    log: &dyn KernelLog,
) -> RawFault {
    let records = (0..sm_count).filter_map(|sm| sm_record(tsg, sm));
    let sms = records.filter(|r| r.global_esr != 0 || r.warp_esr != 0).collect();
    // The dump of channels and pushbuffers that follows an error says nothing about its cause.
    let explanation = log.explanation();
    let log: Vec<_> =
        log.lines().into_iter().filter(|line| !line.starts_with("__") && !line.contains(" __")).collect();
    RawFault {
        notifier,
        sms,
        mmu: channel.and_then(|channel| mmu_fault::last(&log, channel)),
        log,
        explanation,
    }
}
