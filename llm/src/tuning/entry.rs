//! The result of one search, as it is kept.

use std::collections::BTreeMap;

use hcq::Info;
use serde::{Deserialize, Serialize};

use crate::gguf::GgmlType;
use crate::kernels::step::VARIANTS;
use crate::kernels::{Epilogue, Format, Product, Recipe, TokensProduct, gemm, matvec, step};
use crate::model::{Config, Model};

/// The GPU that a result is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name, as the driver tells it.
    pub name: String,
    /// Its generation: 87 for sm_87.
    pub sm: u32,
    /// Multiprocessors that are on: a Jetson's power modes differ in it.
    pub sm_count: u32,
}

/// The sizes of a model that its kernels depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ModelShape {
    pub layers: usize,
    pub hidden: usize,
    pub ff: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
}

/// What a result is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The GPU.
    pub gpu: Gpu,
    /// The model's sizes.
    pub model: ModelShape,
    /// Types of its matrices, the one with most bytes first: `Q4_K+Q6_K`.
    pub quantization: String,
}

/// How times were come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By the GPU's own clock.
    Measured,
    /// Computed from what the software device counted.
    Predicted,
}

impl Method {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Measured => "measured",
            Method::Predicted => "predicted",
        }
    }
}

/// The shape that was found for something, and what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned<T> {
    /// The shape: the usual one, if none was faster.
    pub shape: T,
    /// Time with the usual shape, in ns.
    pub usual_ns: u64,
    /// Time with this one, in ns.
    pub ns: u64,
}

/// The step kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedStep {
    /// Which one: `q6_k`.
    pub kernel: String,
    /// Its shape; times are those of a whole step.
    #[serde(flatten)]
    pub tuned: Tuned<step::Shape>,
}

/// A matrix times a vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedMatvec {
    /// Type of the matrix: `Q6_K`.
    #[serde(rename = "type")]
    pub ty: String,
    /// What happens to the products.
    pub epilogue: Epilogue,
    /// Results.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
    /// Its shape; times are those of one launch.
    #[serde(flatten)]
    pub tuned: Tuned<matvec::Shape>,
}

/// A matrix times many vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedGemm {
    /// What happens to the sums.
    pub output: gemm::Output,
    /// Tokens.
    pub tokens: u32,
    /// Results per token.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
    /// Into how many shares the row length is split.
    pub shares: u32,
    /// Its tile; times are those of one launch, and of what reads its results.
    #[serde(flatten)]
    pub tuned: Tuned<gemm::Tile>,
}

/// A compiled kernel beside the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFile {
    /// Its name.
    pub name: String,
    /// Hash of its PTX: another one, and it is the kernel of another version of this program.
    pub ptx_sha256: String,
    /// Hash of the cubin, by which its file is named.
    pub cubin_sha256: String,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is for.
    #[serde(flatten)]
    pub subject: Subject,
    /// When the search ended, in UTC: `2026-01-31T12:00:00Z`.
    pub date: String,
    /// Whether its times are measured.
    pub method: Method,
    /// Version of this program.
    pub version: String,
    /// Version of the ptxas that compiled the kernels.
    pub ptxas: String,
    /// The step kernel, if it was searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<TunedStep>,
    /// Products with a vector, one launch each.
    #[serde(default)]
    pub matvec: Vec<TunedMatvec>,
    /// Products with the tokens of a prompt.
    #[serde(default)]
    pub gemm: Vec<TunedGemm>,
    /// The kernels that are not among the committed ones.
    #[serde(default)]
    pub kernels: Vec<KernelFile>,
}

impl Subject {
    /// What a result for `model` on the device of `info` is for.
    pub fn new(info: &Info, model: &Model) -> Self {
        Self {
            gpu: Gpu { name: info.name.clone(), sm: info.sm_number(), sm_count: info.sm_count },
            model: ModelShape::of(&model.config),
            quantization: model.quantization(),
        }
    }
}

impl ModelShape {
    fn of(c: &Config) -> Self {
        let &Config { layers, hidden, ff, heads, kv_heads, head_dim, vocab, .. } = c;
        Self { layers, hidden, ff, heads, kv_heads, head_dim, vocab }
    }
}

impl TunedStep {
    /// The kernel; `None` if there is none of that name or shape.
    pub fn recipe(&self) -> Option<Recipe> {
        let variant = VARIANTS.iter().find(|v| v.name == self.kernel)?;
        Some(Recipe::Step(*variant, self.tuned.shape)).filter(Recipe::is_valid)
    }
}

impl TunedMatvec {
    /// What is multiplied; `None` for a type that there are no kernels for.
    pub fn product(&self) -> Option<Product> {
        let ty = GgmlType::ALL.iter().find(|ty| ty.name() == self.ty)?;
        let format = Format::of(*ty)?;
        Some(Product { format, epilogue: self.epilogue, rows: self.rows, cols: self.cols })
    }

    /// The kernel; `None` if there is none of that type or shape.
    pub fn recipe(&self) -> Option<Recipe> {
        let format = self.product()?.format;
        Some(Recipe::Matvec(format, self.epilogue, self.tuned.shape)).filter(Recipe::is_valid)
    }
}

impl TunedGemm {
    /// What is multiplied.
    pub fn product(&self) -> TokensProduct {
        TokensProduct { output: self.output, tokens: self.tokens, rows: self.rows, cols: self.cols }
    }

    /// The kernel; `None` if there is none of that tile, or if the row length cannot be split like that.
    pub fn recipe(&self) -> Option<Recipe> {
        let splits = gemm::splits(self.output, self.cols).any(|s| s == self.shares);
        Some(Recipe::Gemm(self.tuned.shape, self.output)).filter(|r| splits && r.is_valid())
    }
}

impl Entry {
    /// The kernels beside the committed ones that it needs, by name.
    pub fn recipes(&self) -> BTreeMap<String, Recipe> {
        let step = self.step.iter().filter_map(TunedStep::recipe);
        let matvec = self.matvec.iter().filter_map(TunedMatvec::recipe);
        let gemm = self.gemm.iter().filter_map(TunedGemm::recipe);
        let all = step.chain(matvec).chain(gemm).filter(|r| !r.is_committed());
        all.map(|r| (r.name(), r)).collect()
    }
}
