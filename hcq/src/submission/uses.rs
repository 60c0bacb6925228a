//! The submissions that name a piece of memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::backend::ChannelId;
use crate::error::{Error, QueueError};
use crate::serial::reached;
use crate::submission::timeline::Timeline;
use crate::sync::lock;

/// A submission: the timeline it moves, and the value it signals.
pub(crate) type Submission = (Arc<Timeline>, u64);

/// The replays of a graph; everything the graph names refers to them.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    work: Uses,
    /// The graph is gone, and will not be replayed again.
    closed: AtomicBool,
}

impl Replays {
    /// Those that have not ended.
    pub fn pending(&self) -> Vec<Submission> {
        self.work.pending()
    }

    /// Another was submitted: the one that will signal `value`.
    pub fn mark(&self, timeline: &Arc<Timeline>, value: u64) {
        self.work.mark(timeline, value);
    }

    /// The graph goes away.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// One reason why memory is in use.
#[derive(Debug)]
enum Use {
    /// A submission of a queue.
    Work(Submission),
    /// A graph that can be replayed at any time.
    Graph(Arc<Replays>),
}

impl Use {
    fn is_of(&self, replays: &Arc<Replays>) -> bool {
        matches!(self, Self::Graph(r) if Arc::ptr_eq(r, replays))
    }
}

/// The submissions that name a piece of memory: the last one of each queue, and the graphs.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<Vec<Use>>);

impl Uses {
    /// Those of a graph alone.
    pub fn of_graph(replays: &Arc<Replays>) -> Self {
        Self(Mutex::new(vec![Use::Graph(replays.clone())]))
    }

    /// The submission that will signal `value` names the memory.
    pub fn mark(&self, timeline: &Arc<Timeline>, value: u64) {
        let mut uses = lock(&self.0);
        for u in uses.iter_mut() {
            if let Use::Work((t, v)) = u
                && Arc::ptr_eq(t, timeline)
            {
                // Work that is recorded and not submitted may be known already when a replay is.
                *v = if reached(*v, value) { *v } else { value };
                return;
            }
        }
        Self::push(uses, Use::Work((timeline.clone(), value)));
    }

    /// A graph names the memory.
    pub fn mark_graph(&self, replays: &Arc<Replays>) {
        let uses = lock(&self.0);
        if !uses.iter().any(|u| u.is_of(replays)) {
            Self::push(uses, Use::Graph(replays.clone()));
        }
    }

    /// A graph, which cannot be replayed meanwhile, names the memory no more: its replays so far do.
    pub fn unmark_graph(&self, replays: &Arc<Replays>) {
        // These first: nobody finds the memory unused in between.
        replays.pending().iter().for_each(|(timeline, value)| self.mark(timeline, *value));
        lock(&self.0).retain(|u| !u.is_of(replays));
    }

    /// Adds a use. Before the list grows, what has ended is forgotten: in its life a kernel is launched by many
    /// queues and graphs.
    fn push(mut uses: MutexGuard<'_, Vec<Use>>, new: Use) {
        let full = uses.len() == uses.capacity();
        let over = if full { Self::sort(&mut uses, &mut Vec::new()) } else { Vec::new() };
        uses.push(new);
        drop(uses);
        drop(over);
    }

    /// Adds what `other` holds, and leaves nothing there.
    pub fn absorb(&self, other: &Self) {
        let other = std::mem::take(&mut *lock(&other.0));
        lock(&self.0).extend(other);
    }

    /// Whether a submission of `channel` from the one that signals `value` on names the memory.
    pub fn name_after(&self, channel: ChannelId, value: u64) -> bool {
        lock(&self.0).iter().any(|u| match u {
            Use::Work((t, v)) => t.channel() == channel && reached(*v, value),
            Use::Graph(replays) => replays.work.name_after(channel, value),
        })
    }

