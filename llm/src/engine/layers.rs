//! The computation of a layer, in order, with its weights on the device: one list that every engine lowers.

use hcq::Buffer;

use crate::engine::matrix::Matrix;
use crate::error::{Error, Result};
use crate::model::architecture::Activation;

/// Weights, keys and values of a layer.
#[derive(Debug)]
pub struct LayerMemory {
    /// Cached keys.
    pub keys: Buffer,
    /// Cached values.
    pub values: Buffer,
    /// Rotation of each pair per position.
    pub turns: Buffer,
    /// Positions that attention sees, the newest with them, if it does not see all.
    pub window: Option<u32>,
    /// The steps of the layer.
    pub steps: Vec<Step>,
}

/// A step of a layer.
#[derive(Debug)]
pub enum Step {
    /// Products of matrices with a vector.
    Product(Product),
    /// Attention of the queries over the cache, which has the newest keys and values.
    Attend,
    /// The feed-forward block as a mixture of experts.
    Experts(Experts),
}

/// A mixture of experts: the most likely ones by a softmax of the router's scores, weighted by their shares
/// of it, which some architectures divide by their sum.
#[derive(Debug)]
pub struct Experts {
    /// The norm of the residual stream, whose results the router and the experts take.
    pub norm: NormMemory,
    /// A row per expert.
    pub router: Matrix,
    /// The rows of all experts, one expert after the other.
    pub gate: Matrix,
    /// As the gate.
    pub up: Matrix,
    /// As the gate; the results are added to the residual stream.
    pub down: Matrix,
}

/// Products of stacked matrices with a vector, and what they become.
#[derive(Debug)]
pub struct Product {
    /// Its role, in profiles.
    pub role: &'static str,
    /// The vector.
    pub from: Source,
    /// The matrices; neighbours of equal type are one.
    pub matrices: Vec<Matrix>,
    /// The vector added to the products.
    pub bias: Option<Buffer>,
    /// The destination of the results.
    pub to: Target,
}

/// The vector of a product.
#[derive(Debug)]
pub enum Source {
    /// The residual stream, normalized.
    Residual(NormMemory),
    /// The result of attention.
    Attended,
    /// The activated vector of the feed-forward block.
    Activated,
}

/// The destination of a product's results.
#[derive(Debug)]
pub enum Target {
    /// Queries, keys and values: normalized if there are norms, rotated; keys and values are cached.
    Heads(Option<HeadNormMemory>),
    /// The activated vector of the feed-forward block.
    Activated(Activation),
    /// Added to the residual stream, normalized if there is a norm.
    Residual(Option<NormMemory>),
}

/// A norm of the residual stream.
#[derive(Clone, Debug)]
pub struct NormMemory {
    /// Its role, in profiles.
    pub role: &'static str,
    /// Weights.
    pub weight: Buffer,
    /// The vector added, if the norm has one.
    pub bias: Option<Buffer>,
    /// Weights with which a vector of n values and length √n gives products at least as large as those of any
    /// normalized vector: by these, prompts bound what they store in f16.
    pub reach: Buffer,
}

/// Norms of queries and keys.
#[derive(Clone, Debug)]
pub struct HeadNormMemory {
    /// Weights of queries and of keys, as long as what is normalized together.
    pub weights: [Buffer; 2],
    /// Values that are normalized together.
    pub lengths: [u32; 2],
}

impl LayerMemory {
    /// The products, in order.
    pub fn products(&self) -> impl Iterator<Item = &Product> {
        self.steps.iter().filter_map(|step| match step {
            Step::Product(product) => Some(product),
            Step::Attend | Step::Experts(_) => None,
        })
    }

    /// The norms of the residual stream, in order.
    pub fn norms(&self) -> impl Iterator<Item = &NormMemory> {
        self.steps.iter().filter_map(|step| match step {
            Step::Product(Product { from: Source::Residual(norm), .. }) => Some(norm),
            Step::Experts(experts) => Some(&experts.norm),
            Step::Product(_) | Step::Attend => None,
        })
    }

    /// All matrices.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let experts = self.steps.iter().filter_map(|step| match step {
            Step::Experts(experts) => Some([&experts.router, &experts.gate, &experts.up, &experts.down]),
            _ => None,
        });
        self.products().flat_map(|product| &product.matrices).chain(experts.flatten())
    }
}

impl Product {
    /// The bias, without which GELU has no kernel where there is no gate.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn gelu_bias(&self) -> Result<&Buffer> {
        self.bias.as_ref().ok_or_else(|| Error::MissingTensor { name: format!("{}: bias", self.role) })
    }

    /// Bytes of its weights.
    pub fn bytes(&self) -> u64 {
        self.matrices.iter().map(Matrix::bytes).sum()
    }
}
