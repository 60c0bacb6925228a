//! The results of a step that are told of prompts.

use std::ops::Range;

use rayon::prelude::*;

use crate::engine::Sequences;
use crate::error::Result;
use crate::sampler::Logprobs;
use crate::schedule::parts::Part;
use crate::schedule::requests::{Event, Finish, Reading, RequestId};
use crate::schedule::scheduler::Scheduler;

impl<S: Sequences> Scheduler<S> {
    /// Tells what is wanted of the prompts in a step that was processed, and is not counted yet. Returns the requests
    /// that are finished: those whose results are no numbers, and those that want no text.
    pub(super) fn read(
        &mut self,
        parts: &[Part],
        greedy: &[Option<u32>],
        events: &mut Vec<(RequestId, Event)>,
    ) -> Result<Vec<(usize, Finish)>> {
        let (mut finished, mut columns) = (Vec::new(), 0);
        for Part { number, count, proposed, .. } in parts {
            let running = &self.running[*number];
            let (job, first, ends) = (&running.job, columns, running.ends_in(*count));
            columns += count + proposed.len();
            // What was told before the request gave its pages up is not told again.
            let known = running.done..job.prompt.min(running.done + count);
            let untold = known.start.max(job.told)..known.end;
            let (id, no_text) = (job.id, job.most == 0 && ends);
            let column = first + untold.start.saturating_sub(running.done);
            let bad = match job.reading {
                _ if untold.is_empty() => None,
                Reading::Logprobs(most) => {
                    self.tell_logprobs((*number, untold, most), (column, greedy), events)?
                }
                Reading::States => self.tell_states((*number, untold), column, events)?,
                Reading::LastState if ends => {
                    self.tell_states((*number, untold.end - 1..untold.end), first + count - 1, events)?
                }
                Reading::LastState | Reading::Nothing => None,
            };
            let finish = bad.map(|position| Finish::NotFinite { position });
            if let Some(finish) = finish.or(no_text.then_some(Finish::Count)) {
                events.push((id, Event::Finished(finish)));
                finished.push((*number, finish));
            }
        }
        Ok(finished)
    }

    /// Tells the probabilities of the tokens after `positions` of a prompt, whose columns begin with `column`. Returns
    /// the position whose logits are no numbers.
    fn tell_logprobs(
        &mut self,
        (number, positions, most): (usize, Range<usize>, usize),
        (column, greedy): (usize, &[Option<u32>]),
        events: &mut Vec<(RequestId, Event)>,
    ) -> Result<Option<usize>> {
        let Self { sequences, running, .. } = self;
        let job = &mut running[number].job;
        let bad = greedy[column..][..positions.len()].iter().position(Option::is_none);
        if let Some(bad) = bad {
            return Ok(Some(positions.start + bad));
        }
        let mut followed = Vec::new();
        for (column, position) in (column..).zip(positions.clone()) {
            if position + 1 < job.prompt {
                followed.push((job.tokens[position + 1], sequences.logits(column)?));
            }
        }
        // Each reads the whole vocabulary.
        let all = followed.into_par_iter().map(|(token, logits)| Logprobs::of(token, &logits, most));
        let all: Vec<Logprobs> = all.collect();
        events.extend(all.into_iter().map(|logprobs| (job.id, Event::Known(logprobs))));
        job.told = positions.end;
        Ok(None)
    }

    /// Tells the hidden states of `positions` of a prompt, whose columns begin with `column`. Returns the position of
    /// one that is no numbers.
    fn tell_states(
        &mut self,
        (number, positions): (usize, Range<usize>),
        column: usize,
        events: &mut Vec<(RequestId, Event)>,
    ) -> Result<Option<usize>> {
        let Self { sequences, running, .. } = self;
        let job = &mut running[number].job;
        for (column, position) in (column..).zip(positions) {
            let state = sequences.state(column)?;
            if !state.iter().all(|value| value.is_finite()) {
                return Ok(Some(position));
            }
            events.push((job.id, Event::State(state)));
            job.told = position + 1;
        }
        Ok(None)
    }
}
