//! The queue of requests, in order of arrival, and the thread that owns what generates their texts.
//!
//! HTTP sees [`Scheduler`] alone: [`submit`](Scheduler::submit) takes a request and gives its events, and a
//! request whose events nobody receives is cancelled. A [`Processor`] takes requests from the [`Queue`]; when
//! it fails, the [`Worker`] makes another one.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::serve::job::{Event, Failure, Health, Refused, Request};
use crate::serve::metrics::Metrics;

/// Generates texts.
pub trait Processor {
    /// Takes requests from the queue and processes some of what it has; waits for a request if it has
    /// nothing. False at the end of the queue, when all that it has has ended.
    ///
    /// # Errors
    /// The engine's errors. It is not used again: a failed device loses its state, and a failed check
    /// says that the state is wrong.
    fn turn(&mut self, queue: &Queue) -> anyhow::Result<bool>;

    /// Ends what it has with `failure`, and gives back to the queue what has not begun.
    fn fail(&mut self, queue: &Queue, failure: &Failure);
}

/// Sets up a processor: at the start, and after a failure.
pub type Build<'a> = Box<dyn FnMut() -> anyhow::Result<Box<dyn Processor + 'a>> + 'a>;

/// A request that waits, or that is processed.
#[derive(Debug)]
pub struct Job {
    pub request: Request,
    pub ticket: Ticket,
}

/// The receiver of a request's events, and the time of the request.
#[derive(Clone, Debug)]
pub struct Ticket {
    events: UnboundedSender<(usize, Event)>,
    /// The number of the request among those that were submitted with it.
    number: usize,
    pub arrived: Instant,
}

impl Ticket {
    /// Whether nobody receives events.
    pub fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Sends an event. False if nobody receives it.
    pub fn send(&self, event: Event) -> bool {
        self.events.send((self.number, event)).is_ok()
    }
}

/// Options of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests that wait at most.
    pub waiting: usize,
    /// Time for which the engine is left alone after it could not be set up.
    pub retry: Duration,
}

struct State {
    waiting: VecDeque<Job>,
    /// Requests that were taken and have not ended.
    running: usize,
    health: Health,
    /// No request is taken any more.
    draining: bool,
    /// Whether running and waiting requests end now.
    cut: bool,
    /// Mean time of a request, of the last ones most.
    mean: Duration,
}

/// The requests that wait, for both sides.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    metrics: Arc<Metrics>,
    options: Options,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: &State) {
        self.metrics.waiting.set(state.waiting.len() as i64);
        self.metrics.running.set(state.running as i64);
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether what runs and what waits ends now.
    pub fn is_cut(&self) -> bool {
        self.state().cut
    }

    /// The next request that somebody waits for, when there is one; `None` at the end.
    pub fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.cut {
                return None;
            }
            if let Some(job) = self.next(&mut state) {
                return Some(job);
            }
            if state.draining {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next request that somebody waits for, if there is one.
    pub fn try_take(&self) -> Option<Job> {
        let mut state = self.state();
        if state.cut { None } else { self.next(&mut state) }
    }

    fn next(&self, state: &mut State) -> Option<Job> {
        let mut next = None;
        while let Some(job) = state.waiting.pop_front() {
            if job.ticket.is_closed() {
                self.metrics.cancelled.inc();
                continue;
            }
            state.running += 1;
            next = Some(job);
            break;
        }
        self.count(state);
        next
    }

    /// Puts requests that were taken, in their order, before all others.
    pub fn put_back(&self, jobs: Vec<Job>) {
        let mut state = self.state();
        state.running -= jobs.len();
        jobs.into_iter().rev().for_each(|job| state.waiting.push_front(job));
        self.count(&state);
    }

    /// Ends a request that was taken with its last event, or with `None` if it was cancelled.
    pub fn end(&self, ticket: &Ticket, last: Option<Event>) {
        let time = ticket.arrived.elapsed();
        match last {
            Some(_) => self.metrics.request(time),
            None => _ = self.metrics.cancelled.inc(),
        }
        let mut state = self.state();
        state.running -= 1;
        state.mean = if state.mean.is_zero() { time } else { (state.mean * 3 + time) / 4 };
        self.count(&state);
        drop(state);
        if let Some(event) = last {
            // Somebody who has gone in the meantime needs no answer.
            let _ = ticket.send(event);
        }
    }
}

/// Takes requests.
#[derive(Clone)]
pub struct Scheduler(Arc<Queue>);

/// Processes them.
pub struct Worker<'a> {
    queue: Arc<Queue>,
    build: Build<'a>,
    processor: Option<Box<dyn Processor + 'a>>,
}

/// A scheduler and its worker.
pub fn new(options: Options, metrics: Arc<Metrics>, build: Build<'_>) -> (Scheduler, Worker<'_>) {
    let state = State {
        waiting: VecDeque::new(),
        running: 0,
        health: Health::Loading,
        draining: false,
        cut: false,
        mean: Duration::ZERO,
    };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new(), metrics, options };
    let queue = Arc::new(queue);
    let worker = Worker { queue: Arc::clone(&queue), build, processor: None };
    (Scheduler(queue), worker)
}

