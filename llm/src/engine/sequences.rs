//! The interface of an engine to what decodes several texts: a scheduler, a draft.

use std::fmt;
use std::time::Duration;

use crate::engine::batch::MOST_COLUMNS;
use crate::engine::cache::PAGE;
use crate::engine::columns::{ColumnId, Columns, Cut, KeptPage};
use crate::error::{Error, Result};
use crate::kernels::columns::product::size;
use crate::sampler::Sampler;

/// Sequences that are processed together, with a cache in pages.
pub trait Sequences {
    /// A sequence.
    type Id: Copy + Eq + fmt::Debug;
    /// A page of the cache that is kept beyond the end of its sequence.
    type Page: fmt::Debug;

    /// Most tokens of a step.
    fn most_columns(&self) -> usize;
    /// Tokens that a step takes in the time that it takes for `tokens`, at least as many.
    fn columns_for(&self, tokens: usize) -> usize {
        tokens
    }
    /// Most sequences at a time.
    fn most_sequences(&self) -> usize;
    /// Most tokens of a sequence.
    fn context(&self) -> usize;
    /// Positions of a page.
    fn page_positions(&self) -> usize;
    /// Pages that no sequence has, and that are not kept.
    fn free_pages(&self) -> usize;
    /// Tokens of the vocabulary.
    fn vocab(&self) -> usize;

    /// Begins a sequence with the first `len` tokens that kept pages hold, or without any: pages may be
    /// shared until it writes to them. It has the bits that a sequence which processed these tokens would
    /// have.
    ///
    /// # Errors
    /// If there are too many.
    fn admit_with(&mut self, pages: &[&Self::Page], len: usize) -> Result<Self::Id>;
    /// Keeps page `number` of a sequence. The kept page does not change when the sequence writes.
    ///
    /// # Errors
    /// If the sequence has ended, or has fewer pages.
    fn keep_page(&mut self, id: Self::Id, number: usize) -> Result<Self::Page>;
    /// Gives a page up.
    fn give_back(&mut self, page: Self::Page);
    /// Whether a page would be free if it were given back.
    fn is_kept_alone(&self, page: &Self::Page) -> bool;
    /// Ends a sequence.
    ///
    /// # Errors
    /// If it has ended.
    fn release(&mut self, id: Self::Id) -> Result<()>;
    /// Forgets the tokens of a sequence from position `len` on.
    ///
    /// # Errors
    /// If the sequence has ended.
    fn truncate(&mut self, id: Self::Id, len: usize) -> Result<()>;
    /// Tokens of a sequence.
    ///
    /// # Errors
    /// If the sequence has ended.
    fn position(&self, id: Self::Id) -> Result<usize>;
    /// Pages that the next `tokens` tokens of a sequence take beside those that it has.
    ///
    /// # Errors
    /// If the sequence has ended.
    fn pages_needed(&self, id: Self::Id, tokens: usize) -> Result<usize>;
    /// Processes tokens, each at the next position of its sequence, without logits.
    ///
    /// # Errors
    /// The device's errors.
    fn fill(&mut self, work: &[(Self::Id, u32)]) -> Result<()>;
    /// Processes tokens for [`Sequences::state`].
    ///
    /// # Errors
    /// The device's errors.
    fn fill_with_states(&mut self, work: &[(Self::Id, u32)]) -> Result<()>;
    /// The hidden state, after all layers and the last norm, of a column of the last
    /// [`Sequences::fill_with_states`] or [`Sequences::step`].
    ///
    /// # Errors
    /// If it had no such column; what the device reports.
    fn state(&self, column: usize) -> Result<Vec<f32>>;
    /// Processes tokens and returns for each the most likely next one; `None` if no logit is a number.
    ///
    /// # Errors
    /// The device's errors.
    fn step(&mut self, work: &[(Self::Id, u32)]) -> Result<Vec<Option<u32>>>;
    /// The logits of a column of the last [`Sequences::step`].
    ///
    /// # Errors
    /// If it had no such column; what the device reports.
    fn logits(&self, column: usize) -> Result<Vec<f32>>;

