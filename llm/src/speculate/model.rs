//! A draft that is a model.

use std::collections::HashMap;
use std::fmt;

use crate::engine::Columns;
use crate::engine::Sequences;
use crate::error::{Error, Result};
use crate::sampler::{Sampler, SamplerOptions};
use crate::speculate::draft::{Draft, Kind, Proposal, Text};

/// Proposes the most likely tokens of a model, usually a smaller one of the same vocabulary
/// ([`check_vocabularies`](crate::speculate::check_vocabularies)), for all texts in each of its steps.
#[derive(Debug)]
pub struct DraftModel<S: Sequences = Columns> {
    sequences: S,
    /// The sequence of each text.
    held: HashMap<u64, Held<S::Id>>,
}

/// A sequence and its tokens.
#[derive(Debug)]
struct Held<I> {
    id: I,
    tokens: Vec<u32>,
}

/// A text that the draft goes on with.
#[derive(Debug)]
struct Open<I> {
    /// Number among the texts.
    number: usize,
    name: u64,
    id: I,
    /// The token that is processed next.
    last: u32,
    most: usize,
}

impl<S: Sequences> DraftModel<S> {
    /// A draft of `sequences`, which nothing else uses and which has as many sequences as there are texts at a
    /// time; of one text the persistent step is fastest ([`ColumnsOptions::stream`](crate::ColumnsOptions::stream)).
    /// Past its context, for lack of pages and after tokens that it does not have it proposes nothing.
    pub fn new(sequences: S) -> Self {
        Self { sequences, held: HashMap::new() }
    }

    /// Processes what is new of each text but its last token, and returns the texts that it can go on with.
    fn follow(&mut self, texts: &[Text<'_>]) -> Result<Vec<Open<S::Id>>> {
        let (vocab, context) = (self.sequences.vocab(), self.sequences.context());
        // Pages that the texts before will take.
        let mut reserved = 0;
        let (mut open, mut work) = (Vec::new(), Vec::new());
        for (number, Text { name, tokens, lengths }) in texts.iter().enumerate() {
            // The last proposed token is not processed.
            let most = lengths.of(Kind::Model).min((context + 1).saturating_sub(tokens.len()));
            let Some((last, before)) = tokens.split_last() else { continue };
            if most == 0 || tokens.iter().any(|token| *token as usize >= vocab) {
                continue;
            }
            let id = match self.held.get(name) {
                Some(held) => held.id,
                None => {
                    let id = self.sequences.admit_with(&[], 0)?;
                    self.held.insert(*name, Held { id, tokens: Vec::new() });
                    id
                }
            };
            let Some(held) = self.held.get_mut(name) else { continue };
            let shared = held.tokens.iter().zip(before).take_while(|(a, b)| a == b).count();
            if shared < held.tokens.len() {
                held.tokens.truncate(shared);
                self.sequences.truncate(id, shared)?;
            }
            let needed = self.sequences.pages_needed(id, before.len() - shared + most)?;
            if needed + reserved > self.sequences.free_pages() {
                continue;
            }
            if shared == 0 {
                let count = self.sequences.prefill_chunks(id, tokens)?;
                held.tokens.extend(&before[..count]);
            }
            let rest = &before[held.tokens.len()..];
            reserved += self.sequences.pages_needed(id, rest.len() + most)?;
            work.extend(rest.iter().map(|token| (id, *token)));
            held.tokens.extend(rest);
            open.push(Open { number, name: *name, id, last: *last, most });
        }
        // A step of one token may be a persistent one.
        match work.len() {
            1 => self.step(&work).map(drop)?,
            _ => work.chunks(self.sequences.most_columns()).try_for_each(|work| self.sequences.fill(work))?,
        }
        Ok(open)
    }

    /// The most likely token after each of `work`.
    fn step(&mut self, work: &[(S::Id, u32)]) -> Result<Vec<Option<u32>>> {
        match *work {
            [(id, token)] => {
                let greedy = &mut Sampler::new(SamplerOptions::GREEDY);
                Ok(vec![self.sequences.next(id, token, greedy)?])
            }
            _ => self.sequences.step(work),
        }
    }

    /// The proposals for `texts`, a token of each in a step.
    fn continued(&mut self, texts: &[Text<'_>], mut columns: usize) -> Result<Vec<Vec<u32>>> {
        let mut proposed = vec![Vec::new(); texts.len()];
        let mut open = self.follow(texts)?;
        loop {
            open.retain(|text| proposed[text.number].len() < text.most);
            open.truncate(columns.min(self.sequences.most_columns()));
            if open.is_empty() {
                return Ok(proposed);
            }
            let work: Vec<(S::Id, u32)> = open.iter().map(|text| (text.id, text.last)).collect();
            let greedy = self.step(&work)?;
            columns -= open.len();
            for (text, next) in open.iter_mut().zip(greedy) {
                if let Some(held) = self.held.get_mut(&text.name) {
                    held.tokens.push(text.last);
                }
                match next {
                    Some(token) => {
                        proposed[text.number].push(token);
                        text.last = token;
                    }
                    None => text.most = 0,
                }
            }
        }
    }
}

impl<S: Sequences + fmt::Debug> Draft for DraftModel<S> {
    fn propose(&mut self, texts: &[Text<'_>], columns: usize) -> Result<Vec<Proposal>> {
        match self.continued(texts, columns) {
            Ok(all) => Ok(all.into_iter().map(|tokens| Proposal { tokens, kind: Kind::Model }).collect()),
            Err(error) => {
                // How much of it was processed is not known. The first error is reported.
                let names: Vec<u64> = self.held.keys().copied().collect();
                names.into_iter().for_each(|name| self.forget(name));
                Err(Error::Draft { source: Box::new(error) })
            }
        }
    }

    fn forget(&mut self, name: u64) {
        if let Some(held) = self.held.remove(&name) {
            // It fails for a sequence that has ended.
            let _ = self.sequences.release(held.id);
        }
    }
}
