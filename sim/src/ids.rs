//! Numbers of channels and groups.

use std::sync::{Arc, Mutex, PoisonError};

/// Order in which free numbers are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The last one freed first (channels: 511, 510, ...).
    LastIn,
    /// The lowest free number first (TSGs).
    Lowest,
}

/// A set of numbers.
#[derive(Debug)]
pub(crate) struct IdPool {
    free: Mutex<Vec<u32>>,
    order: Order,
}

/// A number in use; freed when dropped.
#[derive(Debug)]
pub(crate) struct Id {
    number: u32,
    pool: Arc<IdPool>,
}

impl IdPool {
    /// Numbers 0 to `count - 1`.
    pub(crate) fn new(count: u32, order: Order) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new((0..count).collect()), order })
    }

    /// Takes a number; `None` when all are in use.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Id> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match self.order {
            Order::LastIn => free.pop()?,
            Order::Lowest => {
                let (at, _) = free.iter().enumerate().min_by_key(|(_, n)| **n)?;
                free.swap_remove(at)
            }
        };
        Some(Id { number, pool: Arc::clone(self) })
    }
}

impl Id {
    /// The number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}
