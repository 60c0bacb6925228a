//! The interface of a model that verifies tokens.

use std::fmt;

use crate::engine::{ColumnId, Columns, MOST_COLUMNS};
use crate::error::Result;

/// A sequence that processes several tokens in one step and can forget the last ones. Its logits depend on
/// its tokens alone, not on their division into steps.
pub trait Target {
    /// Most tokens of a step, at least one.
    fn most_columns(&self) -> usize;
    /// Most tokens of the sequence.
    fn context(&self) -> usize;
    /// Tokens of the vocabulary.
    fn vocab(&self) -> usize;
    /// Processes a prompt and returns the logits after it.
    ///
    /// # Errors
    /// As [`Columns::prefill`].
    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>>;
    /// Processes tokens and returns for each the most likely next one; `None` if no logit is a number.
    ///
    /// # Errors
    /// As [`Columns::step`].
    fn step(&mut self, tokens: &[u32]) -> Result<Vec<Option<u32>>>;
    /// The logits after a token of the last [`Target::step`].
    ///
    /// # Errors
    /// As [`Columns::logits`].
    fn logits(&self, column: usize) -> Result<Vec<f32>>;
    /// Forgets the tokens from position `len` on.
    ///
    /// # Errors
    /// The device's errors.
    fn truncate(&mut self, len: usize) -> Result<()>;
}

/// A sequence of [`Columns`] that nothing else uses.
pub struct Sequence {
    columns: Columns,
    id: ColumnId,
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequence({:?})", self.columns)
    }
}

impl Sequence {
    /// Begins a sequence of `columns`.
    ///
    /// # Errors
    /// [`Error::TooManySequences`](crate::Error::TooManySequences).
    pub fn new(mut columns: Columns) -> Result<Self> {
        let id = columns.admit()?;
        Ok(Self { columns, id })
    }
}

impl Target for Sequence {
    fn most_columns(&self) -> usize {
        MOST_COLUMNS
    }

    fn context(&self) -> usize {
        self.columns.options().context
    }

    fn vocab(&self) -> usize {
        self.columns.vocab()
    }

    fn prefill(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let (column, _) = self.columns.prefill(self.id, tokens)?;
        self.columns.logits(column)
    }

    fn step(&mut self, tokens: &[u32]) -> Result<Vec<Option<u32>>> {
        let work: Vec<(ColumnId, u32)> = tokens.iter().map(|token| (self.id, *token)).collect();
        self.columns.step(&work)
    }

    fn logits(&self, column: usize) -> Result<Vec<f32>> {
        self.columns.logits(column)
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.columns.truncate(self.id, len)
    }
}
