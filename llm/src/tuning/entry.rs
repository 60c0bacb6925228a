//! The stored result of one search.

use std::collections::BTreeMap;
use std::time::SystemTime;

use hcq::Info;
use serde::{Deserialize, Serialize};

use crate::kernels::prompt::gemm;
use crate::kernels::prompt::tile::{ProductTile, TokensProduct};
use crate::kernels::recipe::Recipe;
use crate::model::Model;
use crate::model::config::Config;

/// The GPU that a result is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Name, as the driver reports it.
    pub name: String,
    /// Generation: 87 for sm_87.
    pub sm: u32,
    /// Multiprocessors in use: a Jetson's power modes differ in it.
    pub sm_count: u32,
}

/// The sizes of a model that the kernels depend on.
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

/// The subject of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The GPU.
    pub gpu: Gpu,
    /// The model's sizes.
    pub model: ModelShape,
    /// Types of the matrices, the type with most bytes first: `Q4_K+Q6_K`.
    pub quantization: String,
}

/// The source of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By the GPU's own clock.
    Measured,
    /// Predicted from the counts of the software device.
    Predicted,
}

impl Method {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Measured => "measured",
            Method::Predicted => "predicted",
        }
    }
}

/// The chosen shape of a kernel, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned<T> {
    /// The shape: the default, if none was faster.
    pub shape: T,
    /// Time with the default shape, in ns.
    pub usual_ns: u64,
    /// Time with this shape, in ns.
    pub ns: u64,
}

/// A matrix times many vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedGemm {
    /// The use of the sums.
    pub output: gemm::Output,
    /// Tokens.
    pub tokens: u32,
    /// Results per token.
    pub rows: u32,
    /// Values in a row.
    pub cols: u32,
    /// Split-K parts of the row length.
    pub shares: u32,
    /// The tile; times are those of one launch and of the kernel that reads its results.
    #[serde(flatten)]
    pub tuned: Tuned<ProductTile>,
}

/// A compiled kernel beside the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFile {
    /// Name of the kernel.
    pub name: String,
    /// Hash of the PTX; it differs for a kernel of another version of this crate.
    pub ptx_sha256: String,
    /// Hash of the cubin, which is the name of its file.
    pub cubin_sha256: String,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// GPU and model.
    #[serde(flatten)]
    pub subject: Subject,
    /// When the search ended, in UTC: `2026-01-31T12:00:00Z`.
    pub date: String,
    /// Whether its times are measured.
    pub method: Method,
    /// Version of this crate.
    pub version: String,
    /// Version of the ptxas that compiled the kernels.
    pub ptxas: String,
    /// Products with the tokens of a prompt.
    #[serde(default)]
    pub gemm: Vec<TunedGemm>,
    /// The kernels that are not committed.
    #[serde(default)]
    pub kernels: Vec<KernelFile>,
}

impl Subject {
    /// `model` on the device of `info`.
    pub fn new(info: &Info, model: &Model) -> Self {
        Self {
            gpu: Gpu { name: info.name.clone(), sm: info.sm_number(), sm_count: info.sm_count },
            model: ModelShape::of(&model.config),
            quantization: model.quantization(),
        }
    }
}

impl ModelShape {
    /// The sizes in `c`.
    pub fn of(c: &Config) -> Self {
        let &Config { layers, hidden, ff, heads, kv_heads, head_dim, vocab, .. } = c;
        Self { layers, hidden, ff, heads, kv_heads, head_dim, vocab }
    }
}

impl TunedGemm {
    /// The product.
    pub fn product(&self) -> TokensProduct {
        TokensProduct { output: self.output, tokens: self.tokens, rows: self.rows, cols: self.cols }
    }

    /// The kernel; `None` for an impossible tile or number of split-K parts.
    pub fn recipe(&self) -> Option<Recipe> {
        let splits = gemm::splits(self.output, self.cols).any(|s| s == self.shares);
        Some(Recipe { tile: self.tuned.shape, output: self.output }).filter(|r| splits && r.is_valid())
    }
}

impl Entry {
    /// A result without any shape, dated now.
    pub fn new(subject: Subject, method: Method, ptxas: &str) -> Self {
        Self {
            subject,
            date: now(),
            method,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ptxas: ptxas.to_owned(),
            gemm: Vec::new(),
            kernels: Vec::new(),
        }
    }

    /// The kernels that it needs and that are not committed, by name.
    pub fn recipes(&self) -> BTreeMap<String, Recipe> {
        let all = self.gemm.iter().filter_map(TunedGemm::recipe).filter(|r| !r.is_committed());
        all.map(|r| (r.name(), r)).collect()
    }
}

/// The time in UTC: `2026-01-31T12:00:00Z`.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_are_dated() {
        let now = super::now();
        assert!(now.len() == 20 && now.ends_with('Z'));
    }
}
