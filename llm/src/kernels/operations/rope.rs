//! Rotary positions of queries and keys, and the write into the key/value cache.

use half::f16;
use ptxgen::{Cache, Kernel, Multiple, Ptr, Special, kernel_params};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::cache::store_pair;
use crate::kernels::rotation::rotate;

/// Threads of a block.
pub const THREADS: u32 = 128;

kernel_params! {
    /// `rope_cache`: rotates the queries in place, rotates the keys and writes keys and values as f16 at the
    /// current position of `[kv_head][context][head_dim]` caches. `turns` has one step per pair of a head,
    /// zero for pairs that do not rotate. Pairs are neighbours (2j, 2j + 1). `rope_cache_q8_0` takes another
    /// parameter, `scales_at`.
    pub struct RopeCache(kv: CacheType) {
        qkv: Ptr<f32, 16>, turns: Ptr<u64, 16>, state: Ptr<u32, 16>, keys: Ptr<f16, 16>,
        values: Ptr<f16, 16>,
        heads: u32, kv_heads: u32, half_dim: u32, context: u32,
        scales_at: Option<Multiple> = (kv == CacheType::Q8_0).then_some(BLOCK),
    }
}

pub(crate) fn kernel(kv: CacheType) -> Kernel {
    let k = Kernel::new(&format!("rope_cache{}", kv.suffix()));
    k.max_threads(THREADS);
    let p = RopeCache::declare(&k, kv);
    let pair = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let rotated = k.add(p.heads, p.kv_heads);
    let all = k.add(rotated, p.kv_heads);
    k.exit_if(k.ge(pair, k.mul(all, p.half_dim)));
    let head = k.div(pair, p.half_dim);
    let j = k.sub(pair, k.mul(head, p.half_dim));
    let position = k.load(p.state);
    let source = k.at(p.qkv, k.scale(pair, 2));
    let ab = k.load_with(source, 2, Cache::Default);
    let (a, b) = (ab[0], ab[1]);
    let (x, y) = (k.var(a), k.var(b));
    k.if_(k.lt(head, rotated), || {
        let (c, s) = rotate(&k, k.at(p.turns, j), position, a, b);
        k.set(x, c);
        k.set(y, s);
    });
    k.if_(k.lt(head, p.heads), || {
        k.store_n(source, &[x, y]);
        k.exit();
    });
    let is_key = k.lt(head, rotated);
    let kv_head = k.sub(k.sub(head, p.heads), k.select(is_key, 0u32, p.kv_heads));
    let row = k.mad(kv_head, p.context, position);
    store_pair(&k, k.select_ptr(is_key, p.keys, p.values), p.scales_at, (row, p.half_dim, j), [x, y]);
    k
}
