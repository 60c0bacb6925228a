//! Taking the engine away from a group, and a channel out of its group: what the driver does when it may not
//! disturb work that runs, and what becomes of the group when that work does not give way.

use crate::clock::{Clock, Deadline};
use crate::driver::channel::{Channel, Channels};
use crate::driver::log::KernelLog;
use crate::driver::tsg::Tsg;
use crate::gpu::device::{Entry, Gpu};
use crate::gpu::engine::SWITCH_TIMEOUT;
use crate::gpu::syncpoint::Syncpoints;
use nix::errno::Errno;
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting call asks.
const POLL: Duration = Duration::from_micros(20);
/// Attempts of a close to find its channel at rest, and how long the driver waits between them.
const ATTEMPTS: usize = 11;
const PAUSE: Duration = Duration::from_millis(2);

/// What of the machine a preemption needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) gpu: &'a Gpu,
    pub(crate) log: &'a KernelLog,
    pub(crate) channels: &'a Channels,
    pub(crate) syncpoints: &'a Syncpoints,
}

/// A preemption that has been requested (`nvgpu_tsg_preempt`).
#[derive(Debug)]
pub(crate) struct Preempting {
    tsg: Arc<Tsg>,
    deadline: Deadline,
}

impl Preempting {
    /// Requests that the engine leaves the group.
    pub(crate) fn begin(host: Host<'_>, tsg: &Arc<Tsg>) -> Self {
        let deadline = host.clock.deadline(SWITCH_TIMEOUT);
        tsg.entry.request_switch(host.clock.uptime());
        host.gpu.wake();
        Self { tsg: Arc::clone(tsg), deadline }
    }

    /// How it ended; `None` while it may still succeed. After a failure the hardware goes on trying.
    pub(crate) fn outcome(&self, host: Host<'_>) -> Option<Result<(), Errno>> {
        let entry = &self.tsg.entry;
        if entry.is_switching() && !host.gpu.is_quitting() {
            let runs = |e: &Arc<_>| is_of(e, &self.tsg);
            if host.gpu.runlist().iter().any(runs) {
                return (self.deadline.is_over() && entry.is_switch_refused()).then(|| {
                    let id = self.tsg.id();
                    let text = format!("preempt timeout eng: 0 ctx_stat: 4 tsgid: {id}");
                    host.log.error(host.clock, ("gv11b_fifo_preempt_poll_eng", 307), &text);
                    let text = format!(
                        "preempt timed out for tsgid: {id}, ctxsw timeout will trigger recovery if needed"
                    );
                    host.log.error(host.clock, ("nvgpu_fifo_preempt_tsg", 117), &text);
                    Err(Errno::EBUSY)
                });
            }
            // No channel of it is on the runlist: there is nothing to wait for.
            entry.finish_switch();
        }
        Some(Ok(()))
    }

    /// Waits for the end. Not on the GPU's thread, which is what carries it out.
    pub(crate) fn wait(&self, host: Host<'_>) -> Result<(), Errno> {
        loop {
            host.clock.wait(Some(&self.deadline), POLL, || self.outcome(host).is_some());
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

/// How the attempt to take a channel out of its group ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbound {
    /// It is out, and the group goes on.
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

/// A channel could not be taken out (`nvgpu_tsg_unbind_channel`): the group is torn down. No notifier says
/// so, and what runs goes on running.
pub(crate) fn tear_down(host: Host<'_>, tsg: &Tsg, channel: u32, why: Unbound) {
    let err = if why == Unbound::Again { Errno::EAGAIN } else { Errno::EBUSY };
    let text = format!("unbind common failed, err={}", -(err as i32));
    host.log.error(host.clock, ("nvgpu_tsg_unbind_channel", 726), &text);
    let text = format!("Channel {channel} unbind failed, tearing down TSG {}", tsg.id());
    host.log.error(host.clock, ("nvgpu_tsg_unbind_channel", 757), &text);
    tsg.entry.set_enabled(false);
    for channel in host.channels.of_group(tsg) {
        channel.instance.set_unserviceable();
        let syncpoint = channel.instance.bindings().syncpoint;
        if let Some((id, _)) = syncpoint {
            host.syncpoints.set_safe(id);
        }
    }
}