    /// Processes the next token of a text that is alone in its step and chooses the one after it; `None` if no logit
    /// is a number. By itself as [`Sequences::step`] and `sampler` do; [`Columns`] with
    /// [`ColumnsOptions::stream`](crate::ColumnsOptions::stream) in one launch, whose bits are its own.
    ///
    /// # Errors
    /// The device's errors.
    fn next(&mut self, id: Self::Id, token: u32, sampler: &mut Sampler) -> Result<Option<u32>> {
        next_by_step(self, (id, token), sampler)
    }

    /// Whether all that is cached of a sequence is a number, at the end of its text; by itself yes, because
    /// [`Sequences::step`] says so.
    ///
    /// # Errors
    /// If the sequence has ended; the device's errors.
    fn is_finite(&self, _id: Self::Id) -> Result<bool> {
        Ok(true)
    }

    /// The tokens of a prompt of `tokens` tokens that [`Sequences::chunk`] processes, always the same for the
    /// same number; by itself none.
    ///
    /// # Errors
    /// The device's errors.
    fn cut(&mut self, _tokens: usize) -> Result<Cut> {
        Ok(Cut::NONE)
    }
    /// Processes the next tokens of a sequence as one chunk of its [`Sequences::cut`], without logits; by
    /// itself in columns. If it has a `time`, it may return false after about so long: the sequence is as
    /// long as before, and the next call with the same tokens goes on, unless the sequence was truncated.
    ///
    /// # Errors
    /// The device's errors.
    fn chunk(&mut self, id: Self::Id, tokens: &[u32], _time: Option<Duration>) -> Result<bool> {
        let work: Vec<(Self::Id, u32)> = tokens.iter().map(|token| (id, *token)).collect();
        work.chunks(self.most_columns()).try_for_each(|work| self.fill(work))?;
        Ok(true)
    }

    /// Processes the chunks of a prompt that begins its sequence, as [`Sequences::cut`] has them, and returns the
    /// number of their tokens; the others, the last with them, are for columns.
    ///
    /// # Errors
    /// As [`Sequences::chunk`].
    fn prefill_chunks(&mut self, id: Self::Id, prompt: &[u32]) -> Result<usize> {
        let (cut, mut done) = (self.cut(prompt.len())?, 0);
        while let Some(count) = cut.chunk_at(done) {
            self.chunk(id, &prompt[done..][..count], None)?;
            done += count;
        }
        Ok(done)
    }

    /// Processes a prompt, in chunks what [`Sequences::cut`] says if it begins the sequence, and returns the most
    /// likely token after it; the logits are those of the column that is returned too.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::Token`], [`Error::ContextFull`], [`Error::OutOfPages`], [`Error::NotFinite`]; as
    /// [`Sequences::step`]. The sequence then is as it was.
    fn prefill(&mut self, id: Self::Id, tokens: &[u32]) -> Result<(usize, u32)> {
        let (before, vocab, context) = (self.position(id)?, self.vocab(), self.context());
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::Token { token: *token, vocab });
        }
        if tokens.len() > context - before {
            return Err(Error::ContextFull { position: context, context });
        }
        let (needed, free) = (self.pages_needed(id, tokens.len())?, self.free_pages());
        if needed > free {
            return Err(Error::OutOfPages { needed, free });
        }
        let result = processed(self, (id, before), tokens);
        if result.is_err() {
            self.truncate(id, before)?;
        }
        result
    }
}

