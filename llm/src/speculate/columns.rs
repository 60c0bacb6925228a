//! A draft of several texts that is a model.

use std::collections::HashMap;

use crate::engine::{ColumnId, Columns, MOST_COLUMNS};
use crate::error::{Error, Result};
use crate::speculate::draft::Kind;
use crate::speculate::drafts::{Drafts, Text};

/// Proposes the most likely tokens of a model, usually a smaller one of the same vocabulary
/// ([`check_vocabularies`](crate::speculate::check_vocabularies)), for several texts in each of its steps.
#[derive(Debug)]
pub struct DraftColumns {
    columns: Columns,
    /// The sequence of each text.
    held: HashMap<u64, Held>,
}

/// A sequence and its tokens.
#[derive(Debug)]
struct Held {
    id: ColumnId,
    tokens: Vec<u32>,
}

/// A text that the draft goes on with.
#[derive(Debug)]
struct Open {
    /// Number among the texts.
    number: usize,
    name: u64,
    id: ColumnId,
    /// The token that is processed next.
    last: u32,
    most: usize,
}

impl DraftColumns {
    /// A draft of `columns`, which nothing else uses and which has as many sequences as there are texts at a
    /// time. Past its context, for lack of pages and after tokens that it does not have it proposes nothing.
    pub fn new(columns: Columns) -> Self {
        Self { columns, held: HashMap::new() }
    }

    /// Processes what is new of each text but its last token, and returns the texts that it can go on with.
    fn follow(&mut self, texts: &[Text<'_>]) -> Result<Vec<Open>> {
        let (vocab, context) = (self.columns.vocab(), self.columns.options().context);
        // Pages that the texts before do not take.
        let mut free = self.columns.free_pages();
        let (mut open, mut work) = (Vec::new(), Vec::new());
        for (number, Text { name, tokens, most }) in texts.iter().enumerate() {
            // The last proposed token is not processed.
            let most = (*most).min((context + 1).saturating_sub(tokens.len()));
            let Some((last, before)) = tokens.split_last() else { continue };
            if most == 0 || tokens.iter().any(|token| *token as usize >= vocab) {
                continue;
            }
            let id = match self.held.get(name) {
                Some(held) => held.id,
                None => {
                    let id = self.columns.admit()?;
                    self.held.insert(*name, Held { id, tokens: Vec::new() });
                    id
                }
            };
            let Some(held) = self.held.get_mut(name) else { continue };
            let shared = held.tokens.iter().zip(before).take_while(|(a, b)| a == b).count();
            if shared < held.tokens.len() {
                held.tokens.truncate(shared);
                self.columns.truncate(id, shared)?;
            }
            let needed = self.columns.pages_needed(id, before.len() - shared + most)?;
            if needed > free {
                continue;
            }
            free -= needed;
            if shared == 0 {
                let count = self.columns.prefill_chunks(id, tokens)?;
                held.tokens.extend(&before[..count]);
            }
            let rest = &before[held.tokens.len()..];
            work.extend(rest.iter().map(|token| (id, *token)));
            held.tokens.extend(rest);
            open.push(Open { number, name: *name, id, last: *last, most });
        }
        work.chunks(MOST_COLUMNS).try_for_each(|work| self.columns.fill(work))?;
        Ok(open)
    }

    /// The proposals for `texts`, a token of each in a step.
    fn continued(&mut self, texts: &[Text<'_>], mut columns: usize) -> Result<Vec<Vec<u32>>> {
        let mut proposed = vec![Vec::new(); texts.len()];
        let mut open = self.follow(texts)?;
        loop {
            open.retain(|text| proposed[text.number].len() < text.most);
            open.truncate(columns.min(MOST_COLUMNS));
            if open.is_empty() {
                return Ok(proposed);
            }
            let work: Vec<(ColumnId, u32)> = open.iter().map(|text| (text.id, text.last)).collect();
            let greedy = self.columns.step(&work)?;
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

impl Drafts for DraftColumns {
    fn kind(&self) -> Kind {
        Kind::Model
    }

    fn propose(&mut self, texts: &[Text<'_>], columns: usize) -> Result<Vec<Vec<u32>>> {
        self.continued(texts, columns).map_err(|error| {
            // How much of it was processed is not known. The first error is reported.
            let names: Vec<u64> = self.held.keys().copied().collect();
            names.into_iter().for_each(|name| self.forget(name));
            Error::Draft { source: Box::new(error) }
        })
    }

    fn forget(&mut self, name: u64) {
        if let Some(held) = self.held.remove(&name) {
            // It fails for a sequence that has ended.
            let _ = self.columns.release(held.id);
        }
    }
}
