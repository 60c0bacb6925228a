//! The choice of the tokens that a step processes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::engine::{Sequences, To};
use crate::error::{Error, Result};
use crate::schedule::parts::{Chunk, Part, Running, Wanted};
use crate::schedule::prefixes::Prefixes;
use crate::schedule::proposals::Proposals;
use crate::schedule::requests::{Event, Finish, Job, Reading, Request, RequestId};
use crate::speculate::{Draft, Kind, Lookup, SpeculatorOptions};

/// Columns of a step that prompts get at least, while there are any.
const LEAST_FOR_PROMPTS: usize = 8;

/// Tokens for which a page that is not whole is shared: who writes to it has to copy it.
const LEAST_REUSED: usize = 8;

/// Requests in a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Waiting for a sequence or for pages.
    pub waiting: usize,
    /// Admitted.
    pub running: usize,
    /// Pages in the prefix cache.
    pub cached_pages: usize,
    /// Pages that the prefix cache had to give up for requests, so far.
    pub evicted_pages: u64,
    /// Tokens that were proposed and processed, so far, and those of them that were chosen.
    pub proposed: u64,
    /// See [`Load::proposed`].
    pub accepted: u64,
}

/// Divides the steps of an engine among requests.
///
/// Requests are admitted in the order of their arrival, when pages for all of their tokens so far are free.
/// Texts that are being written rotate if a step has too few columns. When pages run out, the youngest
/// request goes back to the head of the queue, and is computed again later: its text goes on as if nothing
/// had happened. One chunk of one prompt is processed per step, or a slice of it ([`Scheduler::with_latency`]), so
/// that texts go on between the chunks of long prompts. A common beginning of several prompts is processed once, if pages are kept
/// ([`Scheduler::with_prefix_cache`]). Texts get several tokens from a step, if they may propose some
/// ([`Scheduler::with_draft`]).
#[derive(Debug)]
pub struct Scheduler<S: Sequences> {
    pub(super) sequences: S,
    most_waiting: usize,
    next: u64,
    waiting: VecDeque<Job>,
    /// In the order of admission.
    pub(super) running: Vec<Running<S::Id>>,
    prefixes: Option<Prefixes<S::Page>>,
    evicted: u64,
    /// The draft of the texts, if they propose tokens.
    pub(super) proposals: Option<Proposals>,
    /// Time of a chunk between two steps of texts.
    latency: Option<Duration>,
    /// The text that the next step begins with, if it cannot take all.
    turn: usize,
    /// Columns of the last step.
    pub(super) last_step: usize,
}

impl<S: Sequences> Scheduler<S> {
    /// A scheduler of `sequences`, in which at most `most_waiting` requests wait.
    pub fn new(sequences: S, most_waiting: usize) -> Self {
        Self {
            sequences,
            most_waiting,
            next: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefixes: None,
            evicted: 0,
            proposals: None,
            latency: None,
            turn: 0,
            last_step: 0,
        }
    }

    /// Keeps the pages of all prompts and texts, of requests that run and that have ended, until others need
    /// them; those that were not used for the longest time are given up first. A request whose prompt begins
    /// with the same tokens shares them: whole pages, and of the page after them what is common, if that is
    /// worth a copy, as far as it would write the same keys and values itself ([`Cut`](crate::Cut)). A request
    /// that waits for its turn does so too when another has processed them meanwhile.
    #[must_use]
    pub fn with_prefix_cache(self) -> Self {
        Self { prefixes: Some(Prefixes::new(self.sequences.page_positions())), ..self }
    }

    /// Lets texts propose tokens in columns that a step has anyway ([`Sequences::columns_for`]), or, alone, in as many
    /// as pay. Each token is chosen from the logits after exactly those before it: texts are the same.
    #[must_use]
    pub fn with_draft(self, draft: Box<dyn Draft>, options: SpeculatorOptions) -> Self {
        Self { proposals: Some(Proposals::new(draft, options)), ..self }
    }

    /// [`Scheduler::with_draft`] of up to `most` tokens that followed a text's last ones before ([`Lookup`]):
    /// always as many as there are, since they cost nothing.
    #[must_use]
    pub fn with_lookup(self, most: usize) -> Self {
        self.with_draft(Box::new(Lookup), SpeculatorOptions::new(most).fixed())
    }

