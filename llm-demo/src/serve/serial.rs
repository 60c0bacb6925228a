//! One request after the other, on a decoder: the fastest way for one at a time.
//!
//! The beginning that a request has in common with the one before is not processed again.

use std::ops::ControlFlow;
use std::time::Instant;

use ga10b_llm::generate::{Generation, Stop, extend};
use ga10b_llm::{Decoder, Error, Tokenizer};

use crate::serve::job::{Event, Failure, Reason, Request, Usage};
use crate::serve::scheduler::{Job, Processor, Queue, Ticket};
use crate::serve::stops::Stops;

/// Tokens of a prompt after which it is looked whether the request is cancelled.
const SLICE: usize = 512;

/// A decoder that processes requests.
pub struct Serial<'a> {
    tokenizer: &'a Tokenizer,
    decoder: Box<dyn Decoder>,
    /// The tokens in the decoder's context.
    held: Vec<u32>,
    /// Whether they are of use for the next request.
    caches: bool,
    /// The request that is processed.
    current: Option<Ticket>,
}

impl<'a> Serial<'a> {
    /// With `caches` what a request has in common with the one before is not processed again.
    pub fn new(tokenizer: &'a Tokenizer, decoder: Box<dyn Decoder>, caches: bool) -> Self {
        Self { tokenizer, decoder, held: Vec::new(), caches, current: None }
    }

    /// Generates a text; the last event, or `None` if the request was cancelled.
    fn generate(&mut self, queue: &Queue, job: Job) -> ga10b_llm::Result<Option<Event>> {
        let Job { request, ticket: Ticket { events, arrived } } = job;
        let Request { prompt, mut sampler, stops, count, reuse } = request;
        let decoder = &mut self.decoder;
        let metrics = queue.metrics();
        let cut = || queue.is_cut();

        // The content of the context is not known while something is added to it.
        let held = std::mem::take(&mut self.held);
        let shared_tokens = held.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        // The last token gives the logits of the first one of the text.
        let most = if reuse && self.caches { prompt.len().saturating_sub(1) } else { 0 };
        let cached = shared_tokens.min(most).min(decoder.position());
        decoder.truncate(cached)?;
        metrics.prompt_tokens.inc_by(prompt.len() as u64);
        metrics.cached_tokens.inc_by(cached as u64);

        let mut rest = &prompt[cached..];
        while rest.len() > SLICE {
            let (slice, after) = rest.split_at(SLICE);
            decoder.prefill(slice)?;
            rest = after;
            if events.is_closed() || cut() {
                self.held = prompt[..decoder.position()].to_vec();
                return Ok(cut().then_some(Event::Failed(Failure::Shutdown)));
            }
        }
        sampler.begin(&prompt);
        let mut stops = Stops::new(stops);
        let mut last: Option<Instant> = None;
        let made = extend(&mut **decoder, self.tokenizer, &mut sampler, rest, count, &mut |piece| {
            match last.replace(Instant::now()) {
                None => metrics.first_token(arrived.elapsed()),
                Some(before) => metrics.next_token(before.elapsed()),
            }
            let text = stops.push(piece);
            let gone =
                if text.is_empty() { events.is_closed() } else { events.send(Event::Text(text)).is_err() };
            Ok(if gone || stops.stopped() || cut() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        });
        let made = match made {
            // The request's own: the decoder is as good as before.
            Err(Error::Constraint) => return Ok(Some(Event::Failed(Failure::Constraint))),
            made => made?,
        };
        metrics.generated_tokens.inc_by(made.tokens.len() as u64);
        let usage = Usage { prompt: prompt.len(), cached, generated: made.tokens.len() };
        self.held = in_context(prompt, &made, decoder.position());
        let reason = match made.stop {
            Stop::Count | Stop::Context if !stops.stopped() => Reason::Length,
            Stop::Caller if !stops.stopped() => {
                return Ok(cut().then_some(Event::Failed(Failure::Shutdown)));
            }
            _ => Reason::Stop,
        };
        let rest = stops.finish();
        if !rest.is_empty() {
            // Whether somebody receives it is seen at the last event.
            let _ = events.send(Event::Text(rest));
        }
        Ok((!events.is_closed()).then_some(Event::End(reason, usage)))
    }
}

impl Processor for Serial<'_> {
    fn turn(&mut self, queue: &Queue) -> anyhow::Result<bool> {
        let Some(job) = queue.take() else { return Ok(false) };
        let ticket = job.ticket.clone();
        self.current = Some(ticket.clone());
        let last = self.generate(queue, job)?;
        self.current = None;
        queue.end(&ticket, last);
        Ok(true)
    }

    fn fail(&mut self, queue: &Queue, failure: &Failure) {
        if let Some(ticket) = self.current.take() {
            queue.end(&ticket, Some(Event::Failed(failure.clone())));
        }
    }
}

/// The tokens in the context after a text: the last one was chosen and not processed.
fn in_context(prompt: Vec<u32>, made: &Generation, position: usize) -> Vec<u32> {
    let mut held = prompt;
    held.extend(&made.tokens);
    held.truncate(position);
    held
}
