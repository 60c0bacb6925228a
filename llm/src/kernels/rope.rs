//! Rotary positions of queries and keys, and the write into the key/value cache.
//!
//! Angles are kept in turns as 64-bit fixed-point fractions: the position times the step wraps by itself, so an angle at
//! position 100,000 is as exact as one at position 1.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Reg, Special};

use super::cache::{BLOCK, CacheType, store_quantized_pair};

/// Threads of a block.
pub const THREADS: u32 = 128;

/// The step of one pair per position, as a fraction of a turn times 2^64.
pub fn turns(radians_per_position: f64) -> u64 {
    let turns = (radians_per_position / std::f64::consts::TAU).rem_euclid(1.0);
    // Below 2^64: at most the last f64 below one turn. Casts of floats saturate.
    (turns * 2f64.powi(64)) as u64
}

/// `rope_cache(qkv, turns, state, keys, values, heads, kv_heads, half_dim, context)`: rotates the queries in place, rotates the keys
/// and writes keys and values as f16 at the current position of `[kv_head][context][head_dim]` caches. `turns` has one step
/// per pair of a head, zero for pairs that do not rotate. Pairs are neighbours (2j, 2j + 1). `rope_cache_q8_0` takes another
/// parameter, `scales_at`.
pub(super) fn kernel(kv: CacheType) -> Kernel {
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

/// Writes this lane's pair `j` of row `row` of `half_dim` pairs to a cache: in f16, or in q8_0 if it has scales; then the lanes of
/// a block must all be here.
pub(super) fn store_pair(
    k: &Kernel,
    cache: Pointer<Global, f16>,
    scales_at: Option<Multiple>,
    (row, half_dim, j): (Reg<u32>, Reg<u32>, Reg<u32>),
    [x, y]: [Reg<f32>; 2],
) {
    match scales_at {
        None => k.store(k.at(k.row(cache.cast::<F16x2>(), row, half_dim), j), k.pack_f32(x, y)),
        Some(at) => store_quantized_pair(k, cache.cast(), at, (row, half_dim, j), [x, y]),
    }
}

/// The pair `(a, b)` turned by `position` times the step at `turns`.
pub(super) fn rotate(
    k: &Kernel,
    turns: Pointer<Global, u64>,
    position: Reg<u32>,
    a: Reg<f32>,
    b: Reg<f32>,
) -> (Reg<f32>, Reg<f32>) {
    rotate_by(k, k.load_with(turns, 1, Cache::ReadOnly)[0], position, a, b)
}

/// The pair `(a, b)` turned by `position` times `step`.
pub(super) fn rotate_by(
    k: &Kernel,
    step: Reg<u64>,
    position: Reg<u32>,
    a: Reg<f32>,
    b: Reg<f32>,
) -> (Reg<f32>, Reg<f32>) {
    let fraction = k.mul(step, k.convert::<u32, u64>(position));
    // The upper half as a signed number is the angle within half a turn either way.
    let upper = k.bits::<u32, i32>(k.convert::<u64, u32>(k.shr(fraction, 32)));
    let radians = k.mul(k.convert::<i32, f32>(upper), (std::f64::consts::TAU / 2f64.powi(32)) as f32);
    let (sin, cos) = (k.sin(radians), k.cos(radians));
    (k.mad(a, cos, k.neg(k.mul(b, sin))), k.mad(a, sin, k.mul(b, cos)))
}
