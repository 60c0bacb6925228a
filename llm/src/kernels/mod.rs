//! The kernels: written with `ptxgen`, compiled ahead for each target and embedded as cubins.
//!
//! Three rooms hold the three ways of running a model: [`operations`] has one kernel per operation,
//! [`stream`] a whole decode step in one kernel, [`prompt`] many tokens at once on the tensor cores.
//! [`columns`] are a step of several sequences. [`sample`] chooses the token that follows. The modules beside
//! them are shared: the layout of weights ([`format`](mod@format), [`pack`]), the key/value [`cache`], the
//! decode [`state`].
//!
//! `cargo run -p ga10b-llm --example build_kernels` compiles the committed cubins again (it needs a `ptxas`);
//! a test fails when they no longer match the PTX.
//!
//! # Layers
//! ```text
//! shapes   choices recipe                   # shapes that differ from the default, and their cubins
//! more     columns layers mixture           # a batch, operations of some architectures, experts
//! ways     operations prompt sample stream  # a token, a prompt, the choice, a step in one launch
//! weights  committed pack repack            # cubins of this crate, weights as kernels read them
//! parts    activation cache format heads inverse_root limits links rotation state  # what kernels share
//! ```

pub(crate) mod activation;
pub mod cache;
pub mod choices;
pub mod columns;
pub mod committed;
pub mod format;
pub mod heads;
pub(crate) mod inverse_root;
pub mod layers;
pub mod limits;
mod links;
pub mod mixture;
pub mod operations;
pub mod pack;
pub mod prompt;
pub mod recipe;
pub mod repack;
pub mod rotation;
pub mod sample;
pub mod state;
pub mod stream;

use ptxgen::{Kernel, Module, Named, Target};

use crate::cache::CacheType;
use crate::kernels::format::Format;
use crate::kernels::heads::HEAD_DIMS;
use crate::kernels::operations::matvec::Epilogue;
use crate::kernels::operations::{attention, matvec, norm, quantized_attention, rope, token};
use crate::kernels::prompt::{
    attention as prompt_attention, dequantize, gemm, shares, squares, vector, warpgroups,
};

/// All kernels for `target`, in the modules that are committed. Those of [`operations`], [`prompt`] and
/// [`layers`] begin with the wait of early links; those of [`columns`] have it where they need it.
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
    for format in Format::ALL {
        let mut kernels = vec![token::embed(format)];
        kernels.extend(Epilogue::ALL.map(|e| matvec::kernel(format, e, matvec::Shape::default())));
        add(format.suffix(), linked(kernels));
    }
    add(sample::kernel::NAME, vec![sample::kernel::kernel()]);
    for variant in &stream::variant::VARIANTS {
        add(variant.module, vec![stream::kernel::kernel(target, variant)]);
    }
    let mut kernels = vec![attention::combine()];
    for limited in [false, true] {
        let both = |d| [false, true].map(|split| attention::kernel(d, split, limited));
        kernels.extend(HEAD_DIMS.into_iter().flat_map(both));
        kernels.extend(HEAD_DIMS.map(|d| quantized_attention::kernel(d, limited)));
    }
    add("attention", linked(kernels));
    add(
        "vector",
        linked(vec![
            norm::rmsnorm(),
            norm::silu_mul(),
            rope::kernel(CacheType::F16),
            rope::kernel(CacheType::Q8_0),
            token::argmax(),
            token::argmax_finish(),
            token::advance(),
        ]),
    );
    add(columns::NAME, columns::vectors(target));
    add("columns_product", columns::products(target));
    add("columns_experts", columns::experts_products(target));
    add(columns::chunks::NAME, linked(columns::of_prompts()));
    let both = |format| [dequantize::matrix(format), dequantize::embed(format)];
    add("dequantize", linked(Format::ALL.into_iter().flat_map(both).collect()));
    let of_tile = |tile| gemm::Output::ALL.map(|output| gemm::kernel(tile, output));
    add(gemm::NAME, linked(gemm::TILES.into_iter().flat_map(of_tile).collect()));
    let mut kernels = vec![vector::norm(), vector::rope(CacheType::F16), vector::last()];
    kernels.extend([vector::rope(CacheType::Q8_0), vector::expand(), squares::kernel()]);
    kernels
        .extend(HEAD_DIMS.into_iter().flat_map(|d| [prompt_attention::kernel(d, false), shares::merge(d)]));
    kernels.extend(HEAD_DIMS.map(|d| prompt_attention::kernel(d, true)));
    add("prompt", linked(kernels));
    add(layers::NAME, linked(layers::kernels()));
    add(layers::experts::PRODUCTS, linked(Format::ALL.into_iter().map(layers::experts::product).collect()));
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
