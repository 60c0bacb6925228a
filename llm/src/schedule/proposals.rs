//! Tokens that texts propose for a step.

use std::time::{Duration, Instant};

use crate::engine::Sequences;
use crate::error::Result;
use crate::schedule::parts::{Part, Running};
use crate::speculate::{Draft, Kind, Pace, Proposal, SpeculatorOptions, Text};

/// A draft, and how many of its tokens are right.
#[derive(Debug)]
pub(super) struct Proposals {
    draft: Box<dyn Draft>,
    pace: Pace,
    /// Most tokens of a text in the last step.
    longest: usize,
    /// Tokens that were processed, and those of them that were chosen.
    pub proposed: u64,
    pub accepted: u64,
}

impl Proposals {
    pub fn new(draft: Box<dyn Draft>, options: SpeculatorOptions) -> Self {
        let pace = Pace::new(options.most, options.adaptive);
        Self { draft, pace, longest: 0, proposed: 0, accepted: 0 }
    }

    /// Lets the texts of a step propose tokens, in pages that are free and in columns that the step has anyway; a text
    /// that is alone may make the step longer.
    pub fn propose<S: Sequences>(
        &mut self,
        sequences: &S,
        running: &[Running<S::Id>],
        parts: &mut [Part],
    ) -> Result<()> {
        self.longest = 0;
        let tokens: usize = parts.iter().map(|part| part.count).sum();
        let most = if running.len() == 1 { sequences.most_columns() } else { sequences.columns_for(tokens) };
        let spare = most.saturating_sub(tokens);
        let lengths = self.pace.next();
        if spare == 0 || lengths.are_zero() {
            return Ok(());
        }
        let (mut needed, mut texts, mut owners) = (0, Vec::new(), Vec::new());
        for (part, Part { number, count, .. }) in parts.iter().enumerate() {
            let own = &running[*number];
            needed += sequences.pages_needed(own.id, *count)?;
            if !own.chooses_after(*count) {
                continue;
            }
            let (length, written) = (own.job.tokens.len(), own.job.tokens.len() - own.job.prompt);
            // The last token that is wanted needs no more columns.
            let room = (sequences.context() - length).min(own.job.most - written - 1);
            let lengths = lengths.at_most(room.min(spare));
            texts.push(Text { name: own.job.id.0, tokens: &own.job.tokens, lengths });
            owners.push(part);
        }
        let begin = Instant::now();
        let proposed = self.draft.propose(&texts, spare)?;
        let longest = proposed.iter().map(|proposal| proposal.tokens.len()).max().unwrap_or_default();
        self.pace.drafted(longest, begin.elapsed().as_secs_f64());
        let (vocab, mut free) = (sequences.vocab(), sequences.free_pages().saturating_sub(needed));
        for ((part, text), Proposal { mut tokens, kind }) in owners.into_iter().zip(&texts).zip(proposed) {
            let known = tokens.iter().take_while(|token| (**token as usize) < vocab).count();
            tokens.truncate(known.min(text.lengths.of(kind)));
            let Part { number, count, .. } = parts[part];
            let id = running[number].id;
            let pages =
                sequences.pages_needed(id, count + tokens.len())? - sequences.pages_needed(id, count)?;
            if pages <= free {
                free -= pages;
                self.longest = self.longest.max(tokens.len());
                self.proposed += tokens.len() as u64;
                (parts[part].proposed, parts[part].kind) = (tokens, kind);
            }
        }
        Ok(())
    }

    /// The step took so long.
    pub fn stepped(&mut self, time: Duration) {
        self.pace.stepped(1 + self.longest, time.as_secs_f64());
    }

    /// A proposed token was chosen, or was not.
    pub fn examined(&mut self, kind: Kind, accepted: bool) {
        self.pace.examined(kind, accepted);
        self.accepted += u64::from(accepted);
    }

    pub fn forget(&mut self, name: u64) {
        self.draft.forget(name);
    }
}
