//! Tokens of a text, and steps of one that is alone.

use crate::engine::alone::{Alone, On, Wanted};
use crate::engine::columns::engine::{ColumnId, Columns};
use crate::engine::diagnosis::{all_finite, are_plausible, scan};
use crate::error::Result;
use crate::sampler::Sampler;

impl Columns {
    /// Whether [`Columns::next`] has a persistent step.
    pub fn streams(&self) -> bool {
        self.alone.is_some()
    }

    /// Processes the next token of a text and chooses the one after it; `None` if no logit is a number. With
    /// [`ColumnsOptions::stream`](crate::ColumnsOptions::stream) in one launch, where the model has such a kernel, whose bits are its own; else as
    /// [`Columns::step`] and `sampler` do.
    ///
    /// # Errors
    /// As [`Columns::step`].
    pub fn next(&mut self, id: ColumnId, token: u32, sampler: &mut Sampler) -> Result<Option<u32>> {
        let work = [(id, token)];
        let Some(mut alone) = self.alone.take() else {
            let greedy = self.step(&work)?[0];
            return match greedy.is_none() || sampler.is_greedy() {
                true => Ok(greedy),
                false => Ok(Some(sampler.sample(&self.logits(0)?))),
            };
        };
        let next = self.next_alone(&mut alone, work[0], sampler);
        if next.is_err() {
            // The first error is reported.
            let _ = alone.reset();
        }
        self.alone = Some(alone);
        next
    }

    fn next_alone(
        &mut self,
        alone: &mut Alone,
        (id, token): (ColumnId, u32),
        sampler: &mut Sampler,
    ) -> Result<Option<u32>> {
        let counts = [(id, 1)];
        self.check(&counts, &[token])?;
        self.extend(&counts)?;
        let position = self.table(id)?.len;
        self.with_logits = 0;
        if !alone.probed {
            if !self.is_sound(id, token, position)? {
                return Ok(None);
            }
            alone.probed = true;
        }
        self.alone_from = self.alone_from.min(position);
        let wanted = alone.wanted(sampler, false)?;
        let Self { model, steps, queue, .. } = self;
        alone.run(On { model, steps, queue }, (token, position), wanted, &mut None)?;
        let chosen = match wanted {
            Wanted::Logits => None,
            Wanted::Greedy | Wanted::Sampled => Some(alone.chosen(&self.steps, wanted)?),
        };
        let next = match chosen {
            // The choice among logits without any number, and among zeros, too.
            None | Some(0) => {
                let mut logits = vec![0.0; self.vocab()];
                alone.read_logits(&self.steps, &mut logits)?;
                let good = are_plausible(&logits) || self.is_sound(id, token, position)?;
                good.then(|| chosen.unwrap_or_else(|| sampler.sample(&logits)))
            }
            token => token,
        };
        self.advance(&[(id, token)]);
        Ok(next)
    }

    /// Whether a batch step gives numbers for a token: a persistent step is more tolerant, as it computes in integers,
    /// of weights that are no numbers, and gives zeros of what is too large.
    fn is_sound(&mut self, id: ColumnId, token: u32, position: usize) -> Result<bool> {
        self.steps.write(&[self.column(id, token, position)?])?;
        self.steps.run(&self.model, &mut self.queue, 1, true)?;
        let mut logits = vec![0.0; self.vocab()];
        self.steps.read_logits(0, &mut logits)?;
        Ok(all_finite(&logits))
    }

    /// Whether all keys and values of a sequence are numbers, as far as its steps would not have said so: a
    /// persistent step computes with numbers from those that are none. Reads the pages of what such steps wrote.
    ///
    /// # Errors
    /// [`Error::Released`](crate::Error::Released); what the device reports.
    pub fn is_finite(&self, id: ColumnId) -> Result<bool> {
        let table = self.table(id)?;
        for layer in &self.model.layers {
            if scan((&self.model, &table.pages), layer, self.alone_from..table.len)?.bad.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
