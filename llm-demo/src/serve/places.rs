//! Places for connections: when all are taken, the one that has been idle for the longest is closed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// Time that a connection has to say something before it may be closed for another.
const GRACE: Duration = Duration::from_millis(100);
/// As [`State::idle_since`]: the connection has a request.
const BUSY: u64 = u64::MAX;

/// All places.
pub struct Places {
    most: usize,
    taken: Mutex<Vec<Arc<State>>>,
    begin: Instant,
    /// A place has become free, or a connection idle.
    changed: Notify,
}

/// The place of a connection, which is free when it is dropped.
pub struct Place {
    places: Arc<Places>,
    state: Arc<State>,
}

struct State {
    /// Microseconds after [`Places::begin`].
    idle_since: AtomicU64,
    close: Notify,
}

/// A request of a connection and its answer, until it is dropped.
pub struct Busy(Arc<Places>, Arc<State>);

impl Places {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), begin: Instant::now(), changed: Notify::new() })
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Arc<State>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }

    /// A place. Waits while all are taken by connections with requests.
    pub async fn take(self: &Arc<Self>) -> Place {
        loop {
            let changed = self.changed.notified();
            let wait = {
                let mut taken = self.taken();
                if taken.len() < self.most {
                    let state = Arc::new(State { idle_since: self.now().into(), close: Notify::new() });
                    taken.push(Arc::clone(&state));
                    return Place { places: Arc::clone(self), state };
                }
                let idle = taken.iter().map(|state| (state.idle_since.load(Ordering::Relaxed), state));
                let oldest = idle.filter(|(since, _)| *since != BUSY).min_by_key(|(since, _)| *since);
                let wait = oldest.map(|(since, state)| {
                    let idle = Duration::from_micros(self.now().saturating_sub(since));
                    GRACE.checked_sub(idle).unwrap_or_else(|| {
                        state.close.notify_one();
                        GRACE
                    })
                });
                wait.unwrap_or(Duration::MAX)
            };
            // Whatever happens is looked at anew.
            let _ = timeout(wait, changed).await;
        }
    }

    /// Asks all connections to end.
    pub fn close(&self) {
        self.taken().iter().for_each(|state| state.close.notify_one());
    }

    /// Waits until no place is taken.
    pub async fn free(&self) {
        loop {
            let changed = self.changed.notified();
            if self.taken().is_empty() {
                return;
            }
            changed.await;
        }
    }
}

impl Place {
    /// Waits until the connection has to end, when it has answered a request that it may have. Returns whether
    /// it has one.
    pub async fn closed(&self) -> bool {
        self.state.close.notified().await;
        self.state.idle_since.load(Ordering::Relaxed) == BUSY
    }

    /// Begins a request.
    pub fn begin(&self) -> Busy {
        self.state.idle_since.store(BUSY, Ordering::Relaxed);
        Busy(Arc::clone(&self.places), Arc::clone(&self.state))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().retain(|state| !Arc::ptr_eq(state, &self.state));
        self.places.changed.notify_waiters();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Self(places, state) = self;
        state.idle_since.store(places.now(), Ordering::Relaxed);
        places.changed.notify_waiters();
    }
}
