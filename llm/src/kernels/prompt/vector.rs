//! The vector operations of a chunk: norms, rotary positions and the write into the key/value cache.
//!
//! The same recorded launches serve every chunk of a size: results past the chunk's end are computed and not
//! used.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Pointer, Reg, Special};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::cache::{numbers, scales, store_pair};
use crate::kernels::inverse_root::inverse_root;
use crate::kernels::prompt::chunk::COUNT_AT;
use crate::kernels::prompt::dequantize::store_rounded;
use crate::kernels::rotation::rotate;

/// Threads of a block of `prompt_norm`, which takes one token.
pub const NORM_THREADS: u32 = 512;
/// Threads of a block of `prompt_expand`.
pub const EXPAND_THREADS: u32 = 128;
/// Threads of a block of `prompt_rope`.
pub const ROPE_THREADS: u32 = 128;

/// `prompt_norm(x, sums, weight, out, len, eps, shares, share_pitch, factor)`: adds the sums of the previous
/// product times `factor`, in `shares` parts that are `share_pitch` tokens apart, to the residual stream `x`,
/// and writes its RMS norm in f16. A block per token.
pub(crate) fn norm() -> Kernel {
    let k = Kernel::new("prompt_norm");
    k.max_threads(NORM_THREADS);
    let x = k.param_ptr::<f32>("x", 16);
    let sums = k.param_ptr::<f32>("sums", 16);
    let weight = k.param_ptr::<f32>("weight", 16);
    let out = k.param_ptr::<f16>("out", 16);
    let len = k.param_multiple("len", 16);
    let eps = k.param::<f32>("eps");
    let shares = k.param::<u32>("shares");
    let share_pitch = k.param::<u32>("share_pitch");
    let factor = k.param::<f32>("factor");
    let partial = k.shared::<f32>(NORM_THREADS / 32);
    let (tid, token) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let x = k.row(x, token, len);
    let chunks = k.halve(len, 2).reg();
    let squares = k.var(0f32);
    k.for_(tid, chunks, NORM_THREADS, |c: Reg<u32>| {
        let at = k.scale(c, 4);
        let to = k.at(x, at);
        let values = k.load_with(to, 4, Cache::Default);
        k.for_(0u32, shares, 1u32, |share: Reg<u32>| {
            let part = k.row(sums, k.mad(share, share_pitch, token), len);
            let part = k.load_with(k.at(part, at), 4, Cache::ReadOnly);
            values.iter().zip(part).for_each(|(v, p)| k.mad_to(*v, p, factor, *v));
        });
        k.store_n(to, &values);
        values.iter().for_each(|v| k.mad_to(squares, *v, *v, squares));
    });
    let sum = k.warp_sum(squares);
    k.if_(k.eq(k.and(tid, 31), 0), || k.store(k.at(partial, k.shr(tid, 5)), sum));
    k.sync_threads();
    let partials = k.load_with(partial, NORM_THREADS / 32, Cache::Default);
    let sum = partials.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or(sum);
    let mean = k.div(sum, k.convert::<u32, f32>(len.reg()));
    let scale = inverse_root(&k, mean, eps);
    let out = k.row(out, token, len);
    k.for_(tid, chunks, NORM_THREADS, |c: Reg<u32>| {
        let at = k.scale(c, 4);
        let values = k.load_with(k.at(x, at), 4, Cache::Default);
        let weights = k.load_with(k.at(weight, at), 4, Cache::ReadOnly);
        let scaled: Vec<_> =
            values.into_iter().zip(weights).map(|(v, w)| k.mul(k.mul(v, scale), w)).collect();
        store_rounded(&k, k.at(out, at), &scaled);
    });
    k
}

