//! A decoder that processes tokens before they are chosen.

use std::fmt;
use std::time::Instant;

use crate::decoder::Decoder;
use crate::engine::Sequences;
use crate::error::{Error, Result};
use crate::sampler::Sampler;
use crate::speculate::draft::{Draft, Kind, Text};
use crate::speculate::pace::Pace;

/// Options of a [`Speculator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeculatorOptions {
    /// Most tokens that are proposed for a step.
    pub most: usize,
    /// Whether as many are proposed as measured times and acceptance say, and none where that is fastest;
    /// else always as many as the draft has.
    pub adaptive: bool,
}

impl SpeculatorOptions {
    /// Up to `most` tokens, as many as pay.
    pub fn new(most: usize) -> Self {
        Self { most, adaptive: true }
    }

    /// Always as many tokens as the draft has.
    #[must_use]
    pub fn fixed(self) -> Self {
        Self { adaptive: false, ..self }
    }
}

/// Counts of proposals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Steps of the model, without prompts.
    pub steps: usize,
    /// Tokens that were proposed and processed.
    pub proposed: usize,
    /// Of these, the tokens that were the next ones of the text.
    pub accepted: usize,
    /// Time of these steps.
    pub step_seconds: f64,
    /// Time of the draft.
    pub draft_seconds: f64,
}

impl Statistics {
    /// Tokens of texts for each step; `None` before the first.
    pub fn tokens_per_step(&self) -> Option<f64> {
        (self.steps > 0).then(|| (self.steps + self.accepted) as f64 / self.steps as f64)
    }

    /// The accepted part of the proposed tokens; `None` if none was proposed.
    pub fn acceptance(&self) -> Option<f64> {
        (self.proposed > 0).then(|| self.accepted as f64 / self.proposed as f64)
    }
}

/// The last step.
#[derive(Debug)]
struct Step {
    /// Its tokens after the first.
    proposed: Vec<u32>,
    kind: Kind,
    /// The most likely token after each of its tokens; empty if there was no step.
    greedy: Vec<Option<u32>>,
    /// The column of the text's last token.
    column: usize,
}

/// No step.
const NONE: Step = Step { proposed: Vec::new(), kind: Kind::Model, greedy: Vec::new(), column: 0 };

/// A sequence in whose steps tokens are verified that a [`Draft`] proposes. The draft has no influence on any result: the
/// logits of a sequence depend on its tokens alone, not on their division into steps.
pub struct Speculator<S: Sequences> {
    sequences: S,
    id: S::Id,
    draft: Box<dyn Draft>,
    pace: Pace,
    /// The tokens of the text. After these the sequence has what is left of the last step's proposal.
    tokens: Vec<u32>,
    last: Step,
    statistics: Statistics,
}

impl<S: Sequences + fmt::Debug> fmt::Debug for Speculator<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.last.proposed.len() - self.last.column;
        write!(f, "Speculator({:?}, {} tokens and {ahead} proposed)", self.sequences, self.tokens.len())
    }
}

impl<S: Sequences> Speculator<S> {
    /// A decoder of a sequence of `sequences`, which has nothing else.
    ///
    /// # Errors
    /// [`Error::TooManySequences`]; the device's errors.
    pub fn new(mut sequences: S, draft: Box<dyn Draft>, options: SpeculatorOptions) -> Result<Self> {
        let id = sequences.admit_with(&[], 0)?;
        let pace = Pace::new(options.most.min(sequences.most_columns() - 1), options.adaptive);
        let (tokens, statistics) = (Vec::new(), Statistics::default());
        Ok(Self { sequences, id, draft, pace, tokens, last: NONE, statistics })
    }

    /// The counts of proposals since the draft was set, or [`Speculator::take_statistics`].
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The counts of proposals since the last call.
    pub fn take_statistics(&mut self) -> Statistics {
        std::mem::take(&mut self.statistics)
    }

    /// Replaces the draft; times and acceptance of the one before are forgotten.
    ///
    /// # Errors
    /// The device's errors.
    pub fn set_draft(&mut self, draft: Box<dyn Draft>, options: SpeculatorOptions) -> Result<()> {
        self.discard()?;
        self.draft = draft;
        self.pace = Pace::new(options.most.min(self.sequences.most_columns() - 1), options.adaptive);
        self.statistics = Statistics::default();
        Ok(())
    }

