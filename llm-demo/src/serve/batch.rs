//! Requests, one or several at once: a token of each in one step of the engine.
//!
//! [`ga10b_llm::schedule`] divides the steps among the requests. The text of a request is the same alone and
//! beside others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ga10b_llm::sampler::Logprobs;
use ga10b_llm::schedule::{self, Finish, RequestId};
use ga10b_llm::speculate::{Draft, SpeculatorOptions};
use ga10b_llm::tokenizer::TextStream;
use ga10b_llm::{Error, Sequences, Tokenizer};

use crate::serve::job::{Event, Failure, Piece, Reason, Usage, Weighed};
use crate::serve::parts::Parts;
use crate::serve::prompts::Told;
use crate::serve::scheduler::{Job, Processor, Queue};
use crate::serve::weighing::Weighing;

/// Ways in which requests share steps. Their texts are the same in all.
#[derive(Debug, Default)]
pub struct Sharing {
    /// Whether what several prompts begin with is processed once.
    pub caches: bool,
    /// The draft of the texts, if they propose tokens.
    pub draft: Option<(Box<dyn Draft>, SpeculatorOptions)>,
    /// Time for which a chunk of a prompt holds back the texts of others; `None` for a whole chunk.
    pub latency: Option<Duration>,
}

/// Sequences that process requests together.
pub struct Batch<'a, S: Sequences> {
    tokenizer: &'a Tokenizer,
    scheduler: schedule::Scheduler<S>,
    tasks: BTreeMap<RequestId, Task<'a>>,
    /// Its figures, as far as they are counted.
    counted: schedule::Load,
}

/// A request of the scheduler.
struct Task<'a> {
    job: Job,
    text: TextStream<'a>,
    parts: Parts,
    weighing: Weighing,
    /// The results of the prompt.
    told: Told,
    /// The probabilities of the next token, if they are kept.
    logprobs: Option<Logprobs>,
    /// Tokens of the prompt that were in the cache.
    cached: usize,
    /// Tokens of the text.
    generated: usize,
    /// When the last of them came.
    last: Option<Instant>,
}

impl Task<'_> {
    fn usage(&self) -> Usage {
        Usage { prompt: self.job.request.prompt.len(), cached: self.cached, generated: self.generated }
    }

    /// Counts what came from the cache, before the first token: it may have begun several times until then.
    fn count_cached(&self, queue: &Queue) {
        if self.generated == 0 {
            queue.metrics().cached_tokens.inc_by(self.cached as u64);
        }
    }

    /// Sends what is told of the prompt, before the first token or the end.
    fn begin(&mut self, tokenizer: &Tokenizer) {
        if let Some(event) = self.told.pass(&self.job.request, tokenizer) {
            // Whether somebody receives it is seen at the next event.
            self.job.ticket.send(event);
        }
    }

    /// Sends what is certain of the text after `token`. False if nobody receives it.
    fn send(&mut self, token: u32, tokenizer: &Tokenizer) -> bool {
        let mut piece = self.text.push(token);
        if self.job.request.calls.is_some() && tokenizer.bytes(token).is_none() {
            piece.push_str(&tokenizer.name(token));
        }
        let (characters, logprobs) = (piece.chars().count(), self.logprobs.take());
        let weighed = logprobs.map(|logprobs| Weighed::of(logprobs, characters));
        self.weighing.push(&piece, weighed);
        let parts = self.parts.push(&piece);
        let certain = self.parts.certain();
        let tokens = match self.parts.stopped() {
            // With the tokens that are part of it.
            true => std::mem::take(&mut self.weighing).finish(certain),
            false => self.weighing.pass(certain),
        };
        self.pass(Piece { parts, tokens })
    }

    fn pass(&self, piece: Piece) -> bool {
        match piece.parts.is_empty() && piece.tokens.is_empty() {
            true => !self.job.ticket.is_closed(),
            false => self.job.ticket.send(Event::Text(piece)),
        }
    }

    /// The last event, after the rest of the text.
    fn end(mut self, queue: &Queue, finish: Finish) {
        let usage = self.usage();
        if let Finish::NotFinite { position } = finish {
            let error = anyhow::Error::from(Error::NotFinite { phase: "step", layer: None, position });
            let failure = Failure::Engine(format!("{error:#}"));
            return queue.end(&self.job.ticket, Some(Event::Failed(failure)));
        }
        if finish == Finish::Constraint {
            let failure = Failure::of_constraint(self.job.request.constrained.as_ref());
            return queue.end(&self.job.ticket, Some(Event::Failed(failure)));
        }
        let mut parts = self.parts.push(&self.text.clone().finish());
        parts.extend(self.parts.finish());
        let stopped = self.parts.stopped() || finish == Finish::End;
        // Of the token that ends the text.
        let weighed = self.logprobs.take().map(|logprobs| Weighed::of(logprobs, 0));
        self.weighing.push("", weighed.filter(|_| finish == Finish::End));
        let tokens = std::mem::take(&mut self.weighing).finish(self.parts.certain());
        // Whether somebody receives it is seen at the last event.
        self.pass(Piece { parts, tokens });
        let (ticket, reason) = (&self.job.ticket, if stopped { Reason::Stop } else { Reason::Length });
        queue.end(ticket, (!ticket.is_closed()).then_some(Event::End(reason, usage)));
    }
}

