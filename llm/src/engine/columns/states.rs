//! The hidden states of tokens after all layers, of which embeddings of texts are made.

use crate::engine::batch::To;
use crate::engine::columns::engine::{ColumnId, Columns};
use crate::error::Result;
use crate::model::Model;
use crate::model::architecture::Norm;

/// The norm before the output matrix. The device writes its results in f16, as the operands of a product; states are
/// normalized here, in single precision.
#[derive(Debug)]
pub(super) struct OutputNorm {
    kind: Norm,
    weight: Vec<f32>,
    /// Empty if the norm has none.
    bias: Vec<f32>,
    epsilon: f64,
}

impl OutputNorm {
    pub fn of(model: &Model) -> Result<Self> {
        let (c, norm) = (&model.config, model.output_norm());
        let bias = norm.bias.map(|bias| bias.to_f32()).transpose()?.unwrap_or_default();
        let epsilon = f64::from(c.norm_eps);
        Ok(Self { kind: c.architecture.norm, weight: norm.weight.to_f32()?, bias, epsilon })
    }

    fn apply(&self, x: &mut [f32]) {
        let count = x.len() as f64;
        let mean = match self.kind {
            Norm::Rms => 0.0,
            Norm::Layer => x.iter().map(|value| f64::from(*value)).sum::<f64>() / count,
        };
        let squares: f64 = x.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum();
        let scale = (squares / count + self.epsilon).sqrt().recip();
        for (at, value) in x.iter_mut().enumerate() {
            let bias = self.bias.get(at).copied().unwrap_or_default();
            *value = ((f64::from(*value) - mean) * scale * f64::from(self.weight[at])) as f32 + bias;
        }
    }
}

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
