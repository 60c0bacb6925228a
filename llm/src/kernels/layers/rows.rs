//! Addition to the residual stream of a bias or the vector of a learned position, and its scale.

use ptxgen::{Cache, Kernel, Special};

/// Threads of a block.
pub const THREADS: u32 = 128;

/// `add_bias(x, bias, len)`: adds `bias` to the vector of each token. Grid: `[len / THREADS, tokens]`.
pub(crate) fn add_bias() -> Kernel {
    let k = Kernel::new("add_bias");
    k.max_threads(THREADS);
    let x = k.param_ptr::<f32>("x", 16);
    let bias = k.param_ptr::<f32>("bias", 16);
    let len = k.param_multiple("len", 16);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let to = k.at(k.row(x, k.special(Special::CtaidY), len), i);
    k.store(to, k.add(k.load_with(to, 1, Cache::Default)[0], k.load(k.at(bias, i))));
    k
}

/// `add_position(x, positions, state, len, rows)`: adds the vector of its position to that of each token; the
/// first word of `state` is the position of the first token. Positions past the last one of `rows` have its
/// vector. Grid: `[len / THREADS, tokens]`.
pub(crate) fn add_position() -> Kernel {
    let k = Kernel::new("add_position");
    k.max_threads(THREADS);
    let x = k.param_ptr::<f32>("x", 16);
    let positions = k.param_ptr::<f32>("positions", 16);
    let state = k.param_ptr::<u32>("state", 16);
    let len = k.param_multiple("len", 16);
    let rows = k.param::<u32>("rows");
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let token = k.special(Special::CtaidY);
    let position = k.min(k.add(k.load(state), token), k.sub(rows, 1));
    let to = k.at(k.row(x, token, len), i);
    let vector = k.row(positions, position, len);
    k.store(to, k.add(k.load_with(to, 1, Cache::Default)[0], k.load(k.at(vector, i))));
    k
}

/// `scale(x, len, factor)`: multiplies the vector of each token by `factor`. Grid: `[len / THREADS, tokens]`.
pub(crate) fn scale() -> Kernel {
    let k = Kernel::new("scale");
    k.max_threads(THREADS);
    let x = k.param_ptr::<f32>("x", 16);
    let len = k.param_multiple("len", 16);
    let factor = k.param::<f32>("factor");
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let to = k.at(k.row(x, k.special(Special::CtaidY), len), i);
    k.store(to, k.mul(k.load_with(to, 1, Cache::Default)[0], factor));
    k
}
