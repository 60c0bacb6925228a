//! The cap of logits.

use ptxgen::{Cache, Kernel, Ptr, Special, kernel_params};

use crate::kernels::activation::capped;

/// Threads of a block.
pub const THREADS: u32 = 128;

kernel_params! {
    /// `cap`: each logit becomes `cap · tanh(logit / cap)`. Grid: `[count / THREADS]`.
    pub struct Cap { logits: Ptr<f32, 4>, count: u32, cap: f32 }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("cap");
    k.max_threads(THREADS);
    let p = Cap::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.count));
    let to = k.at(p.logits, i);
    let logit = k.load_with(to, 1, Cache::Default)[0];
    k.store(to, capped(&k, logit, p.cap));
    k
}
