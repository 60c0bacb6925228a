//! Kernels for layers of other architectures than `llama`: biases, norms of heads, layer norm, GELU, learned
//! positions, scaled embeddings, norms of results, capped logits. Prompts and batch steps share some of them.

pub mod cap;
pub mod gelu;
pub mod heads;
pub mod layer_norm;
pub mod post_norm;
pub mod rows;
pub(crate) mod sum;

use ptxgen::Kernel;

/// The module with these kernels.
pub const NAME: &str = "layers";

/// All of them.
pub(crate) fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![heads::kernel(), rows::add_bias(), rows::add_position()];
    kernels.extend([layer_norm::prompt(), gelu::prompt(), gelu::gate_prompt()]);
    kernels.extend([rows::scale(), post_norm::kernel(), cap::kernel()]);
    kernels
}
