//! Channels: what the driver knows of one, and the ring the GPU reads.

use crate::driver::address_space::AddressSpace;
use crate::driver::ids::Id;
use crate::driver::notifier::Notifier;
use crate::driver::tsg::Tsg;
use crate::gpu::pbdma::Pbdma;
use crate::physical::Backing;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of USERD at which the host publishes how far it has fetched.
const USERD_GP_GET: usize = 0x88;
/// Bytes of USERD at which the program publishes how far it has written.
const USERD_GP_PUT: usize = 0x8c;
/// Bytes of USERD at which `SET_REFERENCE` shows.
const USERD_REFERENCE: usize = 0x48;
/// Context-switch timeout of a new channel in milliseconds.
const DEFAULT_TIMEOUT_MS: u32 = 3000;

/// The ring of a user-mode channel.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Address of the ring in the driver's range.
    pub(crate) va: u64,
    userd: Arc<Backing>,
}

impl Ring {
    /// A ring of `entries` mapped at `va`, whose indexes live in the first page of `userd`.
    pub(crate) fn new(entries: u32, va: u64, userd: Arc<Backing>) -> Self {
        Self { entries, va, userd }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let ptr = self.userd.ptr().as_ptr().wrapping_add(at);
        // SAFETY: the first page of the buffer, which lives as long as `userd`; the offsets are 4-byte aligned and below 4096.
        unsafe { AtomicU32::from_ptr(ptr.cast()) }
    }

    /// Index behind the last entry the program published.
    pub(crate) fn put(&self) -> u32 {
        self.word(USERD_GP_PUT).load(Ordering::Acquire)
    }

    /// Publishes the fetch index.
    pub(crate) fn set_get(&self, index: u32) {
        self.word(USERD_GP_GET).store(index, Ordering::Release);
    }

    /// Publishes the value of `SET_REFERENCE`.
    pub(crate) fn set_reference(&self, value: u32) {
        self.word(USERD_REFERENCE).store(value, Ordering::Release);
    }
}

/// State of a channel behind its lock.
#[derive(Debug)]
pub(crate) struct ChannelState {
    /// Where its addresses lead.
    pub(crate) address_space: Option<Arc<AddressSpace>>,
    /// Its group.
    pub(crate) tsg: Option<Arc<Tsg>>,
    /// Subcontext in the group.
    pub(crate) veid: u32,
    /// PBDMA of the runlist: 1 for subcontexts other than 0.
    pub(crate) runqueue: u32,
    /// Whether jobs have a deadline.
    pub(crate) watchdog: bool,
    /// Deadline of jobs in milliseconds.
    pub(crate) watchdog_ms: u32,
    /// Whether the program promised deterministic submits.
    pub(crate) deterministic: bool,
    /// The ring, once set up.
    pub(crate) ring: Option<Ring>,
    /// A kernel-mode ring was asked for.
    pub(crate) kernel_ring: bool,
    /// Last class of `ALLOC_OBJ_CTX`.
    pub(crate) class: Option<u32>,
    /// Where errors are reported.
    pub(crate) notifier: Option<Notifier>,
    /// Context-switch timeout in milliseconds.
    pub(crate) timeout_ms: u32,
    /// User syncpoint: number and address of its window.
    pub(crate) syncpoint: Option<(u32, u64)>,
    /// Whether the channel runs when its group does.
    pub(crate) enabled: bool,
    /// A reference leaked by a failed `BIND_CHANNEL`: close() waits for it for ever.
    pub(crate) leaked_reference: bool,
}

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    number: u32,
    /// Given back when the channel is closed, whoever still looks at it.
    id: Mutex<Option<Id>>,
    runlist: u32,
    state: Mutex<ChannelState>,
    unserviceable: AtomicBool,
    closing: AtomicBool,
    stop: AtomicBool,
    rung: AtomicBool,
    pbdma: Mutex<Pbdma>,
}

impl Channel {
    /// A channel on `runlist` that nothing is bound to.
    pub(crate) fn new(id: Id, runlist: u32) -> Self {
        let state = ChannelState {
            address_space: None,
            tsg: None,
            veid: 0,
            runqueue: 0,
            watchdog: true,
            watchdog_ms: 5000,
            deterministic: false,
            ring: None,
            kernel_ring: false,
            class: None,
            notifier: None,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            syncpoint: None,
            enabled: true,
            leaked_reference: false,
        };
        Self {
            number: id.number(),
            id: Mutex::new(Some(id)),
            runlist,
            state: Mutex::new(state),
            unserviceable: AtomicBool::new(true),
            closing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            pbdma: Mutex::default(),
        }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.number
    }

    /// Gives the number back: the channel is closed.
    pub(crate) fn release_number(&self) {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Its runlist.
    pub(crate) fn runlist(&self) -> u32 {
        self.runlist
    }

    /// Value that rings its doorbell.
    pub(crate) fn token(&self) -> u32 {
        self.id() & 0xfff | self.runlist << 16
    }

    /// Its state.
    pub(crate) fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The GPU's side of it; held while the GPU works for this channel.
    pub(crate) fn pbdma(&self) -> MutexGuard<'_, Pbdma> {
        self.pbdma.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the GPU works for it right now.
    pub(crate) fn is_gpu_busy(&self) -> bool {
        matches!(self.pbdma.try_lock(), Err(std::sync::TryLockError::WouldBlock))
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

    /// Whether its group has a context for the engines.
    pub(crate) fn has_context(&self) -> bool {
        self.state().tsg.as_ref().is_some_and(|t| !t.state().contexts.is_empty())
    }

    /// Whether the GPU may work for it now.
    pub(crate) fn may_run(&self) -> bool {
        if self.is_unserviceable() || self.is_closing() {
            return false;
        }
        let state = self.state();
        state.enabled && state.ring.is_some() && state.tsg.as_ref().is_some_and(|t| t.state().enabled)
    }
}