impl<'a, S: Sequences> Batch<'a, S> {
    /// A processor of requests on `sequences`.
    pub fn new(tokenizer: &'a Tokenizer, sequences: S, sharing: Sharing) -> Self {
        let most = sequences.most_sequences();
        let scheduler = schedule::Scheduler::new(sequences, most);
        let scheduler = if sharing.caches { scheduler.with_prefix_cache() } else { scheduler };
        let scheduler = match sharing.draft {
            Some((draft, options)) => scheduler.with_draft(draft, options),
            None => scheduler,
        };
        let scheduler = sharing.latency.into_iter().fold(scheduler, schedule::Scheduler::with_latency);
        Self { tokenizer, scheduler, tasks: BTreeMap::new(), counted: schedule::Load::default() }
    }

    /// Takes requests for all sequences, unless one still waits for pages; waits for the first of them. False
    /// at the end of the queue.
    fn accept(&mut self, queue: &Queue) -> bool {
        let load = self.scheduler.load();
        let most = self.scheduler.most_running();
        let mut free = if load.waiting > 0 { 0 } else { most - load.running };
        while free > 0 {
            let job = match self.tasks.is_empty() {
                true => queue.take(),
                false => queue.try_take(),
            };
            let Some(job) = job else { break };
            free -= usize::from(self.submit(queue, job));
        }
        !self.tasks.is_empty()
    }

    /// Gives a request to the scheduler; false if it cannot be processed.
    fn submit(&mut self, queue: &Queue, job: Job) -> bool {
        let request = &job.request;
        let tokens = request.prompt.len() as u64;
        let submitted = self.scheduler.submit(schedule::Request {
            prompt: request.prompt.clone(),
            sampler: request.sampler.clone(),
            most: request.count,
            ends: self.tokenizer.ends().to_vec(),
            reuse: request.reuse,
            reading: request.reading,
        });
        let id = match submitted {
            Ok(id) => id,
            Err(error) => {
                let failure = Failure::Engine(format!("{:#}", anyhow::Error::from(error)));
                queue.end(&job.ticket, Some(Event::Failed(failure)));
                return false;
            }
        };
        queue.metrics().prompt_tokens.inc_by(tokens);
        let parts = Parts::new(job.request.calls.clone(), job.request.stops.clone());
        let text = self.tokenizer.stream();
        let (weighing, told, logprobs) = (Weighing::default(), Told::default(), None);
        let task = Task { job, text, parts, weighing, told, logprobs, cached: 0, generated: 0, last: None };
        self.tasks.insert(id, task);
        true
    }

