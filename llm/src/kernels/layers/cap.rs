//! The cap of logits.

use ptxgen::{Cache, Kernel, Special};

use crate::kernels::activation::capped;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// `cap(logits, count, cap)`: each logit becomes `cap · tanh(logit / cap)`. Grid: `[count / THREADS]`.
pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("cap");
    k.max_threads(THREADS);
    let logits = k.param_ptr::<f32>("logits", 4);
    let count = k.param::<u32>("count");
    let cap = k.param::<f32>("cap");
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, count));
    let to = k.at(logits, i);
    let logit = k.load_with(to, 1, Cache::Default)[0];
    k.store(to, capped(&k, logit, cap));
    k
}
