//! The decode kernels: written with `ptxgen`, compiled ahead for each target and embedded.
//!
//! `cargo run -p ga10b-llm --example build_kernels` compiles them anew (it needs a `ptxas`) and a test fails when the committed
//! ones no longer match.

mod attention;
mod cache;
mod choices;
mod dequantize;
mod format;
pub mod gemm;
pub mod matvec;
mod norm;
mod pack;
mod prompt;
mod prompt_attention;
mod quantized_attention;
mod recipe;
mod rope;
mod state;
pub mod step;

pub use attention::{HEAD_DIMS, THREADS as ATTENTION_THREADS, even_shares, partial_words};
pub use cache::{BLOCK as CACHE_BLOCK, CacheType};
pub use choices::{Choices, Product, TokensProduct};
pub use dequantize::{THREADS as DEQUANTIZE_THREADS, blocks as dequantize_blocks};
pub use format::{Format, Plane};
pub use matvec::{Epilogue, striped};
pub use norm::{SILU_THREADS, THREADS as NORM_THREADS};
pub use pack::pack;
pub use prompt::{
    COUNT_AT, EXPAND_THREADS, NORM_THREADS as PROMPT_NORM_THREADS, PROMPT_TOKENS_AT,
    ROPE_THREADS as PROMPT_ROPE_THREADS,
};
pub use prompt_attention::{
    THREADS as PROMPT_ATTENTION_THREADS, TOKENS as PROMPT_ATTENTION_TOKENS,
    shared_bytes as prompt_attention_shared,
};
pub use recipe::Recipe;
pub use rope::{THREADS as ROPE_THREADS, turns};
pub use state::{ARGMAX_BLOCKS, THREADS as STATE_THREADS, TOKENS_AT, embed_blocks};

use ptxgen::{Kernel, Module, Named, Target};

/// All kernels for `target`, as the modules that are committed.
pub fn modules(target: Target) -> Vec<Named> {
    let mut modules = Vec::new();
    let mut add = |name: &str, kernels: Vec<Kernel>| {
        let mut module = Module::new(target);
        for kernel in kernels {
            module.add(kernel);
        }
        modules.push(Named { name: name.to_owned(), module });
    };
    for format in Format::ALL {
        let mut kernels = vec![state::embed(format)];
        kernels.extend(Epilogue::ALL.map(|e| matvec::kernel(format, e, matvec::Shape::default())));
        add(format.suffix(), kernels);
    }
    for variant in step::VARIANTS {
        add(variant.module, vec![step::kernel(variant, step::Shape::default())]);
    }
    let mut kernels = vec![attention::combine()];
    kernels.extend(
        HEAD_DIMS.into_iter().flat_map(|d| [attention::kernel(d, false), attention::kernel(d, true)]),
    );
    kernels.extend(HEAD_DIMS.map(quantized_attention::kernel));
    add("attention", kernels);
    add(
        "vector",
        vec![
            norm::rmsnorm(),
            norm::silu_mul(),
            rope::kernel(CacheType::F16),
            rope::kernel(CacheType::Q8_0),
            state::argmax(),
            state::argmax_finish(),
            state::advance(),
        ],
    );
    let both = |format| [dequantize::matrix(format), dequantize::embed(format)];
    add("dequantize", Format::ALL.into_iter().flat_map(both).collect());
    let of_tile = |tile| gemm::Output::ALL.map(|output| gemm::kernel(tile, output));
    add("gemm", gemm::TILES.into_iter().flat_map(of_tile).collect());
    let mut kernels = vec![prompt::norm(), prompt::rope(CacheType::F16), prompt::last()];
    kernels.extend([prompt::rope(CacheType::Q8_0), prompt::expand()]);
    kernels.extend(HEAD_DIMS.map(prompt_attention::kernel));
    add("prompt", kernels);
    modules
}
