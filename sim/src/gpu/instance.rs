//! Instance blocks: the driver's description of a channel for the host unit to read (RAMFC, page directory,
//! channel RAM), and the runlist entries of groups.

use crate::gpu::gmmu::PageTables;
use crate::gpu::userd::Ring;
use crate::order::ledger::Ledger;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

/// Way in which the engine leaves a group whose launches have not ended (`NVGPU_COMPUTE_PREEMPTION_MODE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Preemption {
    /// The launches end first. A context whose mode was never set behaves so too.
    #[default]
    WaitForIdle,
    /// No further block starts, and those that run end first.
    Blocks,
    /// At once, between two instructions.
    Instructions,
}

/// A context switch that was requested and has not happened.
#[derive(Clone, Copy, Debug)]
struct Switch {
    /// Time of the request, by the machine's clock.
    since: Duration,
    /// Context-switch time-outs that it has raised.
    timeouts: u32,
    /// Passes of the GPU in which it could have happened.
    passes: u32,
}

/// A group's entry on the runlist.
#[derive(Debug)]
pub(crate) struct GroupEntry {
    enabled: AtomicBool,
    has_context: AtomicBool,
    preemption: Mutex<Preemption>,
    timeslice_us: AtomicU32,
    /// The switch that is under way.
    switch: Mutex<Option<Switch>>,
    /// Whether there is one.
    switching: AtomicBool,
    /// The engine has saved the group's context.
    saved: AtomicBool,
}

impl GroupEntry {
    /// An enabled group without a context for the engines.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            enabled: AtomicBool::new(true),
            has_context: AtomicBool::new(false),
            preemption: Mutex::default(),
            timeslice_us: AtomicU32::new(0),
            switch: Mutex::default(),
            switching: AtomicBool::new(false),
            saved: AtomicBool::new(true),
        })
    }

    /// Lets the group run, or not.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    /// Whether it may run.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// The engines have a context of the group.
    pub(crate) fn set_context(&self) {
        self.has_context.store(true, Ordering::Release);
    }

    /// Whether they have.
    pub(crate) fn has_context(&self) -> bool {
        self.has_context.load(Ordering::Acquire)
    }

    /// Sets the context's preemption mode from now on.
    pub(crate) fn set_preemption(&self, preemption: Preemption) {
        *self.preemption.lock().unwrap_or_else(PoisonError::into_inner) = preemption;
    }

    /// Returns that mode.
    pub(crate) fn preemption(&self) -> Preemption {
        *self.preemption.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time for which it has the engine when others wait.
    pub(crate) fn set_timeslice(&self, timeslice_us: u32) {
        self.timeslice_us.store(timeslice_us, Ordering::Release);
    }

    /// Returns that time.
    pub(crate) fn timeslice(&self) -> Duration {
        Duration::from_micros(self.timeslice_us.load(Ordering::Acquire).into())
    }

    fn switch(&self) -> MutexGuard<'_, Option<Switch>> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that the engine leaves the group, at `now`; a request that is under way continues.
    pub(crate) fn request_switch(&self, now: Duration) {
        self.switch().get_or_insert(Switch { since: now, timeouts: 0, passes: 0 });
        self.switching.store(true, Ordering::Release);
    }

    /// Whether the engine is to leave the group.
    pub(crate) fn is_switching(&self) -> bool {
        self.switching.load(Ordering::Acquire)
    }

    /// The engine has left the group.
    pub(crate) fn finish_switch(&self) {
        let mut switch = self.switch();
        *switch = None;
        self.switching.store(false, Ordering::Release);
        self.saved.store(true, Ordering::Release);
    }

    /// The engine could not leave the group in this pass: how many time-outs of `period` are due for it.
    pub(crate) fn postpone_switch(&self, now: Duration, period: Duration) -> u32 {
        let mut switch = self.switch();
        let Some(switch) = &mut *switch else { return 0 };
        switch.passes = switch.passes.saturating_add(1);
        let elapsed = now.saturating_sub(switch.since).as_nanos() / period.as_nanos().max(1);
        let due = u32::try_from(elapsed).unwrap_or(u32::MAX).saturating_sub(switch.timeouts);
        switch.timeouts += due;
        due
    }

    /// Whether a switch that takes `time` cannot have happened yet.
    pub(crate) fn is_leaving(&self, now: Duration, time: Duration) -> bool {
        self.switch().as_ref().is_some_and(|switch| now.saturating_sub(switch.since) < time)
    }

    /// Whether the GPU has had its chances to honour the request and has not.
    pub(crate) fn is_switch_refused(&self) -> bool {
        self.switch().as_ref().is_some_and(|switch| switch.passes >= 2)
    }

    /// The engine works for the group.
    pub(crate) fn load(&self) {
        self.saved.store(false, Ordering::Release);
    }

    /// Whether the engine has saved its context, so that nothing of it runs.
    pub(crate) fn is_saved(&self) -> bool {
        self.saved.load(Ordering::Acquire)
    }
}

