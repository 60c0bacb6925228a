//! Rotary positions of queries and keys, and the write into the key/value cache.

use half::f16;
use ptxgen::{Cache, Kernel, Special};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::cache::store_pair;
use crate::kernels::rotation::rotate;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// `rope_cache(qkv, turns, state, keys, values, heads, kv_heads, half_dim, context)`: rotates the queries in
/// place, rotates the keys and writes keys and values as f16 at the current position of
/// `[kv_head][context][head_dim]` caches. `turns` has one step per pair of a head, zero for pairs that do not
/// rotate. Pairs are neighbours (2j, 2j + 1). `rope_cache_q8_0` takes another parameter, `scales_at`.
pub(crate) fn kernel(kv: CacheType) -> Kernel {
    let k = Kernel::new(&format!("rope_cache{}", kv.suffix()));
    k.max_threads(THREADS);
    let qkv = k.param_ptr::<f32>("qkv", 16);
    let turns = k.param_ptr::<u64>("turns", 16);
    let state = k.param_ptr::<u32>("state", 16);
    let keys = k.param_ptr::<f16>("keys", 16);
    let values = k.param_ptr::<f16>("values", 16);
    let heads = k.param::<u32>("heads");
    let kv_heads = k.param::<u32>("kv_heads");
    let half_dim = k.param::<u32>("half_dim");
    let context = k.param::<u32>("context");
    let scales_at = (kv == CacheType::Q8_0).then(|| k.param_multiple("scales_at", BLOCK));
    let pair = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let rotated = k.add(heads, kv_heads);
    let all = k.add(rotated, kv_heads);
    k.exit_if(k.ge(pair, k.mul(all, half_dim)));
    let head = k.div(pair, half_dim);
    let j = k.sub(pair, k.mul(head, half_dim));
    let position = k.load(state);
    let source = k.at(qkv, k.scale(pair, 2));
    let ab = k.load_with(source, 2, Cache::Default);
    let (a, b) = (ab[0], ab[1]);
    let (x, y) = (k.var(a), k.var(b));
    k.if_(k.lt(head, rotated), || {
        let (c, s) = rotate(&k, k.at(turns, j), position, a, b);
        k.set(x, c);
        k.set(y, s);
    });
    k.if_(k.lt(head, heads), || {
        k.store_n(source, &[x, y]);
        k.exit();
    });
    let is_key = k.lt(head, rotated);
    let kv_head = k.sub(k.sub(head, heads), k.select(is_key, 0u32, kv_heads));
    let row = k.mad(kv_head, context, position);
    store_pair(&k, k.select_ptr(is_key, keys, values), scales_at, (row, half_dim, j), [x, y]);
    k
}
