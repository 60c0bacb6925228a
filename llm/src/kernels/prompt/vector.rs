//! The vector operations of a chunk: norms, rotary positions and the write into the key/value cache.
//!
//! The same recorded launches serve every chunk of a size: results past the chunk's end are computed and not
//! used.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

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

kernel_params! {
    /// `prompt_norm`: adds the sums of the previous product times `factor`, in `shares` parts that are
    /// `share_pitch` tokens apart, to the residual stream `x`, and writes its RMS norm in f16. A block per
    /// token.
    pub struct PromptNorm {
        x: Ptr<f32, 16>, sums: Ptr<f32, 16>, weight: Ptr<f32, 16>, out: Ptr<f16, 16>,
        len: Multiple = 16, eps: f32, shares: u32, share_pitch: u32, factor: f32,
    }
}

pub(crate) fn norm() -> Kernel {
    let k = Kernel::new("prompt_norm");
    k.max_threads(NORM_THREADS);
    let p = PromptNorm::declare(&k);
    let partial = k.shared::<f32>(NORM_THREADS / 32);
    let (tid, token) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let x = k.row(p.x, token, p.len);
    let chunks = k.halve(p.len, 2).reg();
    let squares = k.var(0f32);
    k.for_(tid, chunks, NORM_THREADS, |c: Reg<u32>| {
        let at = k.scale(c, 4);
        let to = k.at(x, at);
        let values = k.load_with(to, 4, Cache::Default);
        k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
            let part = k.row(p.sums, k.mad(share, p.share_pitch, token), p.len);
            let part = k.load_with(k.at(part, at), 4, Cache::ReadOnly);
            values.iter().zip(part).for_each(|(v, part)| k.mad_to(*v, part, p.factor, *v));
        });
        k.store_n(to, &values);
        values.iter().for_each(|v| k.mad_to(squares, *v, *v, squares));
    });
    let sum = k.warp_sum(squares);
    k.if_(k.eq(k.and(tid, 31), 0), || k.store(k.at(partial, k.shr(tid, 5)), sum));
    k.sync_threads();
    let partials = k.load_with(partial, NORM_THREADS / 32, Cache::Default);
    let sum = partials.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or(sum);
    let mean = k.div(sum, k.convert::<u32, f32>(p.len.reg()));
    let scale = inverse_root(&k, mean, p.eps);
    let out = k.row(p.out, token, p.len);
    k.for_(tid, chunks, NORM_THREADS, |c: Reg<u32>| {
        let at = k.scale(c, 4);
        let values = k.load_with(k.at(x, at), 4, Cache::Default);
        let weights = k.load_with(k.at(p.weight, at), 4, Cache::ReadOnly);
        let scaled: Vec<_> =
            values.into_iter().zip(weights).map(|(v, w)| k.mul(k.mul(v, scale), w)).collect();
        store_rounded(&k, k.at(out, at), &scaled);
    });
    k
}

kernel_params! {
    /// `prompt_rope`: sums `shares` parts of `qkv` that are `share_pitch` tokens apart, writes the rotated
    /// queries of every token, times `factor`, to `q` (f16, `[token][head][dim]`), and rotated keys and
    /// values as f16 at the token's position of `[kv_head][context][head_dim]` caches. Grid: `[pairs of a
    /// token / ROPE_THREADS, tokens]`. `prompt_rope_q8_0` takes another parameter, `scales_at`.
    pub struct PromptRope(kv: CacheType, paged: bool) {
        qkv: Ptr<f32, 16>, turns: Ptr<u64, 16>, prompt: Ptr<u32, 16>, q: Ptr<f16, 16>,
        keys: Ptr<f16, 16>, values: Ptr<f16, 16>,
        heads: u32, kv_heads: u32, half_dim: u32,
        context: Option<u32> = (!paged).then_some(()),
        tables: Option<Ptr<u32, 16>> = paged.then_some(()),
        shares: u32, share_pitch: u32, factor: f32,
        scales_at: Option<Multiple> = (kv == CacheType::Q8_0).then_some(BLOCK),
    }
}

