//! Ownership of the graphics and compute engine: one group at a time, until the engine has saved its context.
//!
//! A context switch is requested by the driver, by another group whose channels wait, or by a desktop beside
//! the program ([`Session`]). The group's [`Preemption`] decides when it happens; until then the runlist's
//! context-switch time-out reports it to the driver.

use crate::gpu::device::{Entry, Gpu};
use crate::gpu::instance::{GroupEntry, Preemption};
use crate::gpu::interrupts::Interrupts;
use crate::gpu::session::Session;
use crate::gpu::sm::launch::Launch;
use crate::what_if::WhatIf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The runlist whose channels share the engine.
const GRAPHICS: u32 = 0;
/// The runlist's context-switch time-out: the driver sets 100 ms (`CTXSW_TIMEOUT_PERIOD_MS`).
pub(crate) const SWITCH_TIMEOUT: Duration = Duration::from_millis(100);

/// Duration of a slow switch.
const SLOW: Duration = Duration::from_millis(500);

/// The engine.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    /// The group whose context is loaded, and since when.
    owner: Option<(Arc<GroupEntry>, Duration)>,
    /// The group that had it last: others come first.
    last: Option<Arc<GroupEntry>>,
    /// The launch that the desktop has interrupted last.
    interrupted: AtomicU64,
}

/// Whether an entry keeps its group on the engine, although the engine is to leave it.
fn keeps(entry: &Entry, preemption: Preemption) -> bool {
    entry.instance.is_working()
        && match preemption {
            Preemption::WaitForIdle => true,
            Preemption::Blocks => !entry.pbdma().is_between_blocks(),
            Preemption::Instructions => false,
        }
}

fn is_of(entry: &Entry, group: &Arc<GroupEntry>) -> bool {
    entry.instance.group().is_some_and(|own| Arc::ptr_eq(&own, group))
}

/// Whether a channel of another group waits for the engine.
fn others_want(runlist: &[Arc<Entry>], group: &Arc<GroupEntry>) -> bool {
    runlist.iter().any(|entry| {
        entry.instance.runlist() == GRAPHICS && !is_of(entry, group) && entry.instance.wants_turn()
    })
}

impl Engine {
    /// Requests the switches that are due, and carries out those that are possible. Called between turns.
    pub(crate) fn switch(&mut self, gpu: &Gpu, interrupts: &dyn Interrupts, runlist: &[Arc<Entry>]) {
        let now = gpu.units.clock.uptime();
        if let Some((owner, since)) = &self.owner
            && !owner.is_switching()
            && runlist.iter().any(|entry| is_of(entry, owner) && entry.instance.is_working())
            && (others_want(runlist, owner) || is_frame_due(gpu, owner, *since))
        {
            owner.request_switch(now);
        }
        for (index, entry) in runlist.iter().enumerate() {
            let Some(group) = entry.instance.group().filter(|group| group.is_switching()) else { continue };
            if runlist[..index].iter().any(|earlier| is_of(earlier, &group)) {
                continue;
            }
            let preemption = group.preemption();
            let leaves = gpu.units.what_if.contains(WhatIf::SLOW_PREEMPTION) && group.is_leaving(now, SLOW);
            let keeper = runlist
                .iter()
                .find(|e| is_of(e, &group) && !group.is_saved() && (leaves || keeps(e, preemption)));
            match keeper {
                None => {
                    group.finish_switch();
                    if let Some((owner, _)) = self.owner.take_if(|(owner, _)| Arc::ptr_eq(owner, &group)) {
                        self.last = Some(owner);
                    }
                }
                Some(keeper) => match group.postpone_switch(now, SWITCH_TIMEOUT) {
                    0 => {}
                    times => interrupts.switch_timeout(&keeper.instance, times),
                },
            }
        }
    }

    /// Whether the channel's group has the engine or gets it now.
    pub(crate) fn take(&mut self, gpu: &Gpu, entry: &Entry, runlist: &[Arc<Entry>]) -> bool {
        if entry.instance.runlist() != GRAPHICS {
            return true;
        }
        let Some(group) = entry.instance.group() else { return false };
        match &self.owner {
            Some((owner, _)) if Arc::ptr_eq(owner, &group) => return true,
            Some((owner, _)) => {
                if runlist.iter().any(|e| is_of(e, owner) && e.instance.is_working()) && !owner.is_saved() {
                    return false;
                }
                owner.finish_switch();
            }
            None => {
                let again = self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &group));
                if again && others_want(runlist, &group) {
                    return false;
                }
            }
        }
        self.last = None;
        group.load();
        self.owner = Some((group, gpu.units.clock.uptime()));
        true
    }

    /// Whether no further block of a launch may start, of which `started` have; the desktop's frame may come
    /// due at that very point.
    pub(crate) fn holds_blocks(&self, gpu: &Gpu, channel: u32, launch: &Launch, started: u64) -> bool {
        let Some((owner, since)) = &self.owner else { return false };
        if owner.preemption() != Preemption::Blocks {
            return false;
        }
        if let Session::DesktopAfterBlocks(blocks) = gpu.units.session
            && started == blocks
        {
            let launch = u64::from(channel) << 48 | launch.grid_id;
            if self.interrupted.swap(launch, Ordering::Relaxed) != launch {
                owner.request_switch(gpu.units.clock.uptime());
            }
        } else if is_frame_due(gpu, owner, *since) {
            owner.request_switch(gpu.units.clock.uptime());
        }
        owner.is_switching()
    }
}

/// Whether a desktop waits for the engine, which `group` has had for its time slice.
fn is_frame_due(gpu: &Gpu, group: &GroupEntry, since: Duration) -> bool {
    gpu.units.session == Session::Desktop
        && gpu.units.clock.uptime().saturating_sub(since) >= group.timeslice()
}
