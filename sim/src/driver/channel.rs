//! Channels: the driver's state of a channel, besides its instance block.

use crate::driver::address_space::space::AddressSpace;
use crate::driver::notifier::Notifier;
use crate::driver::subcontexts::VEIDS;
use crate::driver::tsg::{MAX_CHANNELS, Tsg};
use crate::gpu::instance::Instance;
use crate::ids::Id;
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Context-switch timeout of a new channel in milliseconds.
const DEFAULT_TIMEOUT_MS: u32 = 3000;

/// State of a channel under its lock.
#[derive(Debug)]
pub(crate) struct ChannelState {
    /// Its address space.
    pub(crate) address_space: Option<Arc<AddressSpace>>,
    /// Its group.
    pub(crate) tsg: Option<Arc<Tsg>>,
    /// Subcontext that its last bind request named, also when the call failed
    /// (`gk20a_tsg_ioctl_bind_channel_ex`).
    pub(crate) veid: u32,
    /// Subcontext in the group.
    pub(crate) bound_veid: u32,
    /// PBDMA of the runlist: 1 for subcontexts other than 0.
    pub(crate) runqueue: u32,
    /// Whether jobs have a deadline.
    pub(crate) watchdog: bool,
    /// Deadline of jobs in milliseconds.
    pub(crate) watchdog_ms: u32,
    /// Whether the program promised deterministic submits.
    pub(crate) deterministic: bool,
    /// A deterministic channel that does not keep the GPU's power.
    pub(crate) may_railgate: bool,
    /// A kernel-mode ring was requested.
    pub(crate) kernel_ring: bool,
    /// Last class of `ALLOC_OBJ_CTX`.
    pub(crate) class: Option<u32>,
    /// Memory for error reports.
    pub(crate) notifier: Option<Notifier>,
    /// Context-switch time, in milliseconds, after which the group is recovered.
    pub(crate) timeout_ms: u32,
    /// Context-switch time-outs so far, in milliseconds: for a user-mode channel nothing sets it back.
    pub(crate) switching_ms: u32,
    /// A reference leaked by a failed `BIND_CHANNEL`: close() waits for it for ever.
    pub(crate) leaked_reference: bool,
}

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Its instance block, as the GPU sees it.
    pub(crate) instance: Arc<Instance>,
    /// Freed when the channel is closed, even while references to it remain.
    id: Mutex<Option<Id>>,
    state: Mutex<ChannelState>,
}

impl Channel {
    /// A channel on `runlist` that nothing is bound to.
    fn new(id: Id, runlist: u32) -> Self {
        let state = ChannelState {
            address_space: None,
            tsg: None,
            veid: 0,
            bound_veid: 0,
            runqueue: 0,
            watchdog: true,
            watchdog_ms: 5000,
            deterministic: false,
            may_railgate: false,
            kernel_ring: false,
            class: None,
            notifier: None,
            timeout_ms: DEFAULT_TIMEOUT_MS,
            switching_ms: 0,
            leaked_reference: false,
        };
        let instance = Instance::new(id.number(), runlist);
        Self { instance, id: Mutex::new(Some(id)), state: Mutex::new(state) }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.instance.number()
    }

    /// Gives the number back: the channel is closed.
    pub(crate) fn release_number(&self) {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Its state.
    pub(crate) fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the channel to subcontext `veid` of a group; the checks are the driver's, in its order. The
    /// channel keeps the subcontext, and its PBDMA, when a later check fails.
    ///
    /// # Errors
    /// `EINVAL`; `ENOSPC` when VEID 0 is reserved for no address space.
    pub(crate) fn bind(&self, tsg: &Arc<Tsg>, veid: u32) -> Result<(), Errno> {
        if veid as usize >= VEIDS {
            return Err(Errno::EINVAL);
        }
        let mut link = self.state();
        link.veid = veid;
        if veid > 0 {
            link.runqueue = 1;
        }
        let mut state = tsg.state();
        let space = link.address_space.as_ref().map(Arc::downgrade);
        state.subcontexts.claim(veid, &space)?;
        state.channels.retain(|c| c.strong_count() > 0);
        if link.tsg.is_some() || state.channels.len() >= MAX_CHANNELS {
            return Err(Errno::EINVAL);
        }
        if *state.runlist.get_or_insert(self.instance.runlist()) != self.instance.runlist() {
            return Err(Errno::EINVAL);
        }
        state.subcontexts.enter(veid, &space)?;
        link.bound_veid = veid;
        state.channels.push(Arc::downgrade(&self.instance));
        link.tsg = Some(Arc::clone(tsg));
        self.instance.bindings().group = Some(Arc::clone(&tsg.entry));
        self.instance.set_serviceable();
        Ok(())
    }

    /// The group no longer lists the channel; `closed` when its file is.
    pub(crate) fn leave(&self, closed: bool) {
        let (tsg, veid, asked) = {
            let mut state = self.state();
            (state.tsg.take(), state.bound_veid, state.veid)
        };
        if let Some(tsg) = tsg {
            tsg.unbind(&self.instance, veid, closed.then_some(asked));
        }
    }
}

/// The channels that exist, by number.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    by_number: Mutex<HashMap<u32, Weak<Channel>>>,
}

impl Channels {
    /// A new channel on `runlist` that nothing is bound to.
    pub(crate) fn open(&self, id: Id, runlist: u32) -> Arc<Channel> {
        let channel = Arc::new(Channel::new(id, runlist));
        let mut by_number = self.by_number.lock().unwrap_or_else(PoisonError::into_inner);
        by_number.insert(channel.id(), Arc::downgrade(&channel));
        channel
    }

    /// The channel of an instance block.
    pub(crate) fn of(&self, instance: &Instance) -> Option<Arc<Channel>> {
        let by_number = self.by_number.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = by_number.get(&instance.number())?.upgrade()?;
        std::ptr::eq(&raw const *channel.instance, instance).then_some(channel)
    }

    /// The channels of a group.
    pub(crate) fn of_group(&self, tsg: &Tsg) -> Vec<Arc<Channel>> {
        tsg.instances().iter().filter_map(|instance| self.of(instance)).collect()
    }
}
