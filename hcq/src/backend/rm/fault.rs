//! Errors as the driver and the SMs report them.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rm_sys::{
    GT200_DEBUGGER, NV83DE_ALLOC_PARAMETERS, NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS,
    NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS, NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS, NvNotification,
    ROBUST_CHANNEL_GR_EXCEPTION,
};

use super::client::Object;
use super::memory::{Allocation, Placement};
use super::space::Space;
use crate::backend::MmuError;
use crate::error::Error;
use crate::error::report::SmRecord;
use crate::sync::lock;

/// Bytes of a notifier's memory: its slots, rounded to a page.
const NOTIFIER_LEN: u64 = 4096;
/// A slot's status once the driver has written an error into it.
const WRITTEN: u16 = 0xffff;
/// SMs one call reports at most.
const SMS_PER_CALL: u32 = 100;
/// `HWW_WARP_ESR`: the error code, 0 for none.
const WARP_ERROR: u32 = 0xffff;
/// Access types of an MMU fault: a read, a write (as an H200 gives them; atomics have others).
const ACCESS_READ: u32 = 0;
const ACCESS_WRITE: u32 = 1;
/// Time until the SMs are polled for the first time in a wait; it doubles with each poll that finds
/// nothing.
const FIRST_POLL: Duration = Duration::from_millis(4);
/// Longest time between polls.
const POLL_EVERY: Duration = Duration::from_millis(32);
/// After so long without being asked, another wait has begun.
const NEW_WAIT: Duration = Duration::from_millis(100);

/// The record the driver writes when it stops a channel.
#[derive(Debug)]
pub(super) struct Notifier {
    memory: Allocation,
}

impl Notifier {
    /// Memory for the record, cleared.
    pub fn new(space: &Arc<Space>) -> Result<Self, Error> {
        let mut memory = Allocation::new(space, Placement::Notifier, NOTIFIER_LEN)?;
        memory.map_cpu(space, Placement::Notifier, NOTIFIER_LEN, "an error notifier")?;
        if let Some(mapping) = memory.cpu() {
            mapping.clear(NOTIFIER_LEN as usize);
        }
        Ok(Self { memory })
    }

    /// Handle of the memory.
    pub fn handle(&self) -> u32 {
        self.memory.handle()
    }

    /// The code of slot 0, if it was written: the number the kernel log calls Xid.
    pub fn code(&self) -> Option<u32> {
        let slot = self.memory.pointer()?;
        // SAFETY: the mapping is a page that starts with the slot; the field is aligned; atomics allow
        // outside writers.
        let status = unsafe {
            AtomicU16::from_ptr(slot.add(std::mem::offset_of!(NvNotification, status)).cast().as_ptr())
        };
        // SAFETY: as above.
        let info = unsafe {
            AtomicU32::from_ptr(slot.add(std::mem::offset_of!(NvNotification, info32)).cast().as_ptr())
        };
        (status.load(Ordering::Acquire) == WRITTEN).then(|| info.load(Ordering::Relaxed))
    }
}

/// A debugger of one channel. While it exists, an SM that traps stays where it is, so that its registers can
/// be read; whoever finds a trap frees the channel at once, since nothing else runs on the engine meanwhile.
#[derive(Debug)]
pub(super) struct Debugger {
    object: Object,
    channel: u32,
    sms: u32,
    polls: Mutex<Polls>,
}

#[derive(Debug)]
struct Polls {
    last: Instant,
    /// When a wait last asked for a poll.
    asked: Instant,
    interval: Duration,
    /// Register values before the channel ran anything: traces of others.
    before: Vec<SmState>,
    found: Vec<SmState>,
}

impl Polls {
    fn poll(&mut self, debugger: &Debugger) {
        if self.found.is_empty() {
            self.found = debugger.read().into_iter().filter(|state| !self.before.contains(state)).collect();
            self.last = Instant::now();
        }
    }
}

/// An SM in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SmState {
    /// Its exception registers.
    pub error: SmRecord,
    /// The address it accessed, 0 where there is none.
    pub address: u64,
}

