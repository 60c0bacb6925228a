//! The factor of norms.

use ptxgen::{Kernel, Reg};

/// `1 / √(mean + eps)`, the factor of a norm with the mean square or the variance `mean`.
///
/// NaN for infinity: the squares of values from about 1e19 on leave single precision, and a factor of zero would
/// make finite results of them, which nothing tells from others.
pub(crate) fn inverse_root(k: &Kernel, mean: Reg<f32>, eps: Reg<f32>) -> Reg<f32> {
    let root = k.div(1f32, k.sqrt(k.add(mean, eps)));
    k.add(root, k.sub(mean, mean))
}