/// `prompt_rope(qkv, turns, prompt, q, keys, values, heads, kv_heads, half_dim, context, shares, share_pitch,
/// factor)`: sums `shares` parts of `qkv` that are `share_pitch` tokens apart, writes the rotated queries of
/// every token, times `factor`, to `q` (f16, `[token][head][dim]`), and rotated keys and values as f16 at the
/// token's position of `[kv_head][context][head_dim]` caches. Grid: `[pairs of a token / ROPE_THREADS,
/// tokens]`. `prompt_rope_q8_0` takes another parameter, `scales_at`.
pub(crate) fn rope(kv: CacheType) -> Kernel {
    rope_to(&format!("prompt_rope{}", kv.suffix()), kv, |k| {
        let context = k.param::<u32>("context");
        move |k: &Kernel, CachedRow { kv_head, position, .. }: CachedRow| k.mad(kv_head, context, position)
    })
}

/// A key or a value vector of a chunk that is written to the cache.
#[derive(Clone, Copy)]
pub(crate) struct CachedRow {
    /// The chunk, whose words are those of [`chunk`](crate::kernels::prompt::chunk).
    pub prompt: Pointer<Global, u32>,
    /// Heads of keys and values.
    pub kv_heads: Reg<u32>,
    /// Its head.
    pub kv_head: Reg<u32>,
    /// Its position in the sequence.
    pub position: Reg<u32>,
}

/// [`rope`] with the number of a vector's row in the cache by the function that `rows` returns; `rows`
/// declares the parameters that it takes, where `rope` has `context`.
pub(crate) fn rope_to<F: Fn(&Kernel, CachedRow) -> Reg<u32>>(
    name: &str,
    kv: CacheType,
    rows: impl FnOnce(&Kernel) -> F,
) -> Kernel {
    let k = Kernel::new(name);
    k.max_threads(ROPE_THREADS);
    let qkv = k.param_ptr::<f32>("qkv", 16);
    let turns = k.param_ptr::<u64>("turns", 16);
    let prompt = k.param_ptr::<u32>("prompt", 16);
    let q = k.param_ptr::<f16>("q", 16);
    let keys = k.param_ptr::<f16>("keys", 16);
    let values = k.param_ptr::<f16>("values", 16);
    let heads = k.param::<u32>("heads");
    let kv_heads = k.param::<u32>("kv_heads");
    let half_dim = k.param::<u32>("half_dim");
    let row = rows(&k);
    let shares = k.param::<u32>("shares");
    let share_pitch = k.param::<u32>("share_pitch");
    let factor = k.param::<f32>("factor");
    let scales_at = (kv == CacheType::Q8_0).then(|| k.param_multiple("scales_at", BLOCK));
    let pair = k.mad(k.special(Special::CtaidX), ROPE_THREADS, k.special(Special::TidX));
    let token = k.special(Special::CtaidY);
    let rotated = k.add(heads, kv_heads);
    let pairs = k.mul(k.add(rotated, kv_heads), half_dim);
    let outside = k.ge(token, k.load(prompt.plus(COUNT_AT)));
    k.exit_if(k.either(k.ge(pair, pairs), outside));
    let head = k.div(pair, half_dim);
    let j = k.sub(pair, k.mul(head, half_dim));
    let position = k.add(k.load(prompt), token);
    // A token's vector as words of 8 bytes, one per pair.
    let (x, y) = (k.var(0f32), k.var(0f32));
    k.for_(0u32, shares, 1u32, |share: Reg<u32>| {
        let line = k.row(qkv.cast::<u64>(), k.mad(share, share_pitch, token), pairs);
        let part = k.load_with(k.at(line, pair).cast::<f32>(), 2, Cache::ReadOnly);
        k.add_to(x, part[0]);
        k.add_to(y, part[1]);
    });
    k.if_(k.lt(head, rotated), || {
        let (c, s) = rotate(&k, k.at(turns, j), position, x, y);
        k.set(x, c);
        k.set(y, s);
    });
    k.if_(k.lt(head, heads), || {
        let row = k.row(q.cast::<F16x2>(), token, k.mul(heads, half_dim));
        k.store(k.at(row, pair), k.pack_f32(k.mul(x, factor), k.mul(y, factor)));
        k.exit();
    });
    let is_key = k.lt(head, rotated);
    let kv_head = k.sub(k.sub(head, heads), k.select(is_key, 0u32, kv_heads));
    let row = row(&k, CachedRow { prompt, kv_heads, kv_head, position });
    store_pair(&k, k.select_ptr(is_key, keys, values), scales_at, (row, half_dim, j), [x, y]);
    k
}

