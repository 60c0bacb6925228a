//! Addition to the residual stream of a bias or the vector of a learned position, and its scale.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Special, kernel_params};

/// Threads of a block.
pub const THREADS: u32 = 128;

kernel_params! {
    /// `add_bias`: adds `bias` to the vector of each token. Grid: `[len / THREADS, tokens]`.
    pub struct AddBias { x: Ptr<f32, 16>, bias: Ptr<f32, 16>, len: Multiple = 16 }
}

pub(crate) fn add_bias() -> Kernel {
    let k = Kernel::new("add_bias");
    k.max_threads(THREADS);
    let p = AddBias::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.len.reg()));
    let to = k.at(k.row(p.x, k.special(Special::CtaidY), p.len), i);
    k.store(to, k.add(k.load_with(to, 1, Cache::Default)[0], k.load(k.at(p.bias, i))));
    k
}

kernel_params! {
    /// `add_position`: adds the vector of its position to that of each token; the first word of `state` is
    /// the position of the first token. Positions past the last one of `rows` have its vector. Grid: `[len /
    /// THREADS, tokens]`.
    pub struct AddPosition {
        x: Ptr<f32, 16>, positions: Ptr<f32, 16>, state: Ptr<u32, 16>,
        len: Multiple = 16, rows: u32,
    }
}

pub(crate) fn add_position() -> Kernel {
    let k = Kernel::new("add_position");
    k.max_threads(THREADS);
    let p = AddPosition::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.len.reg()));
    let token = k.special(Special::CtaidY);
    let position = k.min(k.add(k.load(p.state), token), k.sub(p.rows, 1));
    let to = k.at(k.row(p.x, token, p.len), i);
    let vector = k.row(p.positions, position, p.len);
    k.store(to, k.add(k.load_with(to, 1, Cache::Default)[0], k.load(k.at(vector, i))));
    k
}

kernel_params! {
    /// `scale`: multiplies the vector of each token by `factor`. Grid: `[len / THREADS, tokens]`.
    pub struct Scale { x: Ptr<f32, 16>, len: Multiple = 16, factor: f32 }
}

pub(crate) fn scale() -> Kernel {
    let k = Kernel::new("scale");
    k.max_threads(THREADS);
    let p = Scale::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.len.reg()));
    let to = k.at(k.row(p.x, k.special(Special::CtaidY), p.len), i);
    k.store(to, k.mul(k.load_with(to, 1, Cache::Default)[0], p.factor));
    k
}
