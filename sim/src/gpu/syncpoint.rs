//! Syncpoints of host1x, as the GPU sees them: one counter each, at the start of a 64 KiB window.

use crate::dram::{Backing, Dram, HostMapping, PAGE};
use crate::ids::{Id, IdPool, Order};
use nix::errno::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of syncpoints and bytes of the window of each.
pub(crate) const SYNCPOINTS: u32 = 1024;
pub(crate) const SYNCPOINT_STRIDE: u64 = 0x1_0000;
/// Syncpoints that other users of host1x hold before the first client of the GPU.
const TAKEN: u32 = 17;
/// Increment of a dead channel's syncpoint, so that its waiters wake up.
const SAFE_STEP: u32 = 1000;

/// All syncpoints.
#[derive(Debug)]
pub(crate) struct Syncpoints {
    dram: Arc<Dram>,
    pool: Arc<IdPool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    backing: Option<Arc<Backing>>,
    taken: HashMap<u32, Id>,
}

impl Syncpoints {
    /// Syncpoints that all read 0.
    pub(crate) fn new(dram: &Arc<Dram>) -> Self {
        let pool = IdPool::new(SYNCPOINTS, Order::Lowest);
        let taken = (0..TAKEN).filter_map(|_| pool.take()).map(|id| (id.number(), id)).collect();
        Self { dram: Arc::clone(dram), pool, state: Mutex::new(State { backing: None, taken }) }
    }

    fn backing(&self) -> Result<Arc<Backing>, Errno> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backing) = &state.backing {
            return Ok(Arc::clone(backing));
        }
        let host = HostMapping::anonymous(SYNCPOINTS as usize * PAGE as usize)?;
        let backing = self.dram.attach(host).ok_or(Errno::ENOMEM)?;
        state.backing = Some(Arc::clone(&backing));
        Ok(backing)
    }

    /// Physical page of each syncpoint.
    pub(crate) fn pages(&self) -> Result<Vec<u64>, Errno> {
        let backing = self.backing()?;
        Ok(backing.extents().iter().flat_map(|e| (0..e.len / PAGE).map(|i| e.at + i * PAGE)).collect())
    }

    /// Takes a free syncpoint.
    pub(crate) fn allocate(&self) -> Result<u32, Errno> {
        self.backing()?;
        let id = self.pool.take().ok_or(Errno::ENOMEM)?;
        let number = id.number();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.insert(number, id);
        Ok(number)
    }

    /// Gives one back; its value stays.
    pub(crate) fn release(&self, id: u32) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&id);
    }

    fn with<R: Default>(&self, id: u32, f: impl FnOnce(&AtomicU32) -> R) -> R {
        let Ok(backing) = self.backing() else { return R::default() };
        let ptr = backing.ptr().as_ptr().wrapping_add(id as usize * PAGE as usize);
        // SAFETY: `id` is below SYNCPOINTS, one page each; `backing` keeps the memory, which is only reached
        // through atomics.
        f(unsafe { AtomicU32::from_ptr(ptr.cast()) })
    }

    /// Value now.
    pub(crate) fn value(&self, id: u32) -> u32 {
        self.with(id, |v| v.load(Ordering::Acquire))
    }

    /// Adds one.
    pub(crate) fn increment(&self, id: u32) {
        self.with(id, |v| {
            v.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// Releases all that wait for it.
    pub(crate) fn set_safe(&self, id: u32) {
        self.with(id, |v| {
            v.fetch_add(SAFE_STEP, Ordering::AcqRel);
        });
    }
}
