//! The sum over a token's experts.

use ptxgen::{Cache, Kernel, Reg, Special};

use crate::kernels::prompt::chunk::COUNT_AT;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Values of a thread.
const VALUES: u32 = 4;

/// Blocks for `tokens` tokens of `len` values.
pub const fn grid(tokens: u32, len: u32) -> [u32; 3] {
    [len.div_ceil(THREADS * VALUES), tokens, 1]
}

/// `prompt_combine(parts, rows, shares, prompt, x, len, used, factor)`: adds to each token's row of the
/// residual stream `x` the rows of `parts` that `rows` has for its `used` experts, times `factor` and the
/// experts' shares. Grid: [`grid`].
pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("prompt_combine");
    k.max_threads(THREADS);
    let parts = k.param_ptr::<f32>("parts", 16);
    let rows = k.param_ptr::<u32>("rows", 4);
    let shares = k.param_ptr::<f32>("shares", 4);
    let prompt = k.param_ptr::<u32>("prompt", 16);
    let x = k.param_ptr::<f32>("x", 16);
    let len = k.param_multiple("len", 16);
    let used = k.param::<u32>("used");
    let factor = k.param::<f32>("factor");
    let i = k.scale(k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX)), VALUES);
    let token = k.special(Special::CtaidY);
    k.exit_if(k.either(k.ge(i.reg(), len.reg()), k.ge(token, k.load(prompt.plus(COUNT_AT)))));
    let first = k.mul(token, used);
    let sums = [(); VALUES as usize].map(|()| k.var(0f32));
    k.for_(0u32, used, 1u32, |place: Reg<u32>| {
        let entry = k.add(first, place);
        let share = k.mul(k.load(k.at(shares, entry)), factor);
        let part = k.at(k.row(parts, k.load(k.at(rows, entry)), len), i);
        let values = k.load_n::<{ VALUES as usize }, _, _>(part, Cache::ReadOnly);
        sums.iter().zip(values).for_each(|(sum, value)| k.mad_to(*sum, value, share, *sum));
    });
    let to = k.at(k.row(x, token, len), i);
    let values = k.load_n::<{ VALUES as usize }, _, _>(to, Cache::Default);
    let sums: Vec<Reg<f32>> = values.into_iter().zip(sums).map(|(value, sum)| k.add(value, sum)).collect();
    k.store_n(to, &sums);
    k
}
