//! Tokens of a text, and steps of one that is alone.

use crate::engine::alone::{Alone, On, Wanted};
use crate::engine::columns::engine::{ColumnId, Columns};
use crate::engine::diagnosis::{are_plausible, gives_numbers, scan};
use crate::error::Result;
use crate::sampler::Sampler;

impl Columns {
    /// Whether texts have the persistent step ([`ColumnsOptions::stream`](crate::ColumnsOptions::stream)).
    pub fn streams(&self) -> bool {
        self.alone.is_some()
    }

    /// [`Sequences::next`](crate::Sequences::next) by the persistent step; `None` if there is none.
    pub(crate) fn next_by_stream(
        &mut self,
        id: ColumnId,
        token: u32,
        sampler: &mut Sampler,
    ) -> Option<Result<Option<u32>>> {
        let mut alone = self.alone.take()?;
        let next = self.next_alone(&mut alone, (id, token), sampler);
        if next.is_err() {
            // The first error is reported.
            let _ = alone.reset();
        }
        self.alone = Some(alone);
        Some(next)
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
        self.results = None;
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

    /// [`gives_numbers`] for a token at the end of a sequence.
    fn is_sound(&mut self, id: ColumnId, token: u32, position: usize) -> Result<bool> {
        let column = self.column(id, token, position)?;
        gives_numbers(&self.model, &mut self.steps, &mut self.queue, column)
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
