//! Measurements of the batch engine, and the facts that predictions need.

use crate::engine::columns::engine::{ColumnId, Columns};
use crate::error::Result;

impl Columns {
    /// Sets the tokens of a sequence to `len` without processing any, to measure a step there. The cache up to
    /// it is undefined, and so are the logits that follow.
    ///
    /// # Errors
    /// [`Error::Released`](crate::Error::Released), [`Error::ContextFull`](crate::Error::ContextFull),
    /// [`Error::OutOfPages`](crate::Error::OutOfPages): then nothing has changed but that the sequence is
    /// empty.
    pub fn pretend(&mut self, id: ColumnId, len: usize) -> Result<()> {
        self.truncate(id, 0)?;
        self.check(&[(id, len)], &[])?;
        self.extend(&[(id, len)])?;
        if let Some(table) = &mut self.slots[id.slot as usize].table {
            table.len = len;
        }
        self.results = None;
        Ok(())
    }

    /// Bytes of weights that each launch of a step of up to `columns` columns reads, in order.
    ///
    /// # Errors
    /// [`Error::StepSize`](crate::Error::StepSize); what loading the kernels reports.
    pub fn weight_bytes_of_launches(&mut self, columns: usize) -> Result<Vec<u64>> {
        let launches = self.lowered_for(columns)?;
        Ok(launches.all.iter().map(|launch| launch.weight_bytes).collect())
    }

    /// Bytes of keys and values of one position in one layer.
    pub fn cache_bytes_of_layer(&self) -> u64 {
        self.model.cache.bytes_per_position()
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.model.config.layers
    }
}
