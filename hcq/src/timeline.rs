//! Timelines: a 64-bit value that the GPU raises when work is done, with the time it did so.
//!
//! A slot is 16 bytes: the value, then the GPU's clock in ns, written before the value. Values count modulo 2^64 and
//! are compared by signed difference, in the same way as the hardware's circular acquire does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::address::GpuVa;
use crate::backend::{ChannelId, MemoryKind};
use crate::context::Context;
use crate::error::Error;
use crate::memory::Piece;

/// Whether a timeline at `completed` has passed `value`.
pub(crate) fn reached(completed: u64, value: u64) -> bool {
    completed.wrapping_sub(value) as i64 >= 0
}

/// Bytes of a slot.
const SLOT: u64 = 16;

/// Memory of a value and its timestamp.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `Some` until the slot is dropped.
    piece: Option<Piece>,
    va: GpuVa,
    context: Weak<Context>,
}

impl Slot {
    /// A slot that holds `value` and no time.
    pub fn new(context: &Arc<Context>, value: u64) -> Result<Self, Error> {
        let piece = context.alloc(SLOT, MemoryKind::Shared, "signal")?;
        let slot = Self { va: piece.va(), piece: Some(piece), context: Arc::downgrade(context) };
        slot.word(8, |time| time.store(0, Ordering::Relaxed));
        slot.word(0, |v| v.store(value, Ordering::Release));
        Ok(slot)
    }

    /// Where the GPU sees it.
    pub fn va(&self) -> GpuVa {
        self.va
    }

    fn word<T: Default>(&self, offset: u64, f: impl FnOnce(&AtomicU64) -> T) -> T {
        self.piece.as_ref().and_then(|p| p.atomic(offset).ok()).map(f).unwrap_or_default()
    }

    /// The value. Everything the GPU wrote before releasing it is visible afterwards. The context must be alive, which
    /// the parameter proves: its end unmaps the memory.
    pub fn value(&self, _alive: &Context) -> u64 {
        self.word(0, |v| v.load(Ordering::Acquire))
    }

    /// The GPU's clock at the last release, in ns.
    pub fn time(&self, _alive: &Context) -> u64 {
        self.word(8, |v| v.load(Ordering::Acquire))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let (Some(piece), Some(context)) = (self.piece.take(), self.context.upgrade()) {
            context.free(piece);
        }
    }
}

/// A queue's progress.
#[derive(Debug)]
pub(crate) struct Timeline {
    slot: Slot,
    /// The channel that moves it.
    pub channel: ChannelId,
    /// Value of the last submission that was handed to the GPU.
    submitted: AtomicU64,
    /// The queue is gone: nothing past `submitted` will ever come.
    closed: AtomicBool,
    /// The channel was stopped: nothing past the present value will ever come, and nothing runs any more.
    stopped: AtomicBool,
}

impl Timeline {
    /// A timeline at `start`, where nothing has been submitted.
    pub fn new(context: &Arc<Context>, channel: ChannelId, start: u64) -> Result<Self, Error> {
        let slot = Slot::new(context, start)?;
        let (closed, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { slot, channel, submitted: AtomicU64::new(start), closed, stopped })
    }

    /// Where the GPU writes it.
    pub fn va(&self) -> GpuVa {
        self.slot.va()
    }

    /// The value the GPU has reached.
    pub fn completed(&self, alive: &Context) -> u64 {
        self.slot.value(alive)
    }

    /// The value of the last submission.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// The GPU was given the submission that signals `value`.
    pub fn set_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
    }

    /// The queue goes away.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The channel was stopped.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether the submission that signals `value` was ever made, or still can be.
    pub fn can_reach(&self, value: u64) -> bool {
        reached(self.submitted(), value) || !self.closed.load(Ordering::Acquire)
    }

    /// Whether nothing up to `value` touches memory any more: done, discarded, or stopped.
    pub fn is_over(&self, alive: &Context, value: u64) -> bool {
        let last = if self.closed.load(Ordering::Acquire) && !reached(self.submitted(), value) {
            self.submitted()
        } else {
            value
        };
        self.stopped.load(Ordering::Acquire) || reached(self.completed(alive), last)
    }
}

/// The last submission of a graph, shared by everything the graph names.
pub(crate) type LastReplay = Arc<Mutex<Option<(Arc<Timeline>, u64)>>>;

/// One reason why memory is in use.
#[derive(Clone, Debug)]
enum Use {
    /// A submission of a queue.
    Work(Arc<Timeline>, u64),
    /// A graph that can be replayed at any time, with its last replay.
    Graph(LastReplay),
}

/// Which submissions name a piece of memory: the last one of each queue, and the graphs.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<Vec<Use>>);