/// [`Sequences::prefill`] of a sequence that has `before` tokens.
fn processed<S: Sequences + ?Sized>(
    s: &mut S,
    (id, before): (S::Id, usize),
    tokens: &[u32],
) -> Result<(usize, u32)> {
    let done = if before == 0 { s.prefill_chunks(id, tokens)? } else { 0 };
    let work: Vec<(S::Id, u32)> = tokens[done..].iter().map(|token| (id, *token)).collect();
    let mut steps = work.chunks(s.most_columns());
    let last = steps.next_back().ok_or(Error::EmptyPrompt)?;
    steps.try_for_each(|work| s.fill(work))?;
    let (column, position) = (last.len() - 1, before + tokens.len() - 1);
    let bad = Error::NotFinite { phase: "step", layer: None, position };
    Ok((column, s.step(last)?[column].ok_or(bad)?))
}

/// [`Sequences::next`] by [`Sequences::step`].
fn next_by_step<S: Sequences + ?Sized>(
    s: &mut S,
    work: (S::Id, u32),
    sampler: &mut Sampler,
) -> Result<Option<u32>> {
    let greedy = s.step(&[work])?[0];
    match greedy.is_none() || sampler.is_greedy() {
        true => Ok(greedy),
        false => Ok(Some(sampler.sample(&s.logits(0)?))),
    }
}

impl Sequences for Columns {
    type Id = ColumnId;
    type Page = KeptPage;

    fn most_columns(&self) -> usize {
        MOST_COLUMNS
    }

    fn columns_for(&self, tokens: usize) -> usize {
        size(tokens).map_or(tokens, |columns| columns as usize)
    }

    fn most_sequences(&self) -> usize {
        self.options().sequences
    }

    fn context(&self) -> usize {
        self.options().context
    }

    fn page_positions(&self) -> usize {
        PAGE
    }

    fn free_pages(&self) -> usize {
        self.free_pages()
    }

    fn vocab(&self) -> usize {
        self.vocab()
    }

    fn admit_with(&mut self, pages: &[&KeptPage], len: usize) -> Result<ColumnId> {
        self.admit_with(pages, len)
    }

    fn keep_page(&mut self, id: ColumnId, number: usize) -> Result<KeptPage> {
        self.keep_page(id, number)
    }

    fn give_back(&mut self, page: KeptPage) {
        self.give_back(page);
    }

    fn is_kept_alone(&self, page: &KeptPage) -> bool {
        self.is_kept_alone(page)
    }

    fn release(&mut self, id: ColumnId) -> Result<()> {
        self.release(id)
    }

    fn truncate(&mut self, id: ColumnId, len: usize) -> Result<()> {
        self.truncate(id, len)
    }

    fn position(&self, id: ColumnId) -> Result<usize> {
        self.position(id)
    }

    fn pages_needed(&self, id: ColumnId, tokens: usize) -> Result<usize> {
        self.pages_needed(id, tokens)
    }

    fn fill(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        self.fill(work)
    }

    fn fill_with_states(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        self.fill_with_states(work)
    }

    fn state(&self, column: usize) -> Result<Vec<f32>> {
        self.state(column)
    }

    fn step(&mut self, work: &[(ColumnId, u32)]) -> Result<Vec<Option<u32>>> {
        self.step(work)
    }

    fn logits(&self, column: usize) -> Result<Vec<f32>> {
        self.logits(column)
    }

    fn next(&mut self, id: ColumnId, token: u32, sampler: &mut Sampler) -> Result<Option<u32>> {
        match self.next_by_stream(id, token, sampler) {
            Some(next) => next,
            None => next_by_step(self, (id, token), sampler),
        }
    }

    fn is_finite(&self, id: ColumnId) -> Result<bool> {
        self.is_finite(id)
    }

    fn cut(&mut self, tokens: usize) -> Result<Cut> {
        self.cut(tokens)
    }

    fn chunk(&mut self, id: ColumnId, tokens: &[u32], time: Option<Duration>) -> Result<bool> {
        match time {
            Some(time) => self.chunk_for(id, tokens, time),
            None => self.chunk(id, tokens).map(|()| true),
        }
    }
}
