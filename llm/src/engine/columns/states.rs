//! The hidden states of tokens after all layers, of which embeddings of texts are made.

use crate::engine::batch::To;
use crate::engine::columns::engine::{ColumnId, Columns};
use crate::error::Result;

impl Columns {
    /// [`Columns::step`] without logits, for hidden states.
    ///
    /// # Errors
    /// As [`Columns::step`].
    pub fn fill_with_states(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        self.fill_to(work, To::States)
    }

    /// The hidden state after the last layer and norm of a column of the last [`Columns::fill_with_states`] or
    /// [`Columns::step`]: the vector that the output matrix multiplies.
    ///
    /// # Errors
    /// [`Error::StepSize`](crate::Error::StepSize) if that step had no such column; what the device reports.
    pub fn state(&self, column: usize) -> Result<Vec<f32>> {
        self.check_result(column, To::States)?;
        let mut state = vec![0.0; self.model.config.hidden];
        self.steps.read_state(column, &mut state)?;
        self.output_norm.apply(&mut state);
        Ok(state)
    }
}