impl Uses {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<Use>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The submission that will signal `value` names the memory.
    pub fn mark(&self, timeline: &Arc<Timeline>, value: u64) {
        self.with(|uses| {
            for u in uses.iter_mut() {
                if let Use::Work(t, v) = u
                    && Arc::ptr_eq(t, timeline)
                {
                    *v = value;
                    return;
                }
            }
            uses.push(Use::Work(timeline.clone(), value));
        });
    }

    /// A graph names the memory.
    pub fn mark_graph(&self, last: &LastReplay) {
        self.with(|uses| {
            if !uses.iter().any(|u| matches!(u, Use::Graph(l) if Arc::ptr_eq(l, last))) {
                uses.push(Use::Graph(last.clone()));
            }
        });
    }

    /// Adds what `other` holds.
    pub fn absorb(&self, other: &mut Self) {
        let other = std::mem::take(other.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.with(|uses| uses.extend(other));
    }

    /// Whether a submission of `timeline` from the one that signals `value` on names the memory.
    pub fn name_after(&self, timeline: &Timeline, value: u64) -> bool {
        let of = |t: &Arc<Timeline>, v: u64| std::ptr::eq(Arc::as_ptr(t), timeline) && reached(v, value);
        self.with(|uses| {
            uses.iter().any(|u| match u {
                Use::Work(t, v) => of(t, *v),
                Use::Graph(last) => last
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .as_ref()
                    .is_some_and(|(t, v)| of(t, *v)),
            })
        })
    }

    /// The submissions that are not over yet; forgets those that are.
    fn pending(&self, alive: &Context) -> Vec<(Arc<Timeline>, u64)> {
        let mut pending = Vec::new();
        let mut over = Vec::new();
        self.with(|uses| {
            uses.retain(|u| {
                let (work, keep) = match u {
                    Use::Work(timeline, value) => (Some((timeline.clone(), *value)), false),
                    // The graph itself holds one more reference while it exists.
                    Use::Graph(last) => (
                        last.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                        Arc::strong_count(last) > 1,
                    ),
                };
                match work {
                    Some((timeline, value)) if !timeline.is_over(alive, value) => {
                        pending.push((timeline, value));
                        true
                    }
                    // Dropped outside the lock: a timeline's end frees memory.
                    over_work => {
                        over.push(over_work);
                        keep
                    }
                }
            });
        });
        drop(over);
        pending
    }

    /// Whether no submission touches the memory any more.
    pub fn are_over(&self, alive: &Context) -> bool {
        self.pending(alive).is_empty()
    }

    /// Waits for the last submission of each queue that names the memory.
    ///
    /// Work that was recorded but not submitted is not waited for.
    pub fn wait(&self, context: &Context, patience: Duration) -> Result<(), Error> {
        for (timeline, value) in self.pending(context) {
            let submitted = timeline.submitted();
            let value = if reached(submitted, value) { value } else { submitted };
            context.wait(&timeline, value, patience)?;
        }
        Ok(())
    }
}

/// A point in a queue's work that can be waited for.
#[derive(Clone)]
pub struct SyncPoint {
    pub(crate) context: Arc<Context>,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) value: u64,
}

impl std::fmt::Debug for SyncPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SyncPoint({} on timeline {})", self.value, self.timeline.va())
    }
}

impl SyncPoint {
    /// Waits until everything submitted up to this point is done, at most `timeout`.
    ///
    /// Spins briefly, then yields, then sleeps; a stopped channel is noticed within milliseconds.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Fault`] if the GPU stopped the work.
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.context.wait(&self.timeline, self.value, timeout)
    }

    /// Whether everything submitted up to this point is done.
    ///
    /// # Errors
    /// [`Error::Fault`] if the GPU stopped the work.
    pub fn is_done(&self) -> Result<bool, Error> {
        if reached(self.timeline.completed(&self.context), self.value) {
            return Ok(true);
        }
        self.context.check(&self.timeline)?;
        Ok(false)
    }
}

/// A time taken by the GPU, when the work before it is done.
#[derive(Clone, Debug)]
pub struct Timestamp {
    pub(crate) context: Arc<Context>,
    pub(crate) slot: Arc<Slot>,
}

impl Timestamp {
    /// The GPU's clock in ns (a multiple of 32 on current chips); `None` until the GPU has taken it. Of a timestamp
    /// in a graph: that of the last replay that got so far.
    pub fn ns(&self) -> Option<u64> {
        match self.slot.time(&self.context) {
            0 => None,
            ns => Some(ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_compare_across_the_rollover() {
        assert!(reached(0, u64::MAX));
        assert!(!reached(u64::MAX, 0));
        assert!(reached(5, 5));
        assert!(!reached(u64::MAX - 1, u64::MAX));
    }

    proptest! {
        #[test]
        fn a_value_is_reached_by_itself_and_what_follows(value in any::<u64>(), ahead in 0u64..1 << 62) {
            prop_assert!(reached(value.wrapping_add(ahead), value));
            prop_assert_eq!(reached(value, value.wrapping_add(ahead)), ahead == 0);
        }
    }
}
