//! Mixtures of experts for the tokens of a chunk: scores and choice of each token's experts, the tokens of
//! each expert as a list, products of each expert with those tokens, and the weighted sum.
//!
//! A token and a place among its chosen experts is an *entry*. [`gather`](mod@gather) sorts entries by
//! expert; an entry's number in that order is the row that it has between the products of the experts. Every
//! sum has a fixed order, so the same chunk gives the same bits.

mod choose;
pub mod combine;
pub mod gather;
pub mod product;
pub mod scores;

use ptxgen::{Kernel, Ptr, Special, kernel_params};

use crate::kernels::format::Format;
use crate::kernels::mixture::choose::{Choice, choose};
use crate::kernels::prompt::chunk::COUNT_AT;
use crate::kernels::prompt::gemm::Output;

/// The module with these kernels.
pub const NAME: &str = "mixture";

/// All of them.
pub(crate) fn kernels() -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Format::WITHOUT_CODEBOOK.into_iter().map(scores::kernel).collect();
    kernels.extend([route(), gather::kernel(), combine::kernel()]);
    let of_tile = |tile| Output::ALL.map(|output| product::kernel(tile, output));
    kernels.extend(product::TILES.into_iter().flat_map(of_tile));
    kernels
}

kernel_params! {
    /// `prompt_route`: the experts of each token of the chunk, a warp per token; `scores` is `[token][expert]`,
    /// `chosen` and `shares` are `[token][used]`, the latter with a sum of 1 if `normalized` is not 0. Grid:
    /// tokens.
    pub struct PromptRoute {
        scores: Ptr<f32, 4>, prompt: Ptr<u32, 16>, chosen: Ptr<u32, 4>, shares: Ptr<f32, 4>,
        experts: u32, used: u32, normalized: u32,
    }
}

fn route() -> Kernel {
    let k = Kernel::new("prompt_route");
    k.max_threads(32);
    let p = PromptRoute::declare(&k);
    let token = k.special(Special::CtaidX);
    k.exit_if(k.ge(token, k.load(p.prompt.plus(COUNT_AT))));
    let (scores, chosen) = (k.row(p.scores, token, p.experts), k.row(p.chosen, token, p.used));
    let shares = k.row(p.shares, token, p.used);
    let (experts, used, normalized) = (p.experts, p.used, p.normalized);
    choose(&k, Choice { scores, chosen, shares, experts, used, normalized });
    k
}
