//! Timelines: a 64-bit value that the GPU raises when work is done, with the time it did so.
//!
//! A slot is 16 bytes: the value, then the GPU's clock in ns, written before the value. A timeline starts at
//! the value that its slot holds: the CPU does not write there what the GPU is to read, which may not see it in
//! write-combined memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::GpuVa;
use crate::backend::{ChannelId, MemoryKind};
use crate::core::{Core, Position};
use crate::error::{Error, QueueError};
use crate::memory::manager::Piece;
use crate::serial::reached;
use crate::sync::lock;

/// Bytes of a slot.
const SLOT: u64 = 16;
/// Yields this long after spinning, before it sleeps.
const YIELD: Duration = Duration::from_micros(200);
/// A sleep is at most this part of what was waited already: what a wait may be too long by.
const SLEEP_SHARE: u32 = 32;
/// Interval at which a waiting call asks the driver whether it has given the channel up: a system call.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Interval at which a spinning wait looks whether its channel was stopped: a word of memory.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Longest sleep, which bounds how late the end of work or a dead channel is noticed.
const LONGEST_SLEEP: Duration = Duration::from_micros(500);

/// Memory of a value and its timestamp.
#[derive(Debug)]
pub(crate) struct Slot(Piece);

impl Slot {
    /// A slot that holds no time, and the value that its last owner has left: 0 at first.
    pub fn new(core: &Core) -> Result<Self, Error> {
        let piece = core.alloc(SLOT, MemoryKind::Signal, "signal")?;
        piece.atomic(8)?.store(0, Ordering::Release);
        Ok(Self(piece))
    }

    /// A slot that holds `value` where it has had no owner.
    pub fn starting_at(core: &Core, value: u64) -> Result<Self, Error> {
        let slot = Self::new(core)?;
        if value != 0 && slot.value() == 0 {
            slot.0.atomic(0)?.store(value, Ordering::Release);
        }
        Ok(slot)
    }

    /// The GPU address.
    pub fn va(&self) -> GpuVa {
        self.0.va()
    }

    fn word(&self, offset: u64) -> u64 {
        // Both words could be reached when the slot was made; a fork of the process reaches neither, and
        // reads 0.
        self.0.atomic(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Whether another slot is of the same device.
    fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.0.manager(), other.0.manager())
    }

    /// The value. Everything the GPU wrote before releasing it is visible afterwards.
    pub fn value(&self) -> u64 {
        self.word(0)
    }

    /// The GPU's clock at the last release, in ns.
    pub fn time(&self) -> u64 {
        self.word(8)
    }
}

/// A submission of another channel that starts when this timeline has reached `value`.
#[derive(Debug)]
struct Waiter {
    value: u64,
    by: Weak<Timeline>,
    /// The value that the submission signals there.
    signals: u64,
}

/// The progress of a channel.
#[derive(Debug)]
pub(crate) struct Timeline {
    core: Arc<Core>,
    slot: Slot,
    /// The channel that moves it.
    channel: ChannelId,
    /// Value of the last submission that was handed to the GPU.
    submitted: AtomicU64,
    /// The channel's owner is gone: nothing past `submitted` will ever come.
    closed: AtomicBool,
    /// The channel was stopped: nothing past the present value will ever come, and nothing runs any more.
    stopped: AtomicBool,
    waiters: Mutex<Vec<Waiter>>,
    /// The first submission that waits for what will never come.
    starved: Mutex<Option<u64>>,
    /// When the driver was asked whether it has given the channel up.
    asked: Mutex<Option<Instant>>,
}

