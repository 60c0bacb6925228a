//! Deferred frees: memory kept until the submissions that name it complete; and channels, kept until no other
//! channel of their group works: closing one beside work that does not give way takes the group down.

use std::any::Any;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, QueueError};
use crate::submission::gpfifo::OwnedChannel;
use crate::submission::timeline::Timeline;
use crate::submission::uses::Uses;
use crate::sync::lock;

/// Channels that wait to be closed while others work, where those give way: a program that makes and drops queues
/// beside work without a pause has no moment of rest.
const MOST_CLOSING: usize = 16;

/// Something that is dropped when submissions have completed: memory, a slot, a timeline.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

struct Retired {
    uses: Uses,
    _kept: Vec<Keep>,
}

/// The deferred frees of a device.
#[derive(Default)]
pub(crate) struct Limbo {
    retired: Mutex<Vec<Retired>>,
    /// The channels of the group that work may run on.
    lanes: Mutex<Vec<Weak<Timeline>>>,
    /// Channels to be closed.
    closing: Mutex<Closing>,
}

/// Channels that work no more.
#[derive(Default)]
struct Closing {
    /// Those that wait.
    waiting: Vec<OwnedChannel>,
    /// Those that are open yet: that wait, or that a thread is closing.
    open: usize,
    /// Those that were closed so far.
    closed: u64,
}

impl Limbo {
    /// Keeps `kept` until the submissions in `uses` have ended.
    pub fn retire(&self, uses: Uses, kept: impl IntoIterator<Item = Keep>) {
        if !uses.have_ended() {
            let kept = kept.into_iter().collect();
            lock(&self.retired).push(Retired { uses, _kept: kept });
        }
    }

    /// Drops memory and channels whose work has completed.
    pub fn collect(&self) {
        let mut waiting = lock(&self.retired);
        let over: Vec<Retired> = waiting.extract_if(.., |r| r.uses.have_ended()).collect();
        drop(waiting);
        // Outside the lock, because it frees memory.
        drop(over);
        if !lock(&self.closing).waiting.is_empty() && self.is_at_rest() {
            let waiting = std::mem::take(&mut lock(&self.closing).waiting);
            self.end(waiting);
        }
    }

    /// Closes channels: outside the lock, because each takes some time of the driver.
    fn end(&self, channels: Vec<OwnedChannel>) {
        let count = channels.len();
        drop(channels);
        let mut closing = lock(&self.closing);
        closing.open -= count;
        closing.closed += count as u64;
    }

    /// Opens a channel. While those that are to be closed are in the way, as they count for the driver's limit,
    /// polls for a moment in which no channel works, for up to `patience`.
    pub fn make_room<T>(
        &self,
        patience: Duration,
        mut open: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begin = Instant::now();
        loop {
            let before = {
                let closing = lock(&self.closing);
                (closing.open, closing.closed)
            };
            let made = open();
            if !matches!(made, Err(Error::Queue(QueueError::TooMany { .. }))) {
                return made;
            }
            self.collect();
            if before == (0, lock(&self.closing).closed) || begin.elapsed() >= patience {
                return made;
            }
            thread::yield_now();
        }
    }

    /// Work may run on a channel from now on.
    pub fn enter(&self, lane: &Arc<Timeline>) {
        let mut lanes = lock(&self.lanes);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
    }