/// `prompt_expand(keys, values, prompt, expanded_keys, expanded_values, context, head_dim, key_factor,
/// value_factor, scales_at)`: converts caches in q8_0 up to the chunk's end, times the factors, to caches in
/// f16, rounded to nearest. Grid: `[any, kv_heads, 2]`.
pub(crate) fn expand() -> Kernel {
    let k = Kernel::new("prompt_expand");
    k.max_threads(EXPAND_THREADS);
    let keys = k.param_ptr::<u8>("keys", 16);
    let values = k.param_ptr::<u8>("values", 16);
    let prompt = k.param_ptr::<u32>("prompt", 16);
    let expanded_keys = k.param_ptr::<f16>("expanded_keys", 16);
    let expanded_values = k.param_ptr::<f16>("expanded_values", 16);
    let context = k.param::<u32>("context");
    let head_dim = k.param_multiple("head_dim", BLOCK);
    let (key_factor, value_factor) = (k.param::<f32>("key_factor"), k.param::<f32>("value_factor"));
    let scales_at = k.param_multiple("scales_at", BLOCK);
    let head = k.special(Special::CtaidY);
    let is_key = k.eq(k.special(Special::CtaidZ), 0);
    let first = k.mul(head, context);
    let cache = k.select_ptr(is_key, keys, values);
    let factor = k.select(is_key, key_factor, value_factor);
    let quants = k.row(cache, first, head_dim);
    let scales = k.row(scales(&k, cache, scales_at), first, k.halve(head_dim, 5));
    let out = k.row(k.select_ptr(is_key, expanded_keys, expanded_values), first, head_dim);
    // The rows of a head are contiguous, so its pieces of 16 values are too.
    let end = k.add(k.load(prompt), k.load(prompt.plus(COUNT_AT)));
    let pieces = k.mul(end, k.halve(head_dim, 4).reg());
    let thread = k.mad(k.special(Special::CtaidX), EXPAND_THREADS, k.special(Special::TidX));
    let stride = k.mul(k.special(Special::NctaidX), EXPAND_THREADS);
    k.for_(thread, pieces, stride, |piece: Reg<u32>| {
        expand_piece(&k, (quants, scales), out, piece, factor);
    });
    k
}

/// Converts a piece of 16 values of a cache in q8_0, times `factor`, to f16, rounded to nearest. `quants`, `scales`
/// and `out` are where piece 0 is.
pub(crate) fn expand_piece(
    k: &Kernel,
    (quants, scales): (Pointer<Global, u8>, Pointer<Global, f16>),
    out: Pointer<Global, f16>,
    piece: Reg<u32>,
    factor: Reg<f32>,
) {
    let at = k.scale(piece, 16);
    let words = k.load_with(k.at(quants, at).cast::<u32>(), 4, Cache::Default);
    let scale = k.mul(k.convert::<f16, f32>(k.load(k.at(scales, k.shr(piece, 1)))), factor);
    let numbers: Vec<_> = words.into_iter().flat_map(|word| numbers(k, word)).collect();
    let scaled: Vec<_> = numbers.into_iter().map(|n| k.mul(n, scale)).collect();
    store_rounded(k, k.at(out, at), &scaled);
}

/// `prompt_last(x, prompt, out, len)`: copies the vector of the chunk's last token from `x` to `out`.
pub(crate) fn last() -> Kernel {
    let k = Kernel::new("prompt_last");
    k.max_threads(NORM_THREADS);
    let x = k.param_ptr::<f32>("x", 16);
    let prompt = k.param_ptr::<u32>("prompt", 16);
    let out = k.param_ptr::<f32>("out", 16);
    let len = k.param_multiple("len", 16);
    let i = k.mad(k.special(Special::CtaidX), NORM_THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, len.reg()));
    let row = k.row(x, k.sub(k.load(prompt.plus(COUNT_AT)), 1), len);
    k.store(k.at(out, i), k.load(k.at(row, i)));
    k
}