impl Timeline {
    /// The timeline of `channel`, which has submitted nothing; `slot` holds where it starts.
    pub fn new(core: &Arc<Core>, channel: ChannelId, slot: Slot) -> Self {
        let submitted = AtomicU64::new(slot.value());
        let (closed, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let (waiters, starved, asked) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { core: core.clone(), slot, channel, submitted, closed, stopped, waiters, starved, asked }
    }

    /// The device it belongs to.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The channel that moves it.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// The GPU address that is written.
    pub fn va(&self) -> GpuVa {
        self.slot.va()
    }

    /// The value the GPU has reached.
    pub fn completed(&self) -> u64 {
        let value = self.slot.value();
        self.core.observer().completed(self.slot.va(), value);
        value
    }

    /// The value of the last submission.
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// The GPU was given the submission that signals `value`.
    pub fn set_submitted(&self, value: u64) {
        self.submitted.store(value, Ordering::Release);
    }

    /// The channel's owner goes away.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the channel's owner is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The channel was stopped: submissions of other channels that wait for it will never start.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.starve_waiters(self.completed().wrapping_add(1));
    }

    /// The submission that signals `value` in `by` starts when this timeline has reached `wanted`.
    pub fn add_waiter(&self, wanted: u64, by: &Arc<Self>, signals: u64) -> Result<(), Error> {
        let completed = self.completed();
        let mut waiters = lock(&self.waiters);
        // Asked under the lock: who stops the timeline finds the waiter, or the waiter sees that it stopped.
        if !reached(completed, wanted) && (self.stopped.load(Ordering::Acquire) || self.is_starved(wanted)) {
            drop(waiters);
            self.core.alive()?;
            return Err(Error::Queue(QueueError::Starved));
        }
        waiters.retain(|waiter| !reached(completed, waiter.value) && waiter.by.strong_count() > 0);
        waiters.push(Waiter { value: wanted, by: Arc::downgrade(by), signals });
        Ok(())
    }

    /// Values from `from` on will never come, and neither will what waits for them.
    fn starve_waiters(&self, from: u64) {
        let without_end = |waiter: &mut Waiter| reached(waiter.value, from);
        let starved: Vec<Waiter> = lock(&self.waiters).extract_if(.., without_end).collect();
        for waiter in starved {
            if let Some(by) = waiter.by.upgrade() {
                by.starve(waiter.signals);
            }
        }
    }

    fn starve(&self, from: u64) {
        {
            let mut starved = lock(&self.starved);
            if starved.is_some_and(|first| reached(from, first)) {
                return;
            }
            *starved = Some(from);
        }
        self.starve_waiters(from);
    }

    /// Whether the submission that signals `value` waits for what will never come, or follows one that does.
    fn is_starved(&self, value: u64) -> bool {
        lock(&self.starved).is_some_and(|first| reached(value, first))
    }

    /// Whether the submission that signals `value` was ever made, or still can be.
    fn can_reach(&self, value: u64) -> bool {
        reached(self.submitted(), value) || !self.closed.load(Ordering::Acquire)
    }

    /// Whether nothing up to `value` touches memory any more: done, discarded, or stopped.
    pub fn has_ended(&self, value: u64) -> bool {
        let last = if self.can_reach(value) { value } else { self.submitted() };
        self.stopped.load(Ordering::Acquire) || reached(self.completed(), last)
    }

    /// Asks whether something keeps `value` from ever being reached; if so, says what.
    fn check(&self, value: u64) -> Result<(), Error> {
        let backend = self.core.backend();
        let code = backend.channel_error(self.channel).or_else(|| {
            // The notification comes before the driver gives the channel up.
            self.is_given_up().then(|| backend.channel_error(self.channel).unwrap_or(0))
        });
        let Some(code) = code else {
            let error = match self.stopped.load(Ordering::Acquire) {
                true => Error::Queue(QueueError::Stopped),
                false if self.is_starved(value) => Error::Queue(QueueError::Starved),
                false => return Ok(()),
            };
            // The fault that was its cause says more, if there was one.
            self.core.alive()?;
            return Err(error);
        };
        // The fault first: whoever sees that the channel was stopped asks for the cause.
        let error = self.core.lose(Position { channel: self.channel, completed: self.completed() }, code);
        self.stop();
        Err(error)
    }

