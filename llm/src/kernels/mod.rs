//! The kernels: written with `ptxgen`, compiled ahead for each target and embedded as cubins.
//!
//! Three modules hold the three ways of running a model: [`columns`] are a step of some tokens of any
//! sequences, [`prompt`] chunks of many tokens of one, [`stream`] a whole step of one token in one kernel.
//! [`sample`] chooses the token that follows. The modules beside them are shared: the layout of weights
//! ([`format`](mod@format), [`pack`]), the key/value [`cache`], the decode [`state`].
//!
//! `cargo run -p ga10b-llm --example build_kernels` compiles the committed cubins again (it needs a `ptxas`);
//! a test fails when they no longer match the PTX.
//!
//! # Layers
//! ```text
//! shapes   choices recipe                   # shapes that differ from the default, and their cubins
//! more     columns layers mixture           # some tokens, operations of some architectures, experts
//! ways     prompt sample stream             # many tokens, the choice, a step in one launch
//! weights  committed pack repack rescale    # cubins of this crate, weights as kernels read them
//! parts    activation attention cache coded coded_tiles format heads inverse_root  # what kernels share
//!          limits links rotation state tiles values
//! ```

pub(crate) mod activation;
pub mod attention;
pub mod cache;
pub mod choices;
mod coded;
mod coded_tiles;
pub mod columns;
pub mod committed;
pub mod format;
pub mod heads;
pub(crate) mod inverse_root;
pub mod layers;
pub mod limits;
mod links;
pub mod mixture;
pub mod pack;
pub mod prompt;
pub mod recipe;
pub mod repack;
pub mod rescale;
pub mod rotation;
pub mod sample;
pub mod state;
pub mod stream;
mod tiles;
mod values;

use ptxgen::{Kernel, Module, Named, Target};

use crate::cache::CacheType;
use crate::kernels::format::Format;
use crate::kernels::heads::HEAD_DIMS;
use crate::kernels::prompt::{
    attention as prompt_attention, dequantize, gemm, shares, squares, vector, warpgroups,
};

/// All kernels for `target`, in the modules that are committed. Those of [`prompt`],
/// [`layers`] and [`mixture`] begin with the wait of early links; those of [`columns`] have it where they need it.
pub fn modules(target: Target) -> Vec<Named> {
    let mut modules = Vec::new();
    let linked = |kernels: Vec<Kernel>| kernels.into_iter().map(|k| links::linked(k, target)).collect();
    let mut add = |name: &str, kernels: Vec<Kernel>| {
        let mut module = Module::new(target);
        for kernel in kernels {
            module.add(kernel);
        }
        modules.push(Named { name: name.to_owned(), module });
    };
    add(sample::kernel::NAME, vec![sample::kernel::kernel()]);
    for variant in &stream::variant::VARIANTS {
        add(variant.module, vec![stream::kernel::kernel(target, variant)]);
    }
    add(columns::NAME, columns::vectors(target));
    add("columns_product", columns::products(&Format::WITHOUT_CODEBOOK, target));
    add("columns_experts", columns::experts_products(&Format::WITHOUT_CODEBOOK, target));
    let both = |format| [dequantize::matrix(format), dequantize::embed(format)];
    let mut with_codebook = columns::with_codebook(target);
    with_codebook.extend(linked(Format::WITH_CODEBOOK.into_iter().flat_map(both).collect()));
    add(format::CODEBOOK, with_codebook);
    add("dequantize", linked(Format::WITHOUT_CODEBOOK.into_iter().flat_map(both).collect()));
    let of_tile = |tile| gemm::Output::ALL.map(|output| gemm::kernel(tile, output));
    add(gemm::NAME, linked(gemm::TILES.into_iter().flat_map(of_tile).collect()));
    let mut kernels = vec![vector::norm(), vector::rope(CacheType::F16), vector::last()];
    kernels.extend([vector::rope(CacheType::Q8_0), vector::expand(), squares::kernel()]);
    kernels
        .extend(HEAD_DIMS.into_iter().flat_map(|d| [prompt_attention::kernel(d, false), shares::merge(d)]));
    kernels.extend(HEAD_DIMS.map(|d| prompt_attention::kernel(d, true)));
    add("prompt", linked(kernels));
    add(layers::NAME, linked(layers::kernels()));
    add(mixture::NAME, linked(mixture::kernels()));
    if target == Target::Sm90 {
        modules.push(warpgroup_products());
    }
    modules
}

/// The products that warpgroups of SM 9.0 multiply.
fn warpgroup_products() -> Named {
    let mut module = Module::new(warpgroups::TARGET);
    let of_tile = |tile| gemm::Output::ALL.map(|output| warpgroups::kernel(tile, output));
    for kernel in warpgroups::TILES.into_iter().flat_map(of_tile) {
        module.add(links::linked(kernel, warpgroups::TARGET));
    }
    Named { name: warpgroups::NAME.to_owned(), module }
}