pub(crate) fn rope(kv: CacheType) -> Kernel {
    rope_to(&format!("prompt_rope{}", kv.suffix()), kv, None)
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

/// The number of a vector's row in a cache in pages, whose tables these are.
pub(crate) type PagedRow = fn(&Kernel, Pointer<Global, u32>, CachedRow) -> Reg<u32>;

/// [`rope`], or with `paged` the same for caches in pages, which takes `tables` instead of `context`.
pub(crate) fn rope_to(name: &str, kv: CacheType, paged: Option<PagedRow>) -> Kernel {
    let k = Kernel::new(name);
    k.max_threads(ROPE_THREADS);
    let p = PromptRope::declare(&k, kv, paged.is_some());
    let pair = k.mad(k.special(Special::CtaidX), ROPE_THREADS, k.special(Special::TidX));
    let token = k.special(Special::CtaidY);
    let rotated = k.add(p.heads, p.kv_heads);
    let pairs = k.mul(k.add(rotated, p.kv_heads), p.half_dim);
    let outside = k.ge(token, k.load(p.prompt.plus(COUNT_AT)));
    k.exit_if(k.either(k.ge(pair, pairs), outside));
    let head = k.div(pair, p.half_dim);
    let j = k.sub(pair, k.mul(head, p.half_dim));
    let position = k.add(k.load(p.prompt), token);
    // A token's vector as words of 8 bytes, one per pair.
    let (x, y) = (k.var(0f32), k.var(0f32));
    k.for_(0u32, p.shares, 1u32, |share: Reg<u32>| {
        let line = k.row(p.qkv.cast::<u64>(), k.mad(share, p.share_pitch, token), pairs);
        let part = k.load_with(k.at(line, pair).cast::<f32>(), 2, Cache::ReadOnly);
        k.add_to(x, part[0]);
        k.add_to(y, part[1]);
    });
    k.if_(k.lt(head, rotated), || {
        let (c, s) = rotate(&k, k.at(p.turns, j), position, x, y);
        k.set(x, c);
        k.set(y, s);
    });
    k.if_(k.lt(head, p.heads), || {
        let row = k.row(p.q.cast::<F16x2>(), token, k.mul(p.heads, p.half_dim));
        k.store(k.at(row, pair), k.pack_f32(k.mul(x, p.factor), k.mul(y, p.factor)));
        k.exit();
    });
    let is_key = k.lt(head, rotated);
    let kv_head = k.sub(k.sub(head, p.heads), k.select(is_key, 0u32, p.kv_heads));
    let cached = CachedRow { prompt: p.prompt, kv_heads: p.kv_heads, kv_head, position };
    let row = match (paged.zip(p.tables), p.context) {
        (Some((row, tables)), _) => row(&k, tables, cached),
        (None, Some(context)) => k.mad(kv_head, context, position),
        (None, None) => unreachable!("a cache in pages has tables"),
    };
    store_pair(&k, k.select_ptr(is_key, p.keys, p.values), p.scales_at, (row, p.half_dim, j), [x, y]);
    k
}

kernel_params! {
    /// `prompt_expand`: converts caches in q8_0 up to the chunk's end, times the factors, to caches in f16,
    /// rounded to nearest. Grid: `[any, kv_heads, 2]`.
    pub struct Expand {
        keys: Ptr<u8, 16>, values: Ptr<u8, 16>, prompt: Ptr<u32, 16>, expanded_keys: Ptr<f16, 16>,
        expanded_values: Ptr<f16, 16>,
        context: u32, head_dim: Multiple = BLOCK, key_factor: f32, value_factor: f32,
        scales_at: Multiple = BLOCK,
    }
}

pub(crate) fn expand() -> Kernel {
    let k = Kernel::new("prompt_expand");
    k.max_threads(EXPAND_THREADS);
    let p = Expand::declare(&k);
    let head = k.special(Special::CtaidY);
    let is_key = k.eq(k.special(Special::CtaidZ), 0);
    let first = k.mul(head, p.context);
    let cache = k.select_ptr(is_key, p.keys, p.values);
    let factor = k.select(is_key, p.key_factor, p.value_factor);
    let quants = k.row(cache, first, p.head_dim);
    let scales = k.row(scales(&k, cache, p.scales_at), first, k.halve(p.head_dim, 5));
    let out = k.row(k.select_ptr(is_key, p.expanded_keys, p.expanded_values), first, p.head_dim);
    // The rows of a head are contiguous, so its pieces of 16 values are too.
    let end = k.add(k.load(p.prompt), k.load(p.prompt.plus(COUNT_AT)));
    let pieces = k.mul(end, k.halve(p.head_dim, 4).reg());
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

kernel_params! {
    /// `prompt_last`: copies the vector of the chunk's last token from `x` to `out`.
    pub struct Last { x: Ptr<f32, 16>, prompt: Ptr<u32, 16>, out: Ptr<f32, 16>, len: Multiple = 16 }
}

pub(crate) fn last() -> Kernel {
    let k = Kernel::new("prompt_last");
    k.max_threads(NORM_THREADS);
    let p = Last::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), NORM_THREADS, k.special(Special::TidX));
    k.exit_if(k.ge(i, p.len.reg()));
    let row = k.row(p.x, k.sub(k.load(p.prompt.plus(COUNT_AT)), 1), p.len);
    k.store(k.at(p.out, i), k.load(k.at(row, i)));
    k
}