    /// Whether `value` is reached, or what keeps it from being reached.
    fn look(&self, value: u64) -> Result<bool, Error> {
        // Asked before the value is read: work that finished in time counts, whatever happened after it.
        let error = self.check(value);
        match reached(self.completed(), value) {
            true => Ok(true),
            false => error.map(|()| false),
        }
    }

    /// Asks the driver, now and then, whether it has given the channel up.
    fn is_given_up(&self) -> bool {
        let mut asked = lock(&self.asked);
        if asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return false;
        }
        *asked = Some(Instant::now());
        drop(asked);
        self.core.backend().is_given_up(self.channel)
    }

    /// A channel of the same group was closed before its work had ended: finds out at once whether that took
    /// this channel with it.
    pub fn sibling_closed(&self) {
        *lock(&self.asked) = None;
        if let Err(error) = self.check(self.completed()) {
            tracing::warn!(%error, "a queue was lost with another one of its device");
        }
    }

    /// Whether everything that was submitted has ended.
    pub fn is_idle(&self) -> bool {
        self.has_ended(self.submitted())
    }

    /// Waits until `value` is reached: spins, yields, then sleeps, at most `timeout`.
    pub fn wait(&self, value: u64, timeout: Duration) -> Result<(), Error> {
        self.core.here()?;
        if reached(self.completed(), value) {
            return Ok(());
        }
        if !self.can_reach(value) {
            return Err(Error::Queue(QueueError::Discarded));
        }
        let start = Instant::now();
        let spin = self.core.spin().min(timeout);
        let mut looked = start;
        loop {
            for _ in 0..64 {
                if reached(self.completed(), value) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now - start >= spin {
                break;
            }
            if now - looked >= LOOK_EVERY {
                looked = now;
                if self.look(value)? {
                    return Ok(());
                }
            }
        }
        loop {
            if self.look(value)? {
                return Ok(());
            }
            let waited = start.elapsed();
            if waited >= timeout {
                let (reached, explanation) = (self.completed(), self.core.backend().explanation());
                return Err(Error::Queue(QueueError::Timeout {
                    limit: timeout,
                    wanted: value,
                    reached,
                    explanation,
                }));
            }
            if waited < spin + YIELD {
                thread::yield_now();
            } else {
                thread::sleep((waited / SLEEP_SHARE).min(LONGEST_SLEEP).min(timeout - waited));
            }
        }
    }
}

/// A point in a queue's work that can be waited for.
#[derive(Clone)]
pub struct SyncPoint {
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) value: u64,
}

impl fmt::Debug for SyncPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SyncPoint({} on timeline {})", self.value, self.timeline.va())
    }
}

impl SyncPoint {
    /// Waits until everything submitted up to this point is done, at most `timeout`.
    ///
    /// Spins briefly, then yields, then sleeps; in all of them a stopped channel is noticed within milliseconds.
    ///
    /// # Errors
    /// [`QueueError::Timeout`]; [`Error::Fault`] if the GPU stopped the work; [`QueueError::Stopped`] if its
    /// queue was dropped before the work ended; [`QueueError::Starved`] if that happened to work that it
    /// waits for; [`Error::Forked`] in a fork of the process that submitted it.
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        self.timeline.wait(self.value, timeout)
    }

    /// Whether everything submitted up to this point is done.
    ///
    /// # Errors
    /// [`Error::Fault`] if the GPU stopped the work; [`QueueError::Stopped`]; [`QueueError::Starved`];
    /// [`Error::Forked`].
    pub fn is_done(&self) -> Result<bool, Error> {
        self.timeline.core.here()?;
        if reached(self.timeline.completed(), self.value) {
            return Ok(true);
        }
        self.timeline.check(self.value)?;
        Ok(false)
    }
}

