//! Reads back what the driver recorded about an error.

use std::os::fd::AsFd;

use super::{Nvgpu, log};
use crate::backend::{ChannelId, RawFault, SmError};
use crate::context::lock;

/// The record of one SM; `None` if it cannot be read.
fn sm_record(gpu: &Nvgpu, sm: u32) -> Option<SmError> {
    let record = nvgpu_sys::sm_error_state(gpu.tsg.sys(), gpu.tsg.as_fd(), sm).ok()?;
    Some(SmError { sm, global_esr: record.global_esr, warp_esr: record.warp_esr, pc: record.warp_esr_pc })
}

/// Everything there is about the error of `channel`.
pub(super) fn read(gpu: &Nvgpu, channel: ChannelId) -> RawFault {
    let notifier = lock(&gpu.channels).get(&channel.0).and_then(|c| c.error()).unwrap_or(0);
    let records = (0..gpu.info.sm_count).filter_map(|sm| sm_record(gpu, sm));
    let sms = records.filter(|r| r.global_esr != 0 || r.warp_esr != 0).collect();
    // The dump of channels and pushbuffers that follows an error says nothing about its cause.
    let log: Vec<_> =
        gpu.log.lines().into_iter().filter(|line| !line.starts_with("__") && !line.contains(" __")).collect();
    RawFault { notifier, sms, mmu: log::mmu_fault(&log), log }
}