impl Scheduler {
    /// Queues `requests`, whose events have their numbers: all or none. The events of each end with
    /// [`Event::End`] or [`Event::Failed`]; if they end otherwise, the worker is gone. To drop the receiver cancels
    /// all. More than may wait are taken when nobody waits.
    pub fn submit(&self, requests: Vec<Request>) -> Result<UnboundedReceiver<(usize, Event)>, Refused> {
        let mut state = self.0.state();
        match &state.health {
            _ if state.draining => return Err(Refused::Shutdown),
            Health::Unhealthy(reason) => return Err(Refused::Unhealthy(reason.clone())),
            Health::Loading | Health::Good | Health::Shutdown => {}
        }
        let most = self.0.options.waiting.saturating_sub(requests.len() - 1).max(1);
        if state.waiting.len() >= most {
            state.drop_cancelled(&self.0.metrics);
        }
        if state.waiting.len() >= most {
            let seconds = (state.mean.as_secs_f64() / state.running.max(1) as f64).ceil() as u64;
            return Err(Refused::Full { seconds: seconds.clamp(1, 60) });
        }
        // Without a bound of its own: a slow client must not stop the others, and a text is at most as long as
        // the context.
        let (events, receiver) = unbounded_channel();
        let arrived = Instant::now();
        state.waiting.extend(requests.into_iter().enumerate().map(|(number, request)| {
            let ticket = Ticket { events: events.clone(), number, arrived };
            Job { request, ticket }
        }));
        self.0.count(&state);
        drop(state);
        self.0.changed.notify_all();
        Ok(receiver)
    }

    pub fn health(&self) -> Health {
        let state = self.0.state();
        if state.draining { Health::Shutdown } else { state.health.clone() }
    }

    /// Takes no more requests. The worker ends after those that it has.
    pub fn drain(&self) {
        self.0.state().draining = true;
        self.0.changed.notify_all();
    }

    /// Waits until no request runs or waits.
    pub async fn served(&self) {
        const LOOK: Duration = Duration::from_millis(20);
        loop {
            let is_served = {
                let state = self.0.state();
                state.running == 0 && state.waiting.is_empty()
            };
            if is_served {
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Ends all requests with [`Failure::Shutdown`], and the worker.
    pub fn cut(&self) {
        let mut state = self.0.state();
        (state.draining, state.cut) = (true, true);
        drop(state);
        self.0.changed.notify_all();
    }
}

impl State {
    fn drop_cancelled(&mut self, metrics: &Metrics) {
        let before = self.waiting.len();
        self.waiting.retain(|job| !job.ticket.is_closed());
        metrics.cancelled.inc_by((before - self.waiting.len()) as u64);
    }

    /// Ends what waits with `failure`.
    fn fail_waiting(&mut self, failure: &Failure) {
        for job in self.waiting.drain(..) {
            // A cancelled request needs no answer.
            let _ = job.ticket.send(Event::Failed(failure.clone()));
        }
    }
}

impl Drop for Worker<'_> {
    /// Nobody else ends what waits.
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.draining = true;
        state.fail_waiting(&Failure::Shutdown);
        self.queue.count(&state);
    }
}

impl Worker<'_> {
    /// Sets up the engine for the first time.
    ///
    /// # Errors
    /// Errors of the setup.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.processor = Some((self.build)()?);
        self.queue.state().health = Health::Good;
        Ok(())
    }

    /// Processes requests until the scheduler is drained or cut.
    pub fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        loop {
            let Some(processor) = &mut self.processor else {
                if self.set_up() {
                    continue;
                }
                return;
            };
            match catch_unwind(AssertUnwindSafe(|| processor.turn(&queue))) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(error)) => self.failed(&error),
                Err(panic) => self.failed(&anyhow::anyhow!(panic_text(&*panic))),
            }
        }
    }

    /// Sets up the engine; tries again while it fails. False if the server ends before that.
    fn set_up(&mut self) -> bool {
        let retry = self.queue.options.retry;
        loop {
            let built = catch_unwind(AssertUnwindSafe(|| (self.build)()));
            let problem = match built {
                Ok(Ok(processor)) => {
                    self.processor = Some(processor);
                    self.queue.state().health = Health::Good;
                    return true;
                }
                Ok(Err(error)) => format!("{error:#}"),
                Err(panic) => panic_text(&*panic),
            };
            tracing::error!("the engine cannot be set up: {problem}; next try in {retry:?}");
            let mut state = self.queue.state();
            state.health = Health::Unhealthy(problem.clone());
            state.fail_waiting(&Failure::Unavailable(problem));
            self.queue.count(&state);
            let wait = self.queue.changed.wait_timeout_while(state, retry, |state| !state.draining);
            let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
            if state.draining {
                return false;
            }
        }
    }

    /// Ends what was processed with the diagnosis; the next request gets another engine.
    fn failed(&mut self, error: &anyhow::Error) {
        let mut diagnosis = format!("{error:#}");
        let device = error.downcast_ref::<ga10b_llm::Error>();
        if let Some(ga10b_llm::Error::Device(device)) = device
            && let Some(hint) = device.hint()
        {
            diagnosis = format!("{diagnosis}; {hint}");
        }
        tracing::error!("the engine failed and is set up again: {diagnosis}");
        self.queue.metrics.engine_failures.inc();
        self.queue.state().health = Health::Loading;
        if let Some(mut processor) = self.processor.take() {
            processor.fail(&self.queue, &Failure::Engine(diagnosis));
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the engine panicked: {}", text.unwrap_or("without a message"))
}
