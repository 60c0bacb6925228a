//! The submissions that name a piece of memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backend::ChannelId;
use crate::error::Error;
use crate::serial::reached;
use crate::submission::timeline::Timeline;
use crate::sync::lock;

/// A submission: the timeline it moves, and the value it signals.
pub(crate) type Submission = (Arc<Timeline>, u64);

/// The replays of a graph; everything the graph names refers to it.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    last: Mutex<Option<Submission>>,
    /// The graph is gone, and will not be replayed again.
    closed: AtomicBool,
}

impl Replays {
    /// The last one.
    pub fn last(&self) -> Option<Submission> {
        lock(&self.last).clone()
    }

    /// Another was submitted.
    pub fn set_last(&self, submission: Submission) {
        *lock(&self.last) = Some(submission);
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
                *v = value;
                return;
            }
        }
        // Before the list grows, what has ended is forgotten: in its life a kernel is launched by many queues.
        let ended = |u: &mut Use| matches!(u, Use::Work((t, v)) if t.has_ended(*v));
        let over: Vec<Use> = match uses.len() == uses.capacity() {
            true => uses.extract_if(.., ended).collect(),
            false => Vec::new(),
        };
        uses.push(Use::Work((timeline.clone(), value)));
        drop(uses);
        // Outside the lock: the end of a timeline frees memory.
        drop(over);
    }

    /// A graph names the memory.
    pub fn mark_graph(&self, replays: &Arc<Replays>) {
        let mut uses = lock(&self.0);
        if !uses.iter().any(|u| matches!(u, Use::Graph(r) if Arc::ptr_eq(r, replays))) {
            uses.push(Use::Graph(replays.clone()));
        }
    }

    /// Adds what `other` holds, and leaves nothing there.
    pub fn absorb(&self, other: &Self) {
        let other = std::mem::take(&mut *lock(&other.0));
        lock(&self.0).extend(other);
    }

    /// Whether a submission of `channel` from the one that signals `value` on names the memory.
    pub fn name_after(&self, channel: ChannelId, value: u64) -> bool {
        let of = |(t, v): &Submission| t.channel() == channel && reached(*v, value);
        lock(&self.0).iter().any(|u| match u {
            Use::Work(submission) => of(submission),
            Use::Graph(replays) => replays.last().as_ref().is_some_and(of),
        })
    }

    /// The submissions that have not ended; forgets those that have.
    fn pending(&self) -> Vec<Submission> {
        let (mut pending, mut over) = (Vec::new(), Vec::new());
        lock(&self.0).retain(|u| {
            let (submission, keep) = match u {
                Use::Work(submission) => (Some(submission.clone()), false),
                Use::Graph(replays) => (replays.last(), !replays.closed.load(Ordering::Acquire)),
            };
            match submission {
                Some((timeline, value)) if !timeline.has_ended(value) => {
                    pending.push((timeline, value));
                    true
                }
                // Dropped outside the lock: the end of a timeline frees memory.
                submission => {
                    over.push(submission);
                    keep
                }
            }
        });
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
            timeline.wait(value, patience.saturating_sub(start.elapsed()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
        replays.set_last((a.clone(), 1));
        assert!(!others.have_ended() && others.name_after(ChannelId(0), 1));
        books.poke(a.va(), 1);
        assert!(others.have_ended());
        assert_eq!(count(&others), 1, "it may be replayed again");
        replays.set_last((a.clone(), 2));
        replays.close();
        assert!(!others.have_ended());
        books.poke(a.va(), 2);
        assert!(others.have_ended() && uses.have_ended());
        assert_eq!(count(&others), 0, "whoever else refers to its replays");
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
