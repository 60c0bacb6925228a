//! The tokens that follow what a step has processed.

use rayon::prelude::*;

use crate::engine::Sequences;
use crate::error::Result;
use crate::sampler::Sampler;
use crate::schedule::parts::{Choice, Part, Running};
use crate::schedule::requests::{Event, Finish, RequestId};
use crate::schedule::scheduler::Scheduler;

impl<S: Sequences> Scheduler<S> {
    /// Processes the newest token of a text that is alone in its step.
    pub(super) fn step_alone(&mut self, number: usize, events: &mut Vec<(RequestId, Event)>) -> Result<()> {
        let Self { sequences, running, .. } = self;
        let own = &mut running[number];
        let token = own.left()[0];
        let chosen = sequences.next(own.id, token, &mut own.job.sampler)?;
        self.last_step = 1;
        self.advance(number, 1)?;
        let finished = self.chosen(number, chosen, events)?;
        self.finish(finished.into_iter().map(|finish| (number, finish)).collect())
    }

    /// Takes the next token of a request, `None` if no logit was a number. Returns whether its text ends there.
    fn chosen(
        &mut self,
        number: usize,
        token: Option<u32>,
        events: &mut Vec<(RequestId, Event)>,
    ) -> Result<Option<Finish>> {
        let Self { sequences, running, .. } = self;
        let Running { job, id, done, .. } = &mut running[number];
        let bad = Finish::NotFinite { position: *done - 1 };
        let (event, mut finish) = match token {
            None => (None, Some(bad)),
            Some(token) => job.take(token, sequences.context()),
        };
        if finish.is_some() && !sequences.is_finite(*id)? {
            finish = Some(bad);
        }
        let logprobs = job.sampler.take_logprobs().map(Event::Logprobs);
        events.extend(logprobs.into_iter().chain(event).map(|event| (job.id, event)));
        events.extend(finish.map(|finish| (job.id, Event::Finished(finish))));
        Ok(finish)
    }

    /// Ends the requests whose texts have ended.
    pub(super) fn finish(&mut self, mut finished: Vec<(usize, Finish)>) -> Result<()> {
        finished.sort_unstable_by_key(|(number, _)| *number);
        finished.iter().rev().try_for_each(|(number, _)| self.end(*number))?;
        if finished.iter().any(|(_, finish)| matches!(finish, Finish::NotFinite { .. })) {
            // The cache may be the cause, and it may be from another.
            self.forget();
        }
        Ok(())
    }

    /// Takes the tokens that follow what a step has processed, of the requests that are not finished, and adds those
    /// that are now.
    pub(super) fn take(
        &mut self,
        parts: &[Part],
        greedy: &[Option<u32>],
        finished: &mut Vec<(usize, Finish)>,
        events: &mut Vec<(RequestId, Event)>,
    ) -> Result<()> {
        let mut choices = Vec::new();
        let mut columns = 0;
        for (part, Part { number, count, proposed, .. }) in parts.iter().enumerate() {
            let column = columns + count - 1;
            columns += count + proposed.len();
            let is_finished = finished.iter().any(|(other, _)| other == number);
            if self.running[*number].chooses_after(*count) && !is_finished {
                choices.push(Choice { part, number: *number, column, accepted: 0 });
            }
        }
        let mut chosen = self.choose(&choices, greedy)?;
        parts.iter().try_for_each(|part| self.advance(part.number, part.count))?;
        while !choices.is_empty() {
            let mut next = Vec::new();
            for (choice, chosen) in choices.into_iter().zip(chosen) {
                let Choice { part, number, column, accepted } = choice;
                if let Some(finish) = self.chosen(number, chosen, events)? {
                    finished.push((number, finish));
                    continue;
                }
                let (Some(token), Some(proposed)) = (chosen, parts[part].proposed.get(accepted)) else {
                    continue;
                };
                let is_right = token == *proposed;
                if let Some(proposals) = &mut self.proposals {
                    proposals.examined(parts[part].kind, is_right);
                }
                if is_right {
                    self.advance(number, 1)?;
                    next.push(Choice { part, number, column: column + 1, accepted: accepted + 1 });
                }
            }
            choices = next;
            chosen = self.choose(&choices, greedy)?;
        }
        for Part { number, .. } in parts.iter().filter(|part| !part.proposed.is_empty()) {
            let Running { id, done, .. } = self.running[*number];
            self.sequences.truncate(id, done)?;
        }
        Ok(())
    }

    /// The token after each of `choices`, which are in the order of requests; `None` where no logit is a
    /// number.
    fn choose(&mut self, choices: &[Choice], greedy: &[Option<u32>]) -> Result<Vec<Option<u32>>> {
        let mut chosen: Vec<Option<u32>> = choices.iter().map(|choice| greedy[choice.column]).collect();
        let mut logits = Vec::new();
        for (place, choice) in choices.iter().enumerate() {
            if chosen[place].is_some() && !self.running[choice.number].job.sampler.is_greedy() {
                logits.push((place, self.sequences.logits(choice.column)?));
            }
        }
        let mut logits = logits.into_iter().peekable();
        let mut draws = Vec::new();
        for (number, running) in self.running.iter_mut().enumerate() {
            if let Some((place, logits)) = logits.next_if(|(place, _)| choices[*place].number == number) {
                draws.push((place, logits, &mut running.job.sampler));
            }
        }
        // Each choice reads the whole vocabulary.
        let draw =
            |(place, logits, sampler): (usize, Vec<f32>, &mut Sampler)| (place, sampler.sample(&logits));
        let drawn: Vec<(usize, u32)> = match draws.len() {
            0 | 1 => draws.into_iter().map(draw).collect(),
            _ => draws.into_par_iter().map(draw).collect(),
        };
        drawn.into_iter().for_each(|(place, token)| chosen[place] = Some(token));
        Ok(chosen)
    }
}
