//! The vector operations of a chunk: norms, rotary positions and the write into the key/value cache.
//!
//! The same recorded launches serve every chunk of a size: results past the chunk's end are computed and not
//! used.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::cache::{PAGE, numbers, row, scales, store_pair};
use crate::kernels::inverse_root::inverse_root;
use crate::kernels::prompt::chunk::{COUNT_AT, page};
use crate::kernels::prompt::dequantize::store_rounded;
use crate::kernels::rotation::rotate;

/// Threads of a block of `prompt_norm`, which takes one token.
pub const NORM_THREADS: u32 = 512;
/// Threads of a block of `prompt_expand`.
pub const EXPAND_THREADS: u32 = 128;
/// Positions that a block of `prompt_expand` converts at a time.
pub const EXPAND_POSITIONS: u32 = 64;
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
    /// values to the pages of the chunk's sequence. Grid: `[pairs of a token / ROPE_THREADS, tokens]`.
    /// `prompt_rope_q8_0` takes another parameter, `scales_at`.
    pub struct PromptRope(kv: CacheType) {
        qkv: Ptr<f32, 16>, turns: Ptr<u64, 16>, prompt: Ptr<u32, 16>, q: Ptr<f16, 16>,
        keys: Ptr<f16, 16>, values: Ptr<f16, 16>,
        heads: u32, kv_heads: u32, half_dim: u32, tables: Ptr<u32, 16>,
        shares: u32, share_pitch: u32, factor: f32,
        scales_at: Option<Multiple> = (kv == CacheType::Q8_0).then_some(BLOCK),
    }
}

pub(crate) fn rope(kv: CacheType) -> Kernel {
    let k = Kernel::new(&format!("prompt_rope{}", kv.suffix()));
    k.max_threads(ROPE_THREADS);
    let p = PromptRope::declare(&k, kv);
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
    let row = row(&k, page(&k, p.tables, p.prompt, position), (kv_head, p.kv_heads), position);
    store_pair(&k, k.select_ptr(is_key, p.keys, p.values), p.scales_at, (row, p.half_dim, j), [x, y]);
    k
}

kernel_params! {
    /// `prompt_expand`: converts the keys and values of a chunk's sequence up to the chunk's end from caches in
    /// q8_0, times the factors, to caches in f16 whose pages are in order, rounded to nearest. Grid: `[any,
    /// kv_heads, 2]`.
    pub struct Expand {
        keys: Ptr<u8, 16>, values: Ptr<u8, 16>, prompt: Ptr<u32, 16>, tables: Ptr<u32, 16>,
        expanded_keys: Ptr<f16, 16>, expanded_values: Ptr<f16, 16>,
        kv_heads: u32, head_dim: Multiple = BLOCK, key_factor: f32, value_factor: f32,
        scales_at: Multiple = BLOCK,
    }
}

pub(crate) fn expand() -> Kernel {
    let k = Kernel::new("prompt_expand");
    k.max_threads(EXPAND_THREADS);
    let p = Expand::declare(&k);
    let (tid, head) = (k.special(Special::TidX), k.special(Special::CtaidY));
    let is_key = k.eq(k.special(Special::CtaidZ), 0);
    let cache = k.select_ptr(is_key, p.keys, p.values);
    let out = k.select_ptr(is_key, p.expanded_keys, p.expanded_values);
    let factor = k.select(is_key, p.key_factor, p.value_factor);
    let end = k.add(k.load(p.prompt), k.load(p.prompt.plus(COUNT_AT)));
    let stride = k.mul(k.special(Special::NctaidX), EXPAND_POSITIONS);
    let begin = k.mul(k.special(Special::CtaidX), EXPAND_POSITIONS);
    // All positions of a turn are of one page.
    k.for_(begin, end, stride, |first: Reg<u32>| {
        let row_of = |page| row(&k, page, (head, p.kv_heads), first);
        let from = row_of(page(&k, p.tables, p.prompt, first));
        let out = k.row(out, row_of(k.shr(first, PAGE.trailing_zeros())), p.head_dim);
        let quants = k.row(cache, from, p.head_dim);
        let scales = k.row(scales(&k, cache, p.scales_at), from, k.halve(p.head_dim, BLOCK.trailing_zeros()));
        let rows = k.min(k.sub(end, first), EXPAND_POSITIONS);
        let pieces = k.mul(rows, k.halve(p.head_dim, 4).reg());
        k.for_(tid, pieces, EXPAND_THREADS, |piece: Reg<u32>| {
            expand_piece(&k, (quants, scales), out, piece, factor);
        });
    });
    k
}

/// Converts a piece of 16 values of a cache in q8_0, times `factor`, to f16, rounded to nearest. `quants`, `scales`
/// and `out` are where piece 0 is.
fn expand_piece(
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