    /// Adds the submissions that have not ended to `pending`. Takes out the uses that are over, for the caller to
    /// drop outside the locks: the end of a timeline frees memory.
    fn sort(uses: &mut Vec<Use>, pending: &mut Vec<Submission>) -> Vec<Use> {
        let mut of_graphs = Vec::new();
        let is_over = |u: &mut Use| match u {
            Use::Work((timeline, value)) => {
                let ended = timeline.has_ended(*value);
                if !ended {
                    pending.push((timeline.clone(), *value));
                }
                ended
            }
            Use::Graph(replays) => {
                // Asked before its replays are: then none comes after them.
                let (closed, before) = (replays.closed.load(Ordering::Acquire), pending.len());
                of_graphs.extend(Self::sort(&mut lock(&replays.work.0), pending));
                closed && pending.len() == before
            }
        };
        let mut over: Vec<Use> = uses.extract_if(.., is_over).collect();
        over.append(&mut of_graphs);
        over
    }

    /// The submissions that have not ended; forgets those that have.
    fn pending(&self) -> Vec<Submission> {
        let mut pending = Vec::new();
        let over = Self::sort(&mut lock(&self.0), &mut pending);
        drop(over);
        pending
    }

    /// Whether no submission touches the memory any more.
    pub fn have_ended(&self) -> bool {
        self.pending().is_empty()
    }