    /// Bounds the time for which a chunk of a prompt holds back the next tokens of texts: after about `latency`
    /// they get a step, and the chunk goes on after it ([`Sequences::chunk`]). Texts are the same; prompts
    /// beside texts take longer.
    #[must_use]
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency: Some(latency), ..self }
    }

    /// Empties the prefix cache.
    pub fn forget(&mut self) {
        while self.take_oldest() {}
    }

    /// Gives back a page of the prefix cache, one that is free then if there is any. False if it is empty.
    fn take_oldest(&mut self) -> bool {
        let Self { sequences, prefixes, .. } = self;
        let page = prefixes.as_mut().and_then(|p| p.take_oldest(|page| sequences.is_kept_alone(page)));
        page.map(|page| sequences.give_back(page)).is_some()
    }

    /// [`Self::take_oldest`] for pages that are needed.
    fn evict(&mut self) -> bool {
        let taken = self.take_oldest();
        self.evicted += u64::from(taken);
        taken
    }

    /// Most requests that are processed at a time.
    pub fn most_running(&self) -> usize {
        self.sequences.most_sequences()
    }

    /// The engine.
    pub fn sequences(&self) -> &S {
        &self.sequences
    }

    /// Requests that are not finished.
    pub fn load(&self) -> Load {
        Load {
            waiting: self.waiting.len(),
            running: self.running.len(),
            cached_pages: self.prefixes.as_ref().map_or(0, Prefixes::len),
            evicted_pages: self.evicted,
            proposed: self.proposals.as_ref().map_or(0, |proposals| proposals.proposed),
            accepted: self.proposals.as_ref().map_or(0, |proposals| proposals.accepted),
        }
    }

    /// Whether a request is admitted and not finished: whether the next step may process some of its tokens.
    pub fn is_running(&self, id: RequestId) -> bool {
        self.running.iter().any(|running| running.job.id == id)
    }

    /// Tokens that the last [`Scheduler::step`] processed in columns.
    pub fn last_step(&self) -> usize {
        self.last_step
    }

    /// Puts a request into the queue.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`]; [`Error::ContextFull`] for a prompt that does not fit; [`Error::Token`];
    /// [`Error::QueueFull`].
    pub fn submit(&mut self, request: Request) -> Result<RequestId> {
        let (context, vocab, len) = (self.sequences.context(), self.sequences.vocab(), request.prompt.len());
        if len == 0 {
            return Err(Error::EmptyPrompt);
        }
        if len > context {
            return Err(Error::ContextFull { position: len, context });
        }
        if let Some(token) = request.prompt.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::Token { token: *token, vocab });
        }
        if self.waiting.len() >= self.most_waiting {
            return Err(Error::QueueFull { most: self.most_waiting });
        }
        let id = RequestId(self.next);
        self.next += 1;
        self.waiting.push_back(Job::new(id, request));
        Ok(id)
    }

    /// Forgets a request, waiting or running; nothing more is reported of it. Returns whether there was one.
    ///
    /// # Errors
    /// The engine's errors.
    pub fn cancel(&mut self, id: RequestId) -> Result<bool> {
        let before = self.waiting.len();
        self.waiting.retain(|job| job.id != id);
        match self.running.iter().position(|running| running.job.id == id) {
            Some(number) if self.sequences.is_finite(self.running[number].id)? => {
                self.end(number)?;
                Ok(true)
            }
            Some(number) => self.drop_sequence(number).map(|_| true),
            None => Ok(self.waiting.len() < before),
        }
    }

    /// Processes one step and returns what happened, of each request in order; nothing if there is no request.
    ///
    /// # Errors
    /// The engine's errors; then the requests of the step are where they were before it.
    pub fn step(&mut self) -> Result<Vec<(RequestId, Event)>> {
        let mut events = Vec::new();
        self.last_step = 0;
        self.admit(&mut events)?;
        self.catch_up(&mut events)?;
        let (chunk, mut parts) = self.parts(&mut events)?;
        let choices = parts.iter().any(|part| self.running[part.number].chooses_after(part.count));
        if let Some(Chunk { number, count }) = chunk {
            let running = &self.running[number];
            let time = self.latency.filter(|_| choices);
            if self.sequences.chunk(running.id, &running.left()[..count], time)? {
                self.advance(number, count)?;
            }
        }
        if parts.is_empty() {
            return Ok(events);
        }
        if let [Part { number, count: 1, .. }] = parts[..]
            && self.proposals.is_none()
            && self.running[number].is_text()
        {
            self.step_alone(number, &mut events)?;
            return Ok(events);
        }
        if choices && let Some(proposals) = &mut self.proposals {
            proposals.propose(&self.sequences, &self.running, &mut parts)?;
        }
        let of_part = |part: &Part| {
            let running = &self.running[part.number];
            let tokens = running.left()[..part.count].iter().chain(&part.proposed);
            tokens.map(|token| (running.id, *token)).collect::<Vec<_>>()
        };
        let work: Vec<(S::Id, u32)> = parts.iter().flat_map(of_part).collect();
        let needs = parts.iter().map(|part| self.running[part.number].needs(part.count)).max();
        let begin = Instant::now();
        let greedy = match needs {
            None | Some(To::Cache) => self.sequences.fill(&work).map(|()| Vec::new())?,
            Some(To::States) => self.sequences.fill_with_states(&work).map(|()| Vec::new())?,
            Some(To::Logits) => self.sequences.step(&work)?,
        };
        self.last_step = work.len();
        if let Some(proposals) = self.proposals.as_mut().filter(|_| choices) {
            proposals.stepped(begin.elapsed());
        }
        let mut finished = self.read(&parts, &greedy, &mut events)?;
        self.take(&parts, &greedy, &mut finished, &mut events)?;
        self.finish(finished)?;
        Ok(events)
    }

    /// Counts tokens of a running request that were processed, and stores what is worth it: whole pages, and
    /// the end of the prompt.
    pub(super) fn advance(&mut self, number: usize, count: usize) -> Result<()> {
        let page = self.sequences.page_positions();
        let running = &mut self.running[number];
        let before = running.done;
        running.done += count;
        let prompt = before < running.job.prompt && running.done >= running.job.prompt;
        match prompt || before / page < running.done / page {
            true => self.store(number, prompt),
            false => Ok(()),
        }
    }

    /// Stores the pages of a running request in the prefix cache, the last one too if it is whole, or if it
    /// is worth a copy and `partial`.
    fn store(&mut self, number: usize, partial: bool) -> Result<()> {
        let Self { sequences, prefixes, running, .. } = self;
        let (Some(prefixes), Running { job, id, cut, done, .. }) = (prefixes, &running[number]) else {
            return Ok(());
        };
        let rest = done % sequences.page_positions();
        let len = if partial && rest >= LEAST_REUSED { *done } else { done - rest };
        let mut given_up = Vec::new();
        let page = |page| sequences.keep_page(*id, page);
        let stored = prefixes.store(&job.tokens[..len], cut, page, &mut given_up);
        given_up.into_iter().for_each(|page| sequences.give_back(page));
        stored
    }

    /// Ends a running request, and stores its pages.
    pub(super) fn end(&mut self, number: usize) -> Result<()> {
        self.store(number, true)?;
        self.drop_sequence(number).map(drop)
    }

    /// Ends the sequence of a running request.
    fn drop_sequence(&mut self, number: usize) -> Result<Job> {
        let Running { job, id, .. } = self.remove(number);
        if let Some(proposals) = &mut self.proposals {
            proposals.forget(job.id.0);
        }
        self.sequences.release(id)?;
        Ok(job)
    }

    fn remove(&mut self, number: usize) -> Running<S::Id> {
        if number < self.turn {
            self.turn -= 1;
        }
        self.running.remove(number)
    }

    /// Admits requests while there are sequences and pages for all their tokens so far.
    fn admit(&mut self, events: &mut Vec<(RequestId, Event)>) -> Result<()> {
        while self.running.len() < self.most_running() {
            let Some(job) = self.waiting.front() else { break };
            let (request, length) = (job.id, job.tokens.len());
            if job.most == 0 && job.reading == Reading::Nothing {
                events.push((request, Event::Finished(Finish::Count)));
                self.waiting.pop_front();
                continue;
            }
            let cut = self.sequences.cut(job.prompt)?;
            let cut = if job.reading.is_of_all() { cut.in_columns() } else { cut };
            let Self { sequences, prefixes, .. } = self;
            let (mut found, mut searched) = ((Vec::new(), 0), 0);
            if let Some(prefixes) = prefixes.as_mut().filter(|_| job.reuse) {
                searched = prefixes.stored();
                // The last token gives the logits.
                found = prefixes.longest(&job.tokens[..length - 1], &cut, LEAST_REUSED);
            }
            let (pages, reused) = found;
            let id = sequences.admit_with(&pages, reused)?;
            if self.has_pages(id, length - reused)? {
                events.push((request, Event::Admitted { reused }));
                let job = self.waiting.pop_front();
                self.running.extend(job.map(|job| Running { job, id, cut, done: reused, searched }));
                continue;
            }
            self.sequences.release(id)?;
            if !self.running.is_empty() {
                break;
            }
            // It does not fit even alone.
            events.push((request, Event::Finished(Finish::Context)));
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Lets prompts whose turn has not come share what others have processed since they were admitted.
    fn catch_up(&mut self, events: &mut Vec<(RequestId, Event)>) -> Result<()> {
        let Self { sequences, prefixes: Some(prefixes), running, .. } = self else { return Ok(()) };
        for Running { job, id, cut, done, searched } in running {
            let stored = prefixes.stored();
            let begun = *done >= job.prompt || job.tokens.len() > job.prompt;
            if begun || !job.reuse || *searched == stored {
                continue;
            }
            *searched = stored;
            let (pages, len) = prefixes.longest(&job.tokens[..job.tokens.len() - 1], cut, LEAST_REUSED);
            if len < *done + LEAST_REUSED {
                continue;
            }
            // There may be no other sequence. The pages are kept.
            sequences.release(*id)?;
            *id = sequences.admit_with(&pages, len)?;
            events.push((job.id, Event::Reused { tokens: len - *done }));
            *done = len;
        }
        Ok(())
    }

    /// Whether there are pages for the next `tokens` tokens of a sequence, beside what the others need for
    /// the rest of their prompts. The prefix cache gives up its own.
    fn has_pages(&mut self, id: S::Id, tokens: usize) -> Result<bool> {
        loop {
            let mut needed = self.sequences.pages_needed(id, tokens)?;
            for running in &self.running {
                needed += self.sequences.pages_needed(running.id, running.left().len())?;
            }
            let free = self.sequences.free_pages();
            if needed <= free {
                return Ok(true);
            }
            let alone =
                self.prefixes.as_ref().map_or(0, |p| p.count(|page| self.sequences.is_kept_alone(page)));
            let waits = !self.running.is_empty() && needed > free + alone;
            if waits || !self.evict() {
                return Ok(false);
            }
        }
    }

    /// The chunk and the parts of the next step, for which there are pages; requests that have none are put
    /// back.
    fn parts(&mut self, events: &mut Vec<(RequestId, Event)>) -> Result<(Option<Chunk>, Vec<Part>)> {
        loop {
            let Wanted { chunk, parts, turn } = self.wanted();
            let mut needed = 0;
            let columns = parts.iter().map(|part| Chunk { number: part.number, count: part.count });
            for Chunk { number, count } in chunk.into_iter().chain(columns) {
                needed += self.sequences.pages_needed(self.running[number].id, count)?;
            }
            if needed <= self.sequences.free_pages() {
                self.turn = turn;
                return Ok((chunk, parts));
            }
            if self.evict() {
                continue;
            }
            let job = self.drop_sequence(self.running.len() - 1)?;
            match self.running.is_empty() {
                // Nobody else has pages that it could get.
                true => events.push((job.id, Event::Finished(Finish::Context))),
                false => self.waiting.push_front(job),
            }
        }
    }

    /// The next step by the order of admission, whether or not there are pages for it.
    fn wanted(&self) -> Wanted {
        let (most, running) = (self.sequences.most_columns(), &self.running);
        let chunk = |(number, own): (usize, &Running<S::Id>)| Some(Chunk { number, count: own.chunk()? });
        let chunk = running.iter().enumerate().find_map(chunk);
        let left = |number: usize| running[number].left().len();
        let in_columns = (0..running.len()).filter(|number| running[*number].chunk().is_none());
        let (texts, prompts): (Vec<usize>, Vec<usize>) = in_columns.partition(|number| left(*number) == 1);
        let of_prompts: usize = prompts.iter().map(|number| left(*number)).sum();
        let for_texts = most - of_prompts.min(LEAST_FOR_PROMPTS).min(most);
        let first = texts.iter().position(|number| *number >= self.turn).unwrap_or(0);
        let in_turn: Vec<usize> = texts[first..].iter().chain(&texts[..first]).copied().collect();
        let turn = in_turn.get(for_texts).copied().unwrap_or(0);
        let part = |number, count| Part { number, count, proposed: Vec::new(), kind: Kind::Model };
        let mut parts: Vec<Part> =
            in_turn.into_iter().take(for_texts).map(|number| part(number, 1)).collect();
        let mut free = most - parts.len();
        for number in prompts {
            let own = left(number).min(free);
            if own > 0 {
                parts.push(part(number, own));
                free -= own;
            }
        }
        parts.sort_unstable_by_key(|part| part.number);
        Wanted { chunk, parts, turn }
    }
}
