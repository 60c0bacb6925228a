//! Biases of queries, keys and values, and norms of queries and keys.

use ptxgen::{Cache, Kernel, Multiple, Ptr, Reg, Special, kernel_params};

use crate::kernels::inverse_root::inverse_root;
use crate::kernels::layers::sum::block_sum;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Flag of `prepare_heads`: there are biases.
pub const BIASED: u32 = 1;
/// Flag of `prepare_heads`: there are norms.
pub const NORMED: u32 = 2;

kernel_params! {
    /// `prepare_heads`: sums `shares` parts of `qkv` that are `share_pitch` tokens apart into the first one,
    /// adds `bias`, and divides each `q_length` values of the queries and `k_length` of the keys by the root
    /// of their mean square, times the weights of the norm. Grid: `[q_dim / q_length + kv_dim / k_length + 1,
    /// tokens]`.
    pub struct PrepareHeads {
        qkv: Ptr<f32, 16>, bias: Ptr<f32, 16>, q_norm: Ptr<f32, 16>, k_norm: Ptr<f32, 16>,
        q_dim: Multiple = 8, kv_dim: Multiple = 8, q_length: u32, k_length: u32, shares: u32,
        share_pitch: u32, eps: f32, flags: u32,
    }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("prepare_heads");
    k.max_threads(THREADS);
    let p = PrepareHeads::declare(&k);
    let (q_dim, kv_dim) = (p.q_dim.reg(), p.kv_dim.reg());
    let partial = k.shared::<f32>(THREADS / 32);
    let (tid, piece, token) =
        (k.special(Special::TidX), k.special(Special::CtaidX), k.special(Special::CtaidY));
    let queries = k.div(q_dim, p.q_length);
    let key = k.sub(piece, queries);
    let is_query = k.lt(piece, queries);
    let is_value = k.both(k.ge(piece, queries), k.ge(key, k.div(kv_dim, p.k_length)));
    let len = k.select(is_query, p.q_length, k.select(is_value, kv_dim, p.k_length));
    let after = k.select(is_value, k.add(q_dim, kv_dim), k.mad(key, p.k_length, q_dim));
    let first = k.select(is_query, k.mul(piece, p.q_length), after);
    let row_len = k.sum(p.q_dim, k.scale(p.kv_dim, 2));
    let line = |share: Reg<u32>| k.at(k.row(p.qkv, k.mad(share, p.share_pitch, token), row_len), first);
    let to = line(k.var(0u32));
    let squares = k.var(0f32);
    k.for_(tid, len, THREADS, |i: Reg<u32>| {
        let sum = k.var(0f32);
        k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
            k.add_to(sum, k.load_with(k.at(line(share), i), 1, Cache::Default)[0]);
        });
        k.if_(k.ne(k.and(p.flags, BIASED), 0), || k.add_to(sum, k.load(k.at(p.bias, k.add(first, i)))));
        k.store(k.at(to, i), sum);
        k.mad_to(squares, sum, sum, squares);
    });
    let sum = block_sum(&k, partial, (tid, THREADS), squares);
    k.exit_if(k.either(is_value, k.eq(k.and(p.flags, NORMED), 0)));
    let mean = k.div(sum, k.convert::<u32, f32>(len));
    let scale = inverse_root(&k, mean, p.eps);
    let weight = k.select_ptr(is_query, p.q_norm, p.k_norm);
    k.for_(tid, len, THREADS, |i: Reg<u32>| {
        // The thread's own stores.
        let value = k.load_with(k.at(to, i), 1, Cache::Default)[0];
        k.store(k.at(to, i), k.mul(k.mul(value, scale), k.load(k.at(weight, i))));
    });
    k
}
