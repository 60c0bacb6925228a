//! Taking the engine away from a group, and a channel out of its group: the driver's actions when it may not
//! disturb work that runs, and the end of the group when that work does not give way.

use crate::clock::{Clock, Deadline};
use crate::driver::channel::{Channel, Channels};
use crate::driver::log::KernelLog;
use crate::driver::tsg::Tsg;
use crate::gpu::device::{Entry, Gpu};
use crate::gpu::engine::SWITCH_TIMEOUT;
use crate::gpu::syncpoint::Syncpoints;
use crate::what_if::WhatIf;
use nix::errno::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a waiting call polls.
const POLL: Duration = Duration::from_micros(20);
/// Attempts of a close to find its channel at rest, and how long the driver waits between them.
const ATTEMPTS: usize = 11;
const PAUSE: Duration = Duration::from_millis(2);

/// Parts of the machine that a preemption needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) gpu: &'a Gpu,
    pub(crate) log: &'a KernelLog,
    pub(crate) channels: &'a Channels,
    pub(crate) syncpoints: &'a Syncpoints,
}

/// Units of a runlist that a preemption waits for, one after the other: pushbuffer units, then engines
/// (`gv11b_fifo_is_preempt_pending`, hal/fifo/preempt_gv11b_fusa.c, r36.4.3). How many a runlist of ga10b has the
/// driver reads from the hardware; these are two of each, the graphics runlist's by its two runqueues and by its
/// graphics and copy engine.
const PBDMAS: u32 = 2;
const ENGINES: u32 = 2;

/// A preemption that has been requested (`nvgpu_tsg_preempt`).
#[derive(Debug)]
pub(crate) struct Preempting {
    tsg: Arc<Tsg>,
    deadline: Deadline,
    /// Every unit holds the group, and not the engine alone.
    by_all: bool,
}

impl Preempting {
    /// Requests that the engine leaves the group. The driver gives each unit 100 ms. Pushbuffer units leave a
    /// group at once, and of the engines one alone holds it; unless preemption is slow everywhere.
    pub(crate) fn begin(host: Host<'_>, tsg: &Arc<Tsg>) -> Self {
        let by_all = host.gpu.units.what_if.contains(WhatIf::SLOW_PREEMPTION) && !tsg.entry.is_saved();
        let deadline = host.clock.deadline(SWITCH_TIMEOUT * if by_all { PBDMAS + ENGINES } else { 1 });
        tsg.entry.request_switch(host.clock.uptime());
        host.gpu.wake();
        Self { tsg: Arc::clone(tsg), deadline, by_all }
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self, host: Host<'_>) -> bool {
        !self.is_held(host) || self.has_failed()
    }

    /// Whether a unit may still hold the group.
    fn is_held(&self, host: Host<'_>) -> bool {
        let entry = &self.tsg.entry;
        entry.is_switching()
            && !host.gpu.is_quitting()
            // Without a channel of it on the runlist there is nothing to wait for.
            && host.gpu.runlist().iter().any(|entry| is_of(entry, &self.tsg))
    }

    fn has_failed(&self) -> bool {
        self.deadline.is_over() && self.tsg.entry.is_switch_refused()
    }

    fn report(&self, host: Host<'_>) {
        let id = self.tsg.id();
        let (pbdmas, engines) = if self.by_all { (PBDMAS, ENGINES) } else { (0, 1) };
        for pbdma in 0..pbdmas {
            // The register's value is not known.
            let text = format!("preempt timeout pbdma: {pbdma} pbdma_stat: 0 tsgid: {id}");
            host.log.error(host.clock, ("gv11b_fifo_preempt_poll_pbdma", 147), &text);
        }
        for engine in 0..engines {
            let text = format!("preempt timeout eng: {engine} ctx_stat: 4 tsgid: {id}");
            host.log.error(host.clock, ("gv11b_fifo_preempt_poll_eng", 307), &text);
        }
        let text =
            format!("preempt timed out for tsgid: {id}, ctxsw timeout will trigger recovery if needed");
        host.log.error(host.clock, ("nvgpu_fifo_preempt_tsg", 117), &text);
    }

    /// Returns the outcome; `None` while it may still succeed. After a failure the hardware keeps trying.
    pub(crate) fn outcome(&self, host: Host<'_>) -> Option<Result<(), Errno>> {
        if self.is_held(host) {
            return self.has_failed().then(|| {
                self.report(host);
                Err(Errno::EBUSY)
            });
        }
        if self.tsg.entry.is_switching() && !host.gpu.is_quitting() {
            self.tsg.entry.finish_switch();
        }
        Some(Ok(()))
    }

