//! Instance blocks: what the driver writes of a channel for the host unit to read (RAMFC, page directory,
//! channel RAM), and the runlist entries of groups.

use crate::gpu::gmmu::PageTables;
use crate::gpu::userd::Ring;
use crate::order::ledger::Ledger;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// A group's entry on the runlist.
#[derive(Debug)]
pub(crate) struct GroupEntry {
    enabled: AtomicBool,
    has_context: AtomicBool,
}

impl GroupEntry {
    /// An enabled group without a context for the engines.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { enabled: AtomicBool::new(true), has_context: AtomicBool::new(false) })
    }

    /// Lets the group run, or not.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }

    /// The engines have a context of the group.
    pub(crate) fn set_context(&self) {
        self.has_context.store(true, Ordering::Release);
    }

    /// Whether they have.
    pub(crate) fn has_context(&self) -> bool {
        self.has_context.load(Ordering::Acquire)
    }
}

/// What an instance block points to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    /// The ring, once set up.
    pub(crate) ring: Option<Ring>,
    /// Where addresses lead.
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

    /// What it points to.
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

    /// It never runs again; what runs for it now is stopped.
    pub(crate) fn kill(&self) {
        self.unserviceable.store(true, Ordering::Release);
        self.stop.store(true, Ordering::Release);
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

    /// Whether the GPU may work for it now.
    pub(crate) fn may_run(&self) -> bool {
        // What has begun ends also while the channel closes.
        let leaves = self.is_closing() && !self.working.load(Ordering::Acquire);
        if self.is_unserviceable() || leaves || !self.enabled.load(Ordering::Acquire) {
            return false;
        }
        self.bindings().group.as_ref().is_some_and(|group| group.enabled.load(Ordering::Acquire))
    }
}