/// A time taken by the GPU, when the work before it is done.
#[derive(Clone)]
pub struct Timestamp {
    pub(crate) slot: Arc<Slot>,
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns() {
            Some(ns) => write!(f, "Timestamp({ns} ns)"),
            None => f.write_str("Timestamp(not taken)"),
        }
    }
}

impl Timestamp {
    /// The GPU's clock in ns (a multiple of 32 on current chips); `None` until the GPU has taken it. Of a
    /// timestamp in a graph: that of the last replay that got so far.
    pub fn ns(&self) -> Option<u64> {
        match self.slot.time() {
            0 => None,
            ns => Some(ns),
        }
    }

    /// Nanoseconds from `begin`, a timestamp of any queue of the device, to this one; negative where `begin` was
    /// taken later, and `None` until the GPU has taken both.
    ///
    /// # Errors
    /// [`Error::ForeignDevice`]: devices have clocks of their own.
    pub fn since(&self, begin: &Self) -> Result<Option<i64>, Error> {
        if !self.slot.is_beside(&begin.slot) {
            return Err(Error::ForeignDevice { what: "timestamp" });
        }
        let times = self.ns().zip(begin.ns());
        Ok(times.map(|(end, begin)| end.wrapping_sub(begin).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::Books;

    #[test]
    fn who_waits_for_a_stopped_timeline_learns_it_and_who_waits_for_that_one_too() {
        let books = Books::new(usize::MAX);
        let core = books.core();
        let [a, b, c] =
            [1, 2, 3].map(|id| Arc::new(Timeline::new(&core, ChannelId(id), Slot::new(&core).unwrap())));
        for timeline in [&a, &b, &c] {
            timeline.set_submitted(4);
        }
        a.add_waiter(1, &b, 1).unwrap();
        a.add_waiter(2, &b, 3).unwrap();
        b.add_waiter(2, &c, 1).unwrap();
        b.add_waiter(4, &c, 2).unwrap();
        books.poke(a.va(), 1);
        a.stop();
        let starved = |t: &Timeline, value| matches!(t.check(value), Err(Error::Queue(QueueError::Starved)));
        assert_eq!([1, 2, 3, 4].map(|value| starved(&b, value)), [false, false, true, true]);
        assert_eq!([1, 2, 3].map(|value| starved(&c, value)), [false, true, true]);
        assert!(matches!(a.check(2), Err(Error::Queue(QueueError::Stopped))));
        assert!(matches!(c.wait(2, Duration::from_secs(60)), Err(Error::Queue(QueueError::Starved))));
        // What comes later learns it at once, unless it waits for what was reached.
        assert!(matches!(a.add_waiter(2, &c, 5), Err(Error::Queue(QueueError::Starved))));
        assert!(matches!(b.add_waiter(3, &c, 5), Err(Error::Queue(QueueError::Starved))));
        a.add_waiter(1, &c, 5).unwrap();
        b.add_waiter(2, &c, 5).unwrap();
    }

    fn timelines<const N: usize>(core: &Arc<Core>) -> [Arc<Timeline>; N] {
        std::array::from_fn(|id| {
            Arc::new(Timeline::new(core, ChannelId(id as u64), Slot::new(core).unwrap()))
        })
    }

    #[test]
    fn who_waits_is_remembered_until_the_wait_is_over() {
        let books = Books::new(usize::MAX);
        let [a, b, c] = timelines(&books.core());
        let waiting = || lock(&a.waiters).len();
        a.add_waiter(1, &b, 1).unwrap();
        a.add_waiter(2, &c, 1).unwrap();
        assert_eq!(waiting(), 2);
        books.poke(a.va(), 1);
        a.add_waiter(3, &b, 2).unwrap();
        assert_eq!(waiting(), 2, "what was reached is forgotten");
        drop(c);
        a.add_waiter(4, &b, 3).unwrap();
        assert_eq!(waiting(), 2, "and so is who is gone");
    }

    #[test]
    fn a_timeline_starts_where_the_last_owner_of_its_memory_has_ended() {
        let books = Books::new(usize::MAX);
        let core = books.core();
        let slot = Slot::starting_at(&core, 5).unwrap();
        let (va, time) = (slot.va(), GpuVa::inside(slot.va().raw() + 8));
        assert_eq!((slot.value(), slot.time()), (5, 0));
        books.poke(va, 7);
        books.poke(time, 99);
        assert_eq!((slot.value(), slot.time()), (7, 99));
        drop(slot);
        let slot = Slot::starting_at(&core, 5).unwrap();
        assert_eq!((slot.va(), slot.value(), slot.time()), (va, 7, 0), "the GPU may have seen it there");
        let timeline = Timeline::new(&core, ChannelId(3), slot);
        assert_eq!((timeline.submitted(), timeline.completed(), timeline.va()), (7, 7, va));
        assert!(timeline.is_idle() && timeline.has_ended(7) && !timeline.has_ended(8));
        assert!(timeline.wait(7, Duration::ZERO).is_ok());
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over_and_says_how_far_the_work_came() {
        let books = Books::new(usize::MAX);
        let [a] = timelines(&books.core());
        books.poke(a.va(), 3);
        // Longer than it spins and yields.
        let timeout = Duration::from_millis(20);
        let begin = Instant::now();
        let error = a.wait(5, timeout).unwrap_err();
        let took = begin.elapsed();
        let Error::Queue(QueueError::Timeout { limit, wanted: 5, reached: 3, .. }) = error else {
            panic!("{error}")
        };
        assert!(limit >= timeout && took >= limit && took < Duration::from_secs(20), "{limit:?} of {took:?}");
    }

    #[test]
    fn work_that_was_never_submitted_is_waited_for_until_its_queue_goes() {
        let books = Books::new(usize::MAX);
        let [a] = timelines(&books.core());
        a.set_submitted(2);
        assert!(!a.is_closed());
        assert!(matches!(a.wait(3, Duration::ZERO), Err(Error::Queue(QueueError::Timeout { .. }))));
        a.close();
        assert!(a.is_closed());
        assert!(matches!(a.wait(3, Duration::ZERO), Err(Error::Queue(QueueError::Discarded))));
        assert!(matches!(a.wait(2, Duration::ZERO), Err(Error::Queue(QueueError::Timeout { .. }))));
        assert!(!a.has_ended(3), "what comes before it runs yet");
        books.poke(a.va(), 2);
        assert!(a.has_ended(3) && a.wait(2, Duration::ZERO).is_ok());
    }

    #[test]
    fn the_driver_is_asked_now_and_then_and_when_a_sibling_was_closed() {
        let books = Books::new(usize::MAX);
        let [a] = timelines(&books.core());
        let begin = Instant::now();
        (0..100).for_each(|_| a.check(1).unwrap());
        let asked = books.asked();
        assert!(asked == 1 || begin.elapsed() >= ASK_EVERY, "{asked} system calls at once");
        a.sibling_closed();
        assert_eq!(books.asked(), asked + 1, "no interval keeps this one");
        thread::sleep(ASK_EVERY);
        a.check(1).unwrap();
        assert_eq!(books.asked(), asked + 2);
    }

    #[test]
    fn a_point_is_done_when_the_gpu_has_reached_it_and_a_time_taken_when_it_is_there() {
        let books = Books::new(usize::MAX);
        let core = books.core();
        let [timeline] = timelines(&core);
        let point = SyncPoint { timeline, value: 1 };
        assert!(!point.is_done().unwrap());
        books.poke(point.timeline.va(), 1);
        assert!(point.is_done().unwrap());
        point.wait(Duration::ZERO).unwrap();
        let time = Timestamp { slot: Arc::new(Slot::new(&core).unwrap()) };
        assert_eq!(time.ns(), None);
        books.poke(GpuVa::inside(time.slot.va().raw() + 8), 64);
        assert_eq!(time.ns(), Some(64));
    }
}