/// Objects that an instance block points to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    /// The ring, once set up.
    pub(crate) ring: Option<Ring>,
    /// Page tables of the address space.
    pub(crate) tables: Option<Arc<PageTables>>,
    /// The group.
    pub(crate) group: Option<Arc<GroupEntry>>,
    /// User syncpoint: number and address of its window.
    pub(crate) syncpoint: Option<(u32, u64)>,
}

/// The instance block of a channel.
#[derive(Debug)]
pub(crate) struct Instance {
    number: u32,
    runlist: u32,
    bindings: Mutex<Bindings>,
    enabled: AtomicBool,
    unserviceable: AtomicBool,
    closing: AtomicBool,
    stop: AtomicBool,
    rung: AtomicBool,
    pending: AtomicBool,
    working: AtomicBool,
    /// Held while the GPU works for the channel.
    turn: Mutex<()>,
    /// Its line in the machine's ledger, once it has one.
    line: OnceLock<u32>,
}

impl Instance {
    /// Channel `number` on `runlist`, with nothing bound to it.
    pub(crate) fn new(number: u32, runlist: u32) -> Arc<Self> {
        Arc::new(Self {
            number,
            runlist,
            bindings: Mutex::default(),
            enabled: AtomicBool::new(true),
            unserviceable: AtomicBool::new(true),
            closing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            working: AtomicBool::new(false),
            turn: Mutex::new(()),
            line: OnceLock::new(),
        })
    }

    /// Number of the channel.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Its runlist.
    pub(crate) fn runlist(&self) -> u32 {
        self.runlist
    }

    /// Value that rings its doorbell.
    pub(crate) fn token(&self) -> u32 {
        self.number & 0xfff | self.runlist << 16
    }

    /// Its line in the machine's ledger.
    pub(crate) fn line(&self, ledger: &Ledger) -> u32 {
        *self.line.get_or_init(|| ledger.state().open(self.number))
    }

    /// Its line, if it has one.
    pub(crate) fn known_line(&self) -> Option<u32> {
        self.line.get().copied()
    }

    /// Locks the objects that it points to.
    pub(crate) fn bindings(&self) -> MutexGuard<'_, Bindings> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the channel run when its group does, or not.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    /// Not bound yet, or dead.
    pub(crate) fn is_unserviceable(&self) -> bool {
        self.unserviceable.load(Ordering::Acquire)
    }

    /// The group took it.
    pub(crate) fn set_serviceable(&self) {
        self.unserviceable.store(false, Ordering::Release);
    }

    /// It never runs again; its running work is stopped.
    pub(crate) fn kill(&self) {
        self.set_unserviceable();
        self.stop.store(true, Ordering::Release);
    }

    /// The driver has given it up: nothing new begins, and its running work continues.
    pub(crate) fn set_unserviceable(&self) {
        self.unserviceable.store(true, Ordering::Release);
    }

    /// Returns whether its work was stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Being torn down: ioctls time out, the GPU fetches nothing more.
    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether it is being torn down.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Set when running work must stop at once.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// The doorbell was rung for it.
    pub(crate) fn ring_doorbell(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// Whether the doorbell was rung since the last call.
    pub(crate) fn take_doorbell(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Whether the last turn left something to do.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// A turn ended, leaving something to do or not.
    pub(crate) fn set_pending(&self, pending: bool) {
        self.pending.store(pending, Ordering::Release);
    }

    /// Whether launches have begun that have not ended.
    pub(crate) fn set_working(&self, working: bool) {
        self.working.store(working, Ordering::Release);
    }

    /// Whether it waits for a turn.
    pub(crate) fn wants_turn(&self) -> bool {
        (self.is_pending() || self.rung.load(Ordering::Acquire)) && self.may_run()
    }

    /// Begins a turn, or waits until the present one has ended.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the GPU works for it: right now, or on a launch that was preempted.
    pub(crate) fn is_busy(&self) -> bool {
        self.working.load(Ordering::Acquire) || matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Whether the engines have a context of its group.
    pub(crate) fn has_context(&self) -> bool {
        self.bindings().group.as_ref().is_some_and(|group| group.has_context())
    }

    /// The group that it belongs to.
    pub(crate) fn group(&self) -> Option<Arc<GroupEntry>> {
        self.bindings().group.clone()
    }

    /// Whether launches have begun that have not ended.
    pub(crate) fn is_working(&self) -> bool {
        self.working.load(Ordering::Acquire)
    }

    /// Whether nothing may begin for it: it is dead or closes, or the engine leaves its group.
    pub(crate) fn must_pause(&self) -> bool {
        self.is_unserviceable() || self.is_closing() || self.group().is_none_or(|group| group.is_switching())
    }

    /// Whether the GPU may work for it now.
    pub(crate) fn may_run(&self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let Some(group) = self.group() else { return false };
        // Work that has begun continues until the engine leaves the group, whatever the driver forbids
        // meanwhile.
        if self.is_working() && !group.is_saved() {
            return true;
        }
        !self.must_pause() && self.enabled.load(Ordering::Acquire) && group.is_enabled()
    }
}
