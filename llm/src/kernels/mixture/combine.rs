//! The sum over a token's experts.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Reg, Special, kernel_params};

use crate::kernels::prompt::chunk::COUNT_AT;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Values of a thread.
const VALUES: u32 = 4;

/// Blocks for `tokens` tokens of `len` values.
pub const fn grid(tokens: u32, len: u32) -> [u32; 3] {
    [len.div_ceil(THREADS * VALUES), tokens, 1]
}

kernel_params! {
    /// `prompt_combine`: adds to each token's row of the residual stream `x` the rows of `parts` that `rows`
    /// has for its `used` experts, times `factor` and the experts' shares. Grid: [`grid`].
    pub struct Combine {
        parts: Ptr<f32, 16>, rows: Ptr<u32, 4>, shares: Ptr<f32, 4>, prompt: Ptr<u32, 16>,
        x: Ptr<f32, 16>,
        len: Multiple = 16, used: u32, factor: f32,
    }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("prompt_combine");
    k.max_threads(THREADS);
    let p = Combine::declare(&k);
    let i = k.scale(k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX)), VALUES);
    let token = k.special(Special::CtaidY);
    k.exit_if(k.either(k.ge(i.reg(), p.len.reg()), k.ge(token, k.load(p.prompt.plus(COUNT_AT)))));
    let first = k.mul(token, p.used);
    let sums = [(); VALUES as usize].map(|()| k.var(0f32));
    k.for_(0u32, p.used, 1u32, |place: Reg<u32>| {
        let entry = k.add(first, place);
        let share = k.mul(k.load(k.at(p.shares, entry)), p.factor);
        let part = k.at(k.row(p.parts, k.load(k.at(p.rows, entry)), p.len), i);
        let values = k.load_n::<{ VALUES as usize }, _, _>(part, Cache::ReadOnly);
        sums.iter().zip(values).for_each(|(sum, value)| k.mad_to(*sum, value, share, *sum));
    });
    let to = k.at(k.row(p.x, token, p.len), i);
    let values = k.load_n::<{ VALUES as usize }, _, _>(to, Cache::Default);
    let sums: Vec<Reg<f32>> = values.into_iter().zip(sums).map(|(value, sum)| k.add(value, sum)).collect();
    k.store_n(to, &sums);
    k
}