    /// Waits for the last submission of each queue that names the memory, at most `patience` for all of them.
    ///
    /// Work that was recorded but not submitted is not waited for.
    pub fn wait(&self, patience: Duration) -> Result<(), Error> {
        let start = Instant::now();
        for (timeline, value) in self.pending() {
            let submitted = timeline.submitted();
            let value = if reached(submitted, value) { value } else { submitted };
            timeline.wait(value, patience.saturating_sub(start.elapsed())).map_err(|error| match error {
                // The time that was asked for, and not what was left of it.
                Error::Queue(QueueError::Timeout { wanted, reached, explanation, .. }) => {
                    Error::Queue(QueueError::Timeout { limit: patience, wanted, reached, explanation })
                }
                error => error,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::backend::tests::Books;
    use crate::submission::timeline::Slot;

    fn timelines<const N: usize>(books: &Arc<Books>) -> [Arc<Timeline>; N] {
        let core = books.core();
        std::array::from_fn(|i| {
            Arc::new(Timeline::new(&core, ChannelId(i as u64), Slot::new(&core).unwrap()))
        })
    }

    fn count(uses: &Uses) -> usize {
        lock(&uses.0).len()
    }

    #[test]
    fn the_last_submission_of_each_timeline_counts() {
        let books = Books::new(usize::MAX);
        let ([a, b], uses) = (timelines(&books), Uses::default());
        assert!(uses.have_ended());
        (1..=3).for_each(|value| uses.mark(&a, value));
        uses.mark(&b, 1);
        assert_eq!(count(&uses), 2);
        assert!(uses.name_after(ChannelId(0), 3) && !uses.name_after(ChannelId(0), 4));
        books.poke(a.va(), 2);
        books.poke(b.va(), 1);
        assert!(!uses.have_ended());
        assert_eq!(count(&uses), 1, "what is over is forgotten");
        books.poke(a.va(), 3);
        assert!(uses.have_ended());
        assert_eq!(count(&uses), 0);
    }

    #[test]
    fn timelines_that_have_ended_do_not_pile_up() {
        let books = Books::new(usize::MAX);
        let (core, uses) = (books.core(), Uses::default());
        let timeline = |id| Arc::new(Timeline::new(&core, ChannelId(id), Slot::new(&core).unwrap()));
        let busy = timeline(0);
        uses.mark(&busy, 1);
        for id in 1..1000 {
            let timeline = timeline(id);
            uses.mark(&timeline, 1);
            books.poke(timeline.va(), 1);
            assert!(count(&uses) <= 8, "{}", count(&uses));
        }
        assert!(!uses.have_ended());
        books.poke(busy.va(), 1);
        assert!(uses.have_ended());
    }

    #[test]
    fn a_graph_counts_until_it_is_gone_and_its_last_replay_is_over() {
        let books = Books::new(usize::MAX);
        let ([a], replays) = (timelines(&books), Arc::<Replays>::default());
        let (uses, others) = (Uses::of_graph(&replays), Uses::default());
        others.mark_graph(&replays);
        others.mark_graph(&replays);
        assert_eq!(count(&others), 1);
        assert!(others.have_ended(), "it was not replayed");
        replays.mark(&a, 1);
        assert!(!others.have_ended() && others.name_after(ChannelId(0), 1));
        books.poke(a.va(), 1);
        assert!(others.have_ended());
        assert_eq!(count(&others), 1, "it may be replayed again");
        replays.mark(&a, 2);
        replays.close();
        assert!(!others.have_ended());
        books.poke(a.va(), 2);
        assert!(others.have_ended() && uses.have_ended());
        assert_eq!(count(&others), 0, "whoever else refers to its replays");
    }

    #[test]
    fn graphs_that_are_gone_do_not_pile_up() {
        let books = Books::new(usize::MAX);
        let ([a], uses) = (timelines(&books), Uses::default());
        let busy = Arc::<Replays>::default();
        busy.mark(&a, 1);
        busy.close();
        uses.mark_graph(&busy);
        for _ in 0..1000 {
            let replays = Arc::<Replays>::default();
            uses.mark_graph(&replays);
            replays.close();
            assert!(count(&uses) <= 8, "{}", count(&uses));
        }
        assert!(!uses.have_ended());
        books.poke(a.va(), 1);
        assert!(uses.have_ended());
        assert_eq!(count(&uses), 0);
    }

    #[test]
    fn a_graph_that_names_the_memory_no_more_leaves_the_replays_that_did() {
        let books = Books::new(usize::MAX);
        let ([a, b], replays) = (timelines(&books), Arc::<Replays>::default());
        let [uses, others] = [(); 2].map(|()| Uses::of_graph(&replays));
        // Recorded, and not submitted.
        uses.mark(&a, 3);
        replays.mark(&a, 2);
        replays.mark(&b, 1);
        uses.unmark_graph(&replays);
        others.unmark_graph(&replays);
        for value in 2..9 {
            replays.mark(&b, value);
        }
        books.poke(a.va(), 2);
        assert!(!others.have_ended(), "the replay on the other queue names it");
        books.poke(b.va(), 1);
        assert!(others.have_ended());
        assert!(!uses.have_ended(), "what was recorded is to come");
        assert!(uses.name_after(ChannelId(0), 3) && !uses.name_after(ChannelId(1), 1));
        books.poke(a.va(), 3);
        assert!(uses.have_ended(), "later replays do not name it");
        assert!(!replays.pending().is_empty());
        uses.mark_graph(&replays);
        assert!(!uses.have_ended());
    }

    /// One queue of a graph's may have been stopped while its replay on another one runs.
    #[test]
    fn every_replay_that_runs_counts_not_the_last_alone() {
        let books = Books::new(usize::MAX);
        let ([a, b], replays) = (timelines(&books), Arc::<Replays>::default());
        let uses = Uses::of_graph(&replays);
        replays.mark(&a, 1);
        replays.mark(&b, 1);
        b.stop();
        assert!(!uses.have_ended());
        books.poke(a.va(), 1);
        assert!(uses.have_ended());
    }

    #[test]
    fn a_wait_is_for_every_queue_in_whatever_order_they_end() {
        for first in [0, 1] {
            let books = Books::new(usize::MAX);
            let (queues, uses) = (timelines::<2>(&books), Uses::default());
            for timeline in &queues {
                timeline.set_submitted(1);
                uses.mark(timeline, 1);
            }
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(50));
                    books.poke(queues[first].va(), 1);
                });
                let asked = Duration::from_millis(200);
                let error = uses.wait(asked).unwrap_err();
                let Error::Queue(QueueError::Timeout { limit, .. }) = error else { panic!("{error}") };
                assert_eq!(limit, asked, "and not what was left of it");
            });
            books.poke(queues[1 - first].va(), 1);
            uses.wait(Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn one_that_absorbs_another_has_all_it_had() {
        let books = Books::new(usize::MAX);
        let ([a, b], all, one) = (timelines(&books), Uses::default(), Uses::default());
        all.mark(&a, 1);
        one.mark(&b, 1);
        all.absorb(&one);
        assert!(one.have_ended());
        books.poke(a.va(), 1);
        assert!(!all.have_ended());
        books.poke(b.va(), 1);
        assert!(all.have_ended());
    }
}
