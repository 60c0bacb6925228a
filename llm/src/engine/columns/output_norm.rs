//! The norm before the output matrix, in single precision.

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
    /// Of a model.
    pub fn of(model: &Model) -> Result<Self> {
        let (c, norm) = (&model.config, model.output_norm());
        let bias = norm.bias.map(|bias| bias.to_f32()).transpose()?.unwrap_or_default();
        let epsilon = f64::from(c.norm_eps);
        Ok(Self { kind: c.architecture.norm, weight: norm.weight.to_f32()?, bias, epsilon })
    }

    /// Normalizes a vector.
    pub fn apply(&self, x: &mut [f32]) {
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
