//! The GPU as the driver sees it: the doorbell page, the runlist, and the switch.

use crate::gpu::counters::Counters;
use crate::gpu::instance::Instance;
use crate::gpu::pbdma::Pbdma;
use crate::gpu::units::Units;
use crate::gpu::usermode::Usermode;
use nix::errno::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A channel on the runlist.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The channel.
    pub(crate) instance: Arc<Instance>,
    /// Its state in the pushbuffer unit.
    pbdma: Mutex<Pbdma>,
}

impl Entry {
    /// Its state in the pushbuffer unit.
    pub(crate) fn pbdma(&self) -> MutexGuard<'_, Pbdma> {
        self.pbdma.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// Units that all channels share.
    pub(crate) units: Units,
    /// Doorbell and time.
    pub(crate) usermode: Usermode,
    runlist: Mutex<Arc<Vec<Arc<Entry>>>>,
    wake: (Mutex<bool>, Condvar),
    quit: AtomicBool,
}

impl Gpu {
    /// A GPU without channels.
    pub(crate) fn new(units: Units) -> Result<Self, Errno> {
        Ok(Self {
            usermode: Usermode::new(units.what_if)?,
            units,
            runlist: Mutex::default(),
            wake: (Mutex::new(false), Condvar::new()),
            quit: AtomicBool::new(false),
        })
    }

    /// The user-mode page, to map.
    pub(crate) fn usermode_fd(&self) -> BorrowedFd<'_> {
        self.usermode.fd()
    }

    /// Channels on the runlists, in the order in which they came.
    pub(crate) fn runlist(&self) -> Arc<Vec<Arc<Entry>>> {
        Arc::clone(&self.runlist.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a channel on its runlist.
    pub(crate) fn add_channel(&self, instance: &Arc<Instance>) {
        let entry = Entry { instance: Arc::clone(instance), pbdma: Mutex::default() };
        let mut list = self.runlist.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut list).push(Arc::new(entry));
        drop(list);
        self.wake();
    }

    /// Takes a channel off its runlist, and waits for the end of its turn.
    pub(crate) fn remove_channel(&self, instance: &Arc<Instance>) {
        let mut list = self.runlist.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut list).retain(|entry| !Arc::ptr_eq(&entry.instance, instance));
        drop(list);
        // The end of the turn that it may have.
        drop(instance.turn());
        if let (Some(ledger), Some(line)) = (&self.units.ledger, instance.known_line()) {
            ledger.state().stop(line);
        }
    }

    /// Makes the thread poll all channels at once.
    pub(crate) fn wake(&self) {
        *self.wake.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.1.notify_all();
    }

    /// Sleeps until woken or until `limit`.
    pub(crate) fn park(&self, limit: Duration) {
        let mut woken = self.wake.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            woken = match self.wake.1.wait_timeout(woken, limit) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *woken = false;
    }

    /// Ends the thread.
    pub(crate) fn quit(&self) {
        self.quit.store(true, Ordering::Release);
        for entry in self.runlist().iter() {
            entry.instance.kill();
        }
        self.wake();
    }

    /// Whether the thread is to end.
    pub(crate) fn is_quitting(&self) -> bool {
        self.quit.load(Ordering::Acquire)
    }

    /// Counters so far.
    pub(crate) fn counters(&self) -> Counters {
        self.units.counters()
    }
}
