//! Prompts of the batch engine: chunks by the kernels of prompts, and columns.

use std::time::{Duration, Instant};

use crate::engine::batch::{LEAST_CHUNK, MOST_COLUMNS};
use crate::engine::cache::{PAGE, pages_for};
use crate::engine::columns::cut::Cut;
use crate::engine::columns::engine::{Begun, ColumnId, Columns};
use crate::engine::prompt::chunks::{Place, Slices};
use crate::error::{Error, Result};

impl Columns {
    /// The tokens of a prompt of `tokens` tokens, which begins its sequence, that [`Columns::chunk`]
    /// processes; columns process the others. Depends on `tokens`, the model and the options alone.
    ///
    /// # Errors
    /// The device's errors: the first call measures whether f16 holds the activations of every prompt.
    pub fn cut(&mut self, tokens: usize) -> Result<Cut> {
        let cut = Cut::new(tokens, PAGE, LEAST_CHUNK);
        let cut = if cut.in_chunks() > 0 && self.takes_chunks()? { cut } else { Cut::NONE };
        Ok(if self.streams() { cut.with_text_alone(tokens) } else { cut })
    }

    /// Processes the next tokens of a sequence as one chunk, at most [`PAGE`], without logits, or what
    /// [`Columns::chunk_for`] has left of it. Their keys and values depend, in every bit, on the sequence's
    /// tokens, on its position and on the number of `tokens`, and on nothing else. Without chunks
    /// ([`ColumnsOptions::chunks`](crate::ColumnsOptions)), columns process them.
    ///
    /// # Errors
    /// As [`Columns::fill`].
    pub fn chunk(&mut self, id: ColumnId, tokens: &[u32]) -> Result<()> {
        if tokens.is_empty() || tokens.len() > PAGE {
            return Err(Error::StepSize { asked: tokens.len(), most: PAGE });
        }
        if !self.takes_chunks()? {
            let work: Vec<(ColumnId, u32)> = tokens.iter().map(|token| (id, *token)).collect();
            self.check(&[(id, tokens.len())], tokens)?;
            return work.chunks(MOST_COLUMNS).try_for_each(|work| self.fill(work));
        }
        let place = self.prepare_chunk(id, tokens)?;
        if let Some(slices) = self.take_begun(id, place, tokens) {
            return self.run_slices(id, tokens, slices, Duration::MAX).map(drop);
        }
        if let Some(chunks) = &mut self.chunks {
            let patience = chunks.patience(&self.model);
            chunks.run(&self.model, &mut self.queue, place, tokens)?.wait(patience)?;
        }
        self.end_chunk(id, tokens.len());
        Ok(())
    }

    /// [`Columns::chunk`] for about `time`, or for one slice of the chunk, some launches, if that takes longer.
    /// Returns whether the whole chunk is processed: until then the sequence is as long as before, and the next
    /// call with the same arguments goes on, whatever is processed of other sequences meanwhile. The bits are
    /// those of [`Columns::chunk`]. What is begun is given up for another chunk, and when the sequence is
    /// truncated.
    ///
    /// # Errors
    /// As [`Columns::fill`].
    pub fn chunk_for(&mut self, id: ColumnId, tokens: &[u32], time: Duration) -> Result<bool> {
        if tokens.is_empty() || tokens.len() > PAGE || !self.takes_chunks()? {
            return self.chunk(id, tokens).map(|()| true);
        }
        let place = self.prepare_chunk(id, tokens)?;
        let slices = match (self.take_begun(id, place, tokens), &mut self.chunks) {
            (Some(slices), _) => slices,
            (None, Some(chunks)) => chunks.begin(&self.model, place, tokens)?,
            (None, None) => return Ok(true),
        };
        self.run_slices(id, tokens, slices, time)
    }

    /// The slices that are left of a chunk, if it has begun. Another that has is given up.
    fn take_begun(&mut self, id: ColumnId, place: Place, tokens: &[u32]) -> Option<Slices> {
        let begun = self.begun.take()?;
        let is_it = (begun.id, begun.position, &begun.tokens[..]) == (id, place.position, tokens);
        is_it.then_some(begun.slices)
    }

    /// Processes slices of a chunk for about `time`, at least one. Returns whether they were the last.
    fn run_slices(
        &mut self,
        id: ColumnId,
        tokens: &[u32],
        mut slices: Slices,
        time: Duration,
    ) -> Result<bool> {
        let position = self.table(id)?.len;
        let Some(chunks) = &mut self.chunks else { return Ok(true) };
        let (patience, begin) = (chunks.patience(&self.model), Instant::now());
        let mut longest = Duration::ZERO;
        while !slices.are_done() {
            let before = begin.elapsed();
            // At least one slice, or it would never end.
            if !longest.is_zero() && before + longest > time {
                let tokens = tokens.to_vec();
                self.begun = Some(Begun { id, position, tokens, slices });
                self.results = None;
                return Ok(false);
            }
            chunks.run_slice(&mut self.queue, &mut slices, patience)?;
            longest = longest.max(begin.elapsed() - before);
        }
        self.end_chunk(id, tokens.len());
        Ok(true)
    }

    /// Records what [`Columns::chunk_for`] runs before it is needed.
    ///
    /// # Errors
    /// Errors of loading the kernels.
    pub fn record_slices(&mut self) -> Result<()> {
        if !self.takes_chunks()? {
            return Ok(());
        }
        self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.record_slices(&self.model))
    }

    /// Checks the tokens of a chunk and gives its sequence the pages for them.
    fn prepare_chunk(&mut self, id: ColumnId, tokens: &[u32]) -> Result<Place> {
        let counts = [(id, tokens.len())];
        self.check(&counts, tokens)?;
        self.extend(&counts)?;
        let table = id.slot as usize * pages_for(self.options.context);
        Ok(Place { position: self.table(id)?.len, table })
    }

    /// Counts the tokens of a processed chunk.
    fn end_chunk(&mut self, id: ColumnId, tokens: usize) {
        if let Some(table) = &mut self.slots[id.slot as usize].table {
            table.len += tokens;
        }
        self.results = None;
    }
}