    /// Waits for the end. Not on the GPU's thread, which is what carries it out.
    pub(crate) fn wait(&self, host: Host<'_>) -> Result<(), Errno> {
        loop {
            host.clock.wait(Some(&self.deadline), POLL, || self.is_over(host));
            match self.outcome(host) {
                Some(outcome) => return outcome,
                None => std::thread::yield_now(),
            }
        }
    }
}

fn is_of(entry: &Entry, tsg: &Tsg) -> bool {
    entry.instance.group().is_some_and(|group| Arc::ptr_eq(&group, &tsg.entry))
}

/// Runs `change` while the group is disabled and off the engine; `EBUSY` when the engine does not leave it
/// within 100 ms. The group is enabled again in any case.
pub(crate) fn while_preempted<T>(
    host: Host<'_>,
    tsg: &Arc<Tsg>,
    change: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let _one_at_a_time = tsg.init();
    tsg.entry.set_enabled(false);
    let done = Preempting::begin(host, tsg).wait(host).and_then(|()| change());
    tsg.entry.set_enabled(true);
    host.gpu.wake();
    done
}

/// Outcome of the attempt to take a channel out of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbound {
    /// It is out, and the group continues.
    Cleanly,
    /// It was at work when the engine left the group: to be tried again.
    Again,
    /// The engine did not leave the group.
    Busy,
}

/// Judges an attempt once the preemption has ended.
pub(crate) fn judge(host: Host<'_>, tsg: &Tsg, channel: &Channel, preempted: bool) -> Unbound {
    let several = host.channels.of_group(tsg).len() > 1;
    match preempted {
        false => Unbound::Busy,
        true if several && !channel.instance.is_stopped() && channel.instance.is_working() => Unbound::Again,
        true => Unbound::Cleanly,
    }
}

/// Tries to take the channel out; `patient` as a close does, which tries again while the channel is at work.
/// The group is disabled afterwards.
pub(crate) fn unbind(host: Host<'_>, tsg: &Arc<Tsg>, channel: &Channel, patient: bool) -> Unbound {
    let attempts = if patient { ATTEMPTS } else { 1 };
    for attempt in 1..=attempts {
        tsg.entry.set_enabled(false);
        let preempted = Preempting::begin(host, tsg).wait(host).is_ok();
        match judge(host, tsg, channel, preempted) {
            Unbound::Again if attempt < attempts => {
                tsg.entry.set_enabled(true);
                host.gpu.wake();
                let pause = host.clock.deadline(PAUSE);
                host.clock.wait(Some(&pause), POLL, || false);
            }
            other => return other,
        }
    }
    Unbound::Again
}

/// A channel could not be taken out (`nvgpu_tsg_unbind_channel`): the group is torn down. No notifier reports
/// it, and running work continues. Not on the GPU's thread: see [`begin_tear_down`].
pub(crate) fn tear_down(host: Host<'_>, tsg: &Arc<Tsg>, channel: u32, why: Unbound) {
    // As in the driver, its failure changes nothing.
    let _ = begin_tear_down(host, tsg, channel, why).wait(host);
    give_up(host, tsg);
}

/// Begins the tear-down of a group: the engine is to leave it, by one more request (`nvgpu_tsg_abort`,
/// common/fifo/tsg.c, r36.4.3). Once that has ended, in whatever way, [`give_up`] follows.
pub(crate) fn begin_tear_down(host: Host<'_>, tsg: &Arc<Tsg>, channel: u32, why: Unbound) -> Preempting {
    let err = if why == Unbound::Again { Errno::EAGAIN } else { Errno::EBUSY };
    let text = format!("unbind common failed, err={}", -(err as i32));
    host.log.error(host.clock, ("nvgpu_tsg_unbind_channel", 726), &text);
    let text = format!("Channel {channel} unbind failed, tearing down TSG {}", tsg.id());
    host.log.error(host.clock, ("nvgpu_tsg_unbind_channel", 757), &text);
    tsg.entry.set_enabled(false);
    Preempting::begin(host, tsg)
}

/// The channels of a group are dead.
pub(crate) fn give_up(host: Host<'_>, tsg: &Tsg) {
    for channel in host.channels.of_group(tsg) {
        channel.instance.set_unserviceable();
        let syncpoint = channel.instance.bindings().syncpoint;
        if let Some((id, _)) = syncpoint {
            host.syncpoints.set_safe(id);
        }
    }
}
