//! Time-slice groups: channels that are scheduled, and die, together.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::event::EventFile;
use crate::driver::subcontexts::Subcontexts;
use crate::gpu::instance::{GroupEntry, Instance};
use crate::ids::Id;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most channels of a group.
pub(crate) const MAX_CHANNELS: usize = 128;
/// Time slice of a new group in microseconds.
pub(crate) const DEFAULT_TIMESLICE_US: u32 = 1024;

/// State of an SM error for `READ_SINGLE_SM_ERROR_STATE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SmRecord {
    /// Global exception status.
    pub(crate) global_esr: u32,
    /// Warp exception status.
    pub(crate) warp_esr: u32,
    /// Program counter.
    pub(crate) pc: u64,
}

/// State of a group under its lock.
#[derive(Debug)]
pub(crate) struct TsgState {
    /// Subcontexts.
    pub(crate) subcontexts: Subcontexts,
    /// Bound channels.
    pub(crate) channels: Vec<Weak<Instance>>,
    /// Runlist that the first bound channel fixed.
    pub(crate) runlist: Option<u32>,
    /// Time slice in microseconds.
    pub(crate) timeslice_us: u32,
    /// Interleave level 0 to 2.
    pub(crate) interleave: u32,
    /// Address spaces in which context buffers are mapped already, with those buffers.
    pub(crate) contexts: Vec<(Weak<AddressSpace>, Vec<u64>)>,
    /// The context has memory.
    pub(crate) has_memory: bool,
    /// A class was allocated: the context is initialized.
    pub(crate) has_class: bool,
    /// Graphics preemption mode; 0 until something sets it.
    pub(crate) graphics_mode: u32,
    /// Compute preemption mode; 0 until something sets it, which behaves as WFI.
    pub(crate) compute_mode: u32,
    /// Enabled event descriptors.
    pub(crate) events: Vec<EventFile>,
    /// Last error of each SM.
    pub(crate) sm_errors: Vec<SmRecord>,
    /// L2 ways for evict-last.
    pub(crate) l2_ways: u32,
    /// Promotion of sectors in L2, as its register has it.
    pub(crate) l2_promotion: u32,
    /// Ask of `SET_SM_EXCEPTION_TYPE_MASK`.
    pub(crate) exception_mask: u32,
}

/// A time-slice group.
#[derive(Debug)]
pub(crate) struct Tsg {
    id: Id,
    /// Process that opened it.
    pub(crate) pid: u32,
    /// Its entry on the runlist.
    pub(crate) entry: Arc<GroupEntry>,
    /// The driver's lock around changes of the context (`ctx_init_lock`).
    init: Mutex<()>,
    state: Mutex<TsgState>,
}

impl Tsg {
    /// An empty group.
    pub(crate) fn new(id: Id, sm_count: u32) -> Self {
        let state = TsgState {
            subcontexts: Subcontexts::default(),
            channels: Vec::new(),
            runlist: None,
            timeslice_us: DEFAULT_TIMESLICE_US,
            interleave: 0,
            contexts: Vec::new(),
            has_memory: false,
            has_class: false,
            graphics_mode: 0,
            compute_mode: 0,
            events: Vec::new(),
            sm_errors: vec![SmRecord::default(); sm_count as usize],
            l2_ways: 0,
            l2_promotion: 0,
            exception_mask: 0,
        };
        let entry = GroupEntry::new();
        entry.set_timeslice(DEFAULT_TIMESLICE_US);
        Self { id, pid: std::process::id(), entry, init: Mutex::new(()), state: Mutex::new(state) }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.id.number()
    }

    /// Its state.
    pub(crate) fn state(&self) -> MutexGuard<'_, TsgState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes of its context come one at a time.
    pub(crate) fn init(&self) -> MutexGuard<'_, ()> {
        self.init.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the time slice, in microseconds.
    pub(crate) fn set_timeslice(&self, timeslice_us: u32) {
        self.state().timeslice_us = timeslice_us;
        self.entry.set_timeslice(timeslice_us);
    }

    /// Channels bound to it, in the order of their binding.
    pub(crate) fn instances(&self) -> Vec<Arc<Instance>> {
        self.state().channels.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes event descriptors of number `id` readable.
    pub(crate) fn post_event(&self, id: u32) {
        let mut state = self.state();
        state.events.retain(EventFile::is_open);
        for event in state.events.iter().filter(|e| e.id == id) {
            event.post();
        }
    }

    /// Takes a channel of subcontext `veid` out. When it was the last one there, `given_up` is the subcontext that
    /// is deleted.
    pub(crate) fn unbind(&self, instance: &Arc<Instance>, veid: u32, given_up: Option<u32>) {
        let this = Arc::downgrade(instance);
        let mut state = self.state();
        state.channels.retain(|c| !c.ptr_eq(&this));
        let Some(unmapped) = state.subcontexts.leave(veid, given_up) else { return };
        for (space, buffers) in state.contexts.extract_if(.., |(space, _)| space.ptr_eq(&unmapped)) {
            if let Some(space) = space.upgrade() {
                buffers.into_iter().for_each(|va| space.unmap_kernel(va));
            }
        }
        // The buffers of GFXP go with VEID 0.
        if veid == 0 && state.graphics_mode == nvgpu_sys::NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP {
            state.graphics_mode = nvgpu_sys::NVGPU_GRAPHICS_PREEMPTION_MODE_WFI;
        }
    }
}
