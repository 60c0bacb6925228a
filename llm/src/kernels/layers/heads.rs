//! Biases of queries, keys and values, and norms of queries and keys.

use ptxgen::{Cache, Kernel, Reg, Special};

use crate::kernels::inverse_root::inverse_root;
use crate::kernels::layers::sum::block_sum;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Flag of `prepare_heads`: there are biases.
pub const BIASED: u32 = 1;
/// Flag of `prepare_heads`: there are norms.
pub const NORMED: u32 = 2;

/// `prepare_heads(qkv, bias, q_norm, k_norm, q_dim, kv_dim, q_length, k_length, shares, share_pitch, eps,
/// flags)`: sums `shares` parts of `qkv` that are `share_pitch` tokens apart into the first one, adds `bias`,
/// and divides each `q_length` values of the queries and `k_length` of the keys by the root of their mean
/// square, times the weights of the norm. Grid: `[q_dim / q_length + kv_dim / k_length + 1, tokens]`.
pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("prepare_heads");
    k.max_threads(THREADS);
    let qkv = k.param_ptr::<f32>("qkv", 16);
    let [bias, q_norm, k_norm] = ["bias", "q_norm", "k_norm"].map(|name| k.param_ptr::<f32>(name, 16));
    let [q_rows, kv_rows] = ["q_dim", "kv_dim"].map(|name| k.param_multiple(name, 8));
    let [q_length, k_length, shares, share_pitch] =
        ["q_length", "k_length", "shares", "share_pitch"].map(|name| k.param::<u32>(name));
    let (q_dim, kv_dim) = (q_rows.reg(), kv_rows.reg());
    let eps = k.param::<f32>("eps");
    let flags = k.param::<u32>("flags");
    let partial = k.shared::<f32>(THREADS / 32);
    let (tid, piece, token) =
        (k.special(Special::TidX), k.special(Special::CtaidX), k.special(Special::CtaidY));
    let queries = k.div(q_dim, q_length);
    let key = k.sub(piece, queries);
    let is_query = k.lt(piece, queries);
    let is_value = k.both(k.ge(piece, queries), k.ge(key, k.div(kv_dim, k_length)));
    let len = k.select(is_query, q_length, k.select(is_value, kv_dim, k_length));
    let after = k.select(is_value, k.add(q_dim, kv_dim), k.mad(key, k_length, q_dim));
    let first = k.select(is_query, k.mul(piece, q_length), after);
    let row_len = k.sum(q_rows, k.scale(kv_rows, 2));
    let line = |share: Reg<u32>| k.at(k.row(qkv, k.mad(share, share_pitch, token), row_len), first);
    let to = line(k.var(0u32));
    let squares = k.var(0f32);
    k.for_(tid, len, THREADS, |i: Reg<u32>| {
        let sum = k.var(0f32);
        k.for_(0u32, shares, 1u32, |share: Reg<u32>| {
            k.add_to(sum, k.load_with(k.at(line(share), i), 1, Cache::Default)[0]);
        });
        k.if_(k.ne(k.and(flags, BIASED), 0), || k.add_to(sum, k.load(k.at(bias, k.add(first, i)))));
        k.store(k.at(to, i), sum);
        k.mad_to(squares, sum, sum, squares);
    });
    let sum = block_sum(&k, partial, (tid, THREADS), squares);
    k.exit_if(k.either(is_value, k.eq(k.and(flags, NORMED), 0)));
    let mean = k.div(sum, k.convert::<u32, f32>(len));
    let scale = inverse_root(&k, mean, eps);
    let weight = k.select_ptr(is_query, q_norm, k_norm);
    k.for_(tid, len, THREADS, |i: Reg<u32>| {
        // The thread's own stores.
        let value = k.load_with(k.at(to, i), 1, Cache::Default)[0];
        k.store(k.at(to, i), k.mul(k.mul(value, scale), k.load(k.at(weight, i))));
    });
    k
}