    fn lanes(&self) -> Vec<Arc<Timeline>> {
        lock(&self.lanes).iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether no channel works.
    fn is_at_rest(&self) -> bool {
        self.lanes().iter().all(|lane| lane.is_idle())
    }

    /// Closes a channel that works no more, as soon as no other does; or with some others, where work gives way
    /// to the driver.
    pub fn close(&self, channel: Option<OwnedChannel>, gives_way: bool) {
        let now = {
            let mut closing = lock(&self.closing);
            closing.open += usize::from(channel.is_some());
            closing.waiting.extend(channel);
            let many = gives_way && closing.waiting.len() > MOST_CLOSING;
            if many { std::mem::take(&mut closing.waiting) } else { Vec::new() }
        };
        self.end(now);
        self.collect();
    }

    /// Closes a channel whose work has not ended, and finds out which others that took with it.
    pub fn close_now(&self, channel: Option<OwnedChannel>) {
        drop(channel);
        self.lanes().iter().filter(|lane| !lane.is_closed()).for_each(|lane| lane.sibling_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::Books;
    use crate::backend::{ChannelId, ChannelRequest, Engine, MemoryKind};
    use crate::core::Core;
    use crate::submission::gpfifo::Gpfifo;
    use crate::submission::timeline::Slot;

    #[test]
    fn memory_goes_back_when_the_submission_that_names_it_is_over() {
        let books = Books::new(usize::MAX);
        let (core, limbo) = (books.core(), Limbo::default());
        let timeline = Arc::new(Timeline::new(&core, ChannelId(1), Slot::new(&core).unwrap()));
        let piece = |what| Arc::new(core.alloc(64, MemoryKind::Device, what).unwrap());
        let live =
            || core.memory().mappings().iter().map(|m| m.what).filter(|what| *what != "signal").count();
        limbo.retire(Uses::default(), [piece("idle") as Keep]);
        assert_eq!(live(), 0, "nothing uses it");
        let uses = Uses::default();
        uses.mark(&timeline, 1);
        limbo.retire(uses, [piece("busy") as Keep]);
        limbo.collect();
        assert_eq!(live(), 1);
        books.poke(timeline.va(), 1);
        assert_eq!(live(), 1, "until something collects");
        limbo.collect();
        assert_eq!(live(), 0);
    }

    /// A channel that works no more.
    fn channel(books: &Arc<Books>) -> Option<OwnedChannel> {
        let request = ChannelRequest { engine: Engine::Copy, entries: 8, va: None };
        Gpfifo::new(books.core().backend(), &request).unwrap().close()
    }

    /// A channel of the group with one submission; it ends when the books' word is poked.
    fn busy(core: &Arc<Core>, limbo: &Limbo) -> Arc<Timeline> {
        let lane = Arc::new(Timeline::new(core, ChannelId(100), Slot::new(core).unwrap()));
        lane.set_submitted(1);
        limbo.enter(&lane);
        lane
    }

    #[test]
    fn a_channel_is_closed_when_no_other_of_its_group_works() {
        let (books, limbo) = (Books::new(usize::MAX), Limbo::default());
        limbo.close(channel(&books), false);
        assert_eq!(books.channels(), 0, "none works");
        let core = books.core();
        let lanes = [busy(&core, &limbo), busy(&core, &limbo)];
        limbo.close(channel(&books), false);
        for lane in &lanes {
            limbo.collect();
            assert_eq!(books.channels(), 1, "one works yet");
            books.poke(lane.va(), 1);
        }
        limbo.collect();
        assert_eq!(books.channels(), 0);
        drop(lanes);
        busy(&core, &limbo);
        assert_eq!(lock(&limbo.lanes).len(), 1, "those that are gone are forgotten");
    }

    #[test]
    fn beside_work_that_gives_way_only_so_many_channels_wait() {
        let (books, limbo) = (Books::new(usize::MAX), Limbo::default());
        let lane = busy(&books.core(), &limbo);
        for waiting in 1..=MOST_CLOSING {
            limbo.close(channel(&books), true);
            assert_eq!(books.channels(), waiting);
        }
        limbo.close(channel(&books), true);
        assert_eq!(books.channels(), 0, "one more, and all are closed");
        for waiting in 1..=MOST_CLOSING + 2 {
            limbo.close(channel(&books), false);
            assert_eq!(books.channels(), waiting, "work that does not give way is not disturbed");
        }
        books.poke(lane.va(), 1);
        limbo.collect();
        assert_eq!(books.channels(), 0);
    }

    #[test]
    fn a_channel_that_finds_no_room_is_opened_once_those_that_wait_are_closed() {
        const LONG: Duration = Duration::from_secs(60);
        let (books, limbo) = (Books::new(usize::MAX), Limbo::default());
        let lane = busy(&books.core(), &limbo);
        let full = || Err::<(), _>(Error::Queue(QueueError::TooMany { limit: 1 }));
        let is_full = |made: Result<(), Error>| matches!(made, Err(Error::Queue(QueueError::TooMany { .. })));
        let mut calls = 0;
        let mut count = |made: Result<(), Error>| {
            calls += 1;
            made
        };
        let made = limbo.make_room(LONG, || count(full()));
        assert!(is_full(made) && calls == 1, "{calls} calls, though nothing is to be closed");

        limbo.close(channel(&books), false);
        let made = limbo.make_room(LONG, || Err::<(), _>(Error::Queue(QueueError::Stopped)));
        assert!(matches!(made, Err(Error::Queue(QueueError::Stopped))), "another reason");
        let (begin, patience) = (Instant::now(), Duration::from_millis(2));
        assert!(is_full(limbo.make_room(patience, full)) && begin.elapsed() >= patience);

        let mut calls = 0;
        let made = limbo.make_room(LONG, || {
            calls += 1;
            if calls == 3 {
                books.poke(lane.va(), 1);
            }
            if books.channels() == 0 { Ok(()) } else { full() }
        });
        assert!(made.is_ok() && calls == 4, "{calls} calls");
        let closing = lock(&limbo.closing);
        assert_eq!((closing.open, closing.closed), (0, 1));
    }
}