impl Debugger {
    /// Attaches to the channel whose compute object is `compute`.
    pub fn new(space: &Arc<Space>, compute: &Object, channel: &Object) -> Result<Self, Error> {
        let mut parameters = NV83DE_ALLOC_PARAMETERS {
            hAppClient: space.client().root(),
            hClass3dObject: compute.handle(),
            ..Default::default()
        };
        let object = space.client().create_with(space.device(), GT200_DEBUGGER, &mut parameters)?;
        let polls = Mutex::new(Polls {
            last: Instant::now(),
            asked: Instant::now(),
            interval: FIRST_POLL,
            before: Vec::new(),
            found: Vec::new(),
        });
        let debugger = Self { object, channel: channel.handle(), sms: space.sm_count(), polls };
        let before = debugger.read();
        lock(&debugger.polls).before = before;
        Ok(debugger)
    }

    /// Polls the SMs now and then: the code of an SM exception if one has trapped. Meant for wait loops.
    pub fn trapped(&self) -> Option<u32> {
        let mut polls = lock(&self.polls);
        let now = Instant::now();
        if now - polls.asked >= NEW_WAIT {
            (polls.last, polls.interval) = (now, FIRST_POLL);
        }
        polls.asked = now;
        if now - polls.last >= polls.interval {
            polls.poll(self);
            polls.interval = (2 * polls.interval).min(POLL_EVERY);
            // The poll may have taken as long as the driver takes to clean up after a fault.
            polls.asked = Instant::now();
        }
        (!polls.found.is_empty()).then_some(ROBUST_CHANNEL_GR_EXCEPTION)
    }

    /// The SMs that have an exception: those found before, or those there are now.
    pub fn states(&self) -> Vec<SmState> {
        let mut polls = lock(&self.polls);
        polls.poll(self);
        polls.found.clone()
    }

    /// The last MMU fault of the channel's context, with the kind of access.
    pub fn mmu_fault(&self) -> Option<MmuError> {
        let mut args = NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS::default();
        // SAFETY: the struct holds no addresses.
        if let Err(error) = unsafe { self.object.control(&mut args) } {
            tracing::debug!(%error, "the context's MMU faults cannot be read");
            return None;
        }
        let count = usize::try_from(args.count).unwrap_or(0).min(args.mmuFaultInfoList.len());
        let last = args.mmuFaultInfoList[..count].last()?;
        let store = match last.accessType {
            ACCESS_READ => Some(false),
            ACCESS_WRITE => Some(true),
            _ => None,
        };
        Some(MmuError { va: last.faultAddress, kind: Some(last.faultType), store })
    }

    fn read(&self) -> Vec<SmState> {
        let mut found = Vec::new();
        for first in (0..self.sms).step_by(SMS_PER_CALL as usize) {
            let mut args = NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS {
                hTargetChannel: self.channel,
                numSMsToRead: SMS_PER_CALL.min(self.sms - first),
                startingSM: first,
                ..Default::default()
            };
            // SAFETY: the struct holds no addresses.
            if let Err(error) = unsafe { self.object.control(&mut args) } {
                tracing::debug!(%error, "the SMs' exception registers cannot be read");
                break;
            }
            let read = args.numSMsToRead.min(SMS_PER_CALL) as usize;
            for (i, state) in args.smErrorStateArray.iter().take(read).enumerate() {
                if state.hwwWarpEsr & WARP_ERROR == 0 {
                    continue;
                }
                let pc =
                    if state.hwwWarpEsrPc64 != 0 { state.hwwWarpEsrPc64 } else { state.hwwWarpEsrPc.into() };
                let error = SmRecord {
                    sm: first + i as u32,
                    global_esr: state.hwwGlobalEsr,
                    warp_esr: state.hwwWarpEsr,
                    pc,
                };
                found.push(SmState { error, address: state.hwwEsrAddr });
            }
        }
        found
    }
}

/// The last MMU fault of a channel; reading it clears it.
pub(super) fn mmu_fault(channel: &Object) -> Option<MmuError> {
    let mut args = NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS::default();
    // SAFETY: the struct holds no addresses.
    if let Err(error) = unsafe { channel.control(&mut args) } {
        tracing::debug!(%error, "the channel's MMU fault cannot be read");
        return None;
    }
    let va = u64::from(args.addrHi) << 32 | u64::from(args.addrLo);
    Some(MmuError { va, kind: Some(args.faultType), store: None })
}