    /// Ends the requests that nobody waits for.
    fn drop_cancelled(&mut self, queue: &Queue) -> ga10b_llm::Result<()> {
        let gone = self.tasks.iter().filter(|(_, task)| task.job.ticket.is_closed());
        let gone: Vec<RequestId> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().try_for_each(|id| self.cancel(queue, id))
    }

    fn cancel(&mut self, queue: &Queue, id: RequestId) -> ga10b_llm::Result<()> {
        self.scheduler.cancel(id)?;
        if let Some(task) = self.tasks.remove(&id) {
            queue.end(&task.job.ticket, None);
        }
        Ok(())
    }

    /// Passes on what happened to a request.
    fn report(&mut self, queue: &Queue, id: RequestId, event: schedule::Event) -> ga10b_llm::Result<()> {
        let token = match event {
            schedule::Event::Token(token) => token,
            schedule::Event::Logprobs(logprobs) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.logprobs = Some(logprobs);
                }
                return Ok(());
            }
            schedule::Event::Known(logprobs) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.told.known(logprobs);
                }
                return Ok(());
            }
            schedule::Event::State(state) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.told.state(&state);
                }
                return Ok(());
            }
            schedule::Event::Admitted { reused } => {
                // Not what it had itself before it made room for others.
                if let Some(task) = self.tasks.get_mut(&id).filter(|task| task.generated == 0) {
                    task.cached = reused;
                }
                return Ok(());
            }
            schedule::Event::Reused { tokens } => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.cached += tokens;
                }
                return Ok(());
            }
            schedule::Event::Finished(finish) => {
                if let Some(mut task) = self.tasks.remove(&id) {
                    task.count_cached(queue);
                    if !matches!(finish, Finish::NotFinite { .. }) {
                        task.begin(self.tokenizer);
                    }
                    task.end(queue, finish);
                }
                return Ok(());
            }
        };
        // Tokens after the one that ends a text by a stop string are not part of it.
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.count_cached(queue);
        task.begin(self.tokenizer);
        let metrics = queue.metrics();
        metrics.generated_tokens.inc();
        match task.last.replace(Instant::now()) {
            None => metrics.first_token(task.job.ticket.arrived.elapsed()),
            Some(before) => metrics.next_token(before.elapsed()),
        }
        task.generated += 1;
        if !task.send(token, self.tokenizer) {
            return self.cancel(queue, id);
        }
        if task.parts.stopped() {
            self.scheduler.cancel(id)?;
            if let Some(task) = self.tasks.remove(&id) {
                task.end(queue, Finish::End);
            }
        }
        Ok(())
    }
}

impl<S: Sequences> Processor for Batch<'_, S> {
    fn turn(&mut self, queue: &Queue) -> anyhow::Result<bool> {
        if queue.is_cut() {
            self.fail(queue, &Failure::Shutdown);
            return Ok(false);
        }
        self.drop_cancelled(queue)?;
        let metrics = queue.metrics();
        metrics.pages_free.set(self.scheduler.sequences().free_pages() as i64);
        let load = self.scheduler.load();
        metrics.pages_cached.set(load.cached_pages as i64);
        metrics.pages_evicted.inc_by(load.evicted_pages - self.counted.evicted_pages);
        metrics.proposed_tokens.inc_by(load.proposed - self.counted.proposed);
        metrics.accepted_tokens.inc_by(load.accepted - self.counted.accepted);
        self.counted = load;
        if !self.accept(queue) {
            return Ok(false);
        }
        let events = self.scheduler.step()?;
        metrics.step(self.scheduler.last_step());
        for (id, event) in events {
            self.report(queue, id, event)?;
        }
        Ok(true)
    }

    fn fail(&mut self, queue: &Queue, failure: &Failure) {
        let mut unbegun = Vec::new();
        for (id, task) in std::mem::take(&mut self.tasks) {
            if task.generated == 0 && !self.scheduler.is_running(id) {
                unbegun.push(task.job);
            } else {
                queue.end(&task.job.ticket, Some(Event::Failed(failure.clone())));
            }
        }
        queue.put_back(unbegun);
    }
}
