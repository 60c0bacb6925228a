//! Pages in the kernels of prompts: a chunk's keys and values are written to pages, and attention reads a
//! layer's keys and values from a copy in one piece.

use half::f16;
use ptxgen::{Cache, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Special, kernel_params};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::cache::scales;
use crate::kernels::columns::state::PAGE;
use crate::kernels::prompt::chunk::{COUNT_AT, TABLE_AT};
use crate::kernels::prompt::vector::{CachedRow, expand_piece, rope_to};

/// Module of the kernels.
pub const NAME: &str = "prompt_pages";
/// Threads of a block of `prompt_gather`.
pub const GATHER_THREADS: u32 = 128;
/// Positions that a block of `prompt_gather` copies at a time.
pub const GATHER_POSITIONS: u32 = 64;

/// The number in the cache of the page with `position` of a chunk's sequence.
fn page(
    k: &Kernel,
    tables: Pointer<Global, u32>,
    prompt: Pointer<Global, u32>,
    position: Reg<u32>,
) -> Reg<u32> {
    let first = k.load(prompt.plus(TABLE_AT));
    k.load(k.at(tables, k.add(first, k.shr(position, PAGE.trailing_zeros()))))
}

/// The row of `position` of head `kv_head` in caches `[page][kv_head][PAGE][head_dim]`.
fn row(
    k: &Kernel,
    page: Reg<u32>,
    (kv_head, kv_heads): (Reg<u32>, Reg<u32>),
    position: Reg<u32>,
) -> Reg<u32> {
    k.mad(k.mad(page, kv_heads, kv_head), PAGE, k.and(position, PAGE - 1))
}

/// `prompt_rope_pages` is `prompt_rope` for caches in pages, with `tables` instead of `context`.
pub(crate) fn rope(kv: CacheType) -> Kernel {
    let paged = |k: &Kernel, tables: Pointer<Global, u32>, cached: CachedRow| {
        let CachedRow { prompt, kv_heads, kv_head, position } = cached;
        row(k, page(k, tables, prompt, position), (kv_head, kv_heads), position)
    };
    rope_to(&format!("prompt_rope_pages{}", kv.suffix()), kv, Some(paged))
}

kernel_params! {
    /// `prompt_gather`: copies the keys and values of a chunk's sequence up to the chunk's end to caches
    /// `[kv_head][context][head_dim]` in f16. Grid: `[any, kv_heads, 2]`. `prompt_gather_q8_0` takes
    /// `key_factor`, `value_factor` and `scales_at` too, and converts times the factors, rounded to nearest.
    pub struct Gather(quantized: bool) {
        keys: Ptr<u8, 16>, values: Ptr<u8, 16>, prompt: Ptr<u32, 16>, tables: Ptr<u32, 16>,
        out_keys: Ptr<f16, 16>, out_values: Ptr<f16, 16>,
        kv_heads: u32, context: u32, head_dim: Multiple = if quantized { BLOCK } else { 8 },
        key_factor: Option<f32> = quantized.then_some(()),
        value_factor: Option<f32> = quantized.then_some(()),
        scales_at: Option<Multiple> = quantized.then_some(BLOCK),
    }
}

pub(crate) fn gather(kv: CacheType) -> Kernel {
    let k = Kernel::new(&format!("prompt_gather{}", kv.suffix()));
    k.max_threads(GATHER_THREADS);
    let p = Gather::declare(&k, kv == CacheType::Q8_0);
    let (tid, head) = (k.special(Special::TidX), k.special(Special::CtaidY));
    let is_key = k.eq(k.special(Special::CtaidZ), 0);
    let cache = k.select_ptr(is_key, p.keys, p.values);
    let out = k.select_ptr(is_key, p.out_keys, p.out_values);
    let end = k.add(k.load(p.prompt), k.load(p.prompt.plus(COUNT_AT)));
    let stride = k.mul(k.special(Special::NctaidX), GATHER_POSITIONS);
    let begin = k.mul(k.special(Special::CtaidX), GATHER_POSITIONS);
    // All positions of a turn are of one page.
    k.for_(begin, end, stride, |first: Reg<u32>| {
        let from = row(&k, page(&k, p.tables, p.prompt, first), (head, p.kv_heads), first);
        let out = k.row(out, k.mad(head, p.context, first), p.head_dim);
        let rows = k.min(k.sub(end, first), GATHER_POSITIONS);
        let Some(((key_factor, value_factor), scales_at)) = p.key_factor.zip(p.value_factor).zip(p.scales_at)
        else {
            let own = k.row(cache.cast::<f16>(), from, p.head_dim);
            let pieces = k.mul(rows, k.halve(p.head_dim, 3).reg());
            k.for_(tid, pieces, GATHER_THREADS, |piece: Reg<u32>| {
                let at = k.scale(piece, 8);
                let pairs = k.load_with(k.at(own, at).cast::<F16x2>(), 4, Cache::Default);
                k.store_n(k.at(out, at).cast::<F16x2>(), &pairs);
            });
            return;
        };
        let factor = k.select(is_key, key_factor, value_factor);
        let quants = k.row(cache, from, p.head_dim);
        let scales = k.row(scales(&k, cache, scales_at), from, k.halve(p.head_dim, BLOCK.trailing_zeros()));
        let pieces = k.mul(rows, k.halve(p.head_dim, 4).reg());
        k.for_(tid, pieces, GATHER_THREADS, |piece: Reg<u32>| {
            expand_piece(&k, (quants, scales), out, piece, factor);
        });
    });
    k
}