    /// Forgets what was proposed and not taken.
    fn discard(&mut self) -> Result<()> {
        if self.last.column < self.last.proposed.len() {
            self.sequences.truncate(self.id, self.tokens.len())?;
        }
        self.last = NONE;
        Ok(())
    }

    /// Makes `token` the last one of the text.
    fn advance(&mut self, token: u32) -> Result<()> {
        let last = &mut self.last;
        if let Some(proposed) = last.proposed.get(last.column) {
            let accepted = *proposed == token;
            self.pace.examined(last.kind, accepted);
            if accepted {
                last.column += 1;
                self.tokens.push(token);
                self.statistics.accepted += 1;
                return Ok(());
            }
        }
        self.discard()?;
        let (vocab, context) = (self.sequences.vocab(), self.sequences.context());
        if token as usize >= vocab {
            return Err(Error::Token { token, vocab });
        }
        if self.tokens.len() >= context {
            return Err(Error::ContextFull { position: context, context });
        }
        self.tokens.push(token);
        let stepped = self.process(token);
        if stepped.is_err() {
            self.tokens.pop();
        }
        stepped
    }

    /// Processes the last token of the text, and what the draft proposes after it.
    fn process(&mut self, token: u32) -> Result<()> {
        let (vocab, room) = (self.sequences.vocab(), self.sequences.context() - self.tokens.len());
        let lengths = self.pace.next().at_most(room);
        let (mut proposed, mut kind) = (Vec::new(), Kind::Model);
        if !lengths.are_zero() {
            let begin = Instant::now();
            let text = Text { name: 0, tokens: &self.tokens, lengths };
            if let Some(first) = self.draft.propose(&[text], self.sequences.most_columns() - 1)?.pop() {
                (proposed, kind) = (first.tokens, first.kind);
            }
            let seconds = begin.elapsed().as_secs_f64();
            let known = proposed.iter().take_while(|token| (**token as usize) < vocab).count();
            proposed.truncate(known.min(lengths.of(kind)));
            self.pace.drafted(proposed.len(), seconds);
            self.statistics.draft_seconds += seconds;
        }
        let work: Vec<(S::Id, u32)> =
            std::iter::once(token).chain(proposed.iter().copied()).map(|token| (self.id, token)).collect();
        let begin = Instant::now();
        let greedy = self.sequences.step(&work)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.pace.stepped(work.len(), seconds);
        self.statistics.steps += 1;
        self.statistics.proposed += proposed.len();
        self.statistics.step_seconds += seconds;
        self.last = Step { proposed, kind, greedy, column: 0 };
        Ok(())
    }

    /// The most likely token after the last one.
    fn best(&mut self) -> Result<u32> {
        let best = self.last.greedy.get(self.last.column).copied().flatten();
        if let Some(token) = best {
            return Ok(token);
        }
        let position = self.tokens.len().saturating_sub(1);
        self.truncate(0)?;
        Err(Error::NotFinite { phase: "step", layer: None, position })
    }
}

/// After [`Error::NotFinite`] the context is empty.
impl<S: Sequences> Decoder for Speculator<S> {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        self.advance(token)?;
        self.best()?;
        self.sequences.logits(self.last.column)
    }

    fn step_greedy(&mut self, token: u32) -> Result<u32> {
        self.advance(token)?;
        self.best()
    }

    fn step_sampled(&mut self, token: u32, sampler: &mut Sampler) -> Result<u32> {
        if sampler.is_greedy() {
            return self.step_greedy(token);
        }
        Ok(sampler.sample(&self.step(token)?))
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        self.discard()?;
        let (column, _) = self.sequences.prefill(self.id, tokens)?;
        self.tokens.extend(tokens);
        self.sequences.logits(column)
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.discard()?;
        self.sequences.truncate(self.id, count.min(self.tokens.len()))?;
        self.tokens.truncate(count);
        Ok(())
    }

    fn position(&self) -> usize {
        self.tokens.len()
    }

    fn context(&self) -> usize {
        self.sequences.context()
    }
}
