//! The vector operations of a batch step: embedding, norms, rotary positions and the write into
//! the cache, SiLU, the choice of tokens. A block takes a column or a part of one.

use half::f16;
use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Reg, Special, Target};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::activation::silu_times;
use crate::kernels::cache::store_pair;
use crate::kernels::columns::fragments::{place, store};
use crate::kernels::columns::state::{NONE, PAGE, WORDS, column, page};
use crate::kernels::format::{Format, TILE_COLS};
use crate::kernels::inverse_root::inverse_root;
use crate::kernels::links::after_previous;
use crate::kernels::rotation::rotate;
use crate::kernels::state::{block_best, take_better, warp_best};

/// Threads of a block of all kernels here but `columns_norm` and `columns_choose`.
pub const THREADS: u32 = 128;
/// Threads of a block of `columns_norm`.
pub const NORM_THREADS: u32 = 512;
/// Blocks of a column of `columns_argmax`.
pub const ARGMAX_BLOCKS: u32 = 32;
/// Values of a lane where a warp has a tile.
const OWN: u32 = TILE_COLS / 32;

/// Blocks of a column where each warp takes a tile of `len` values.
pub const fn tile_blocks(len: u32) -> u32 {
    len.div_ceil(TILE_COLS).div_ceil(THREADS / 32)
}

/// `columns_embed_SUFFIX(weights, from, state, out, rows, cols)`: the embedding rows of the columns' tokens,
/// in f32. `from` is the state of the columns where the host writes it; the other kernels read `state`. Grid:
/// `[columns]`.
pub(crate) fn embed(format: Format, target: Target) -> Kernel {
    let k = Kernel::new(&format!("columns_embed_{}", format.suffix()));
    k.max_threads(THREADS);
    let weights = format.param(&k);
    let from = k.param_ptr::<u32>("from", 16);
    let state = k.param_ptr::<u32>("state", 16);
    let out = k.param_ptr::<f32>("out", 16);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());
    let (tid, number) = (k.special(Special::TidX), k.special(Special::CtaidX));
    after_previous(&k, target);
    let words = k.load_n::<4, _, _>(k.at_stride(from, number, 4 * WORDS), Cache::Default);
    k.if_(k.eq(tid, 0), || k.store_n(k.at_stride(state, number, 4 * WORDS), &words));
    let [token, position, ..] = words;
    k.exit_if(k.eq(position, NONE));
    let row = format.row(&k, weights, k.min(token, k.sub(rows, 1)), cols);
    let to = k.row(out, number, cols);
    let units = k.halve(cols, format.unit().trailing_zeros()).reg();
    k.for_(tid, units, THREADS, |unit: Reg<u32>| {
        let packed = format.fetch(&k, &row, unit);
        for (start, values) in format.runs(&k, unit).into_iter().zip(format.weights(&k, &packed)) {
            k.store_n(k.at(to, start), &values);
        }
    });
    k
}

/// The sums of a product of several columns, `[share][column][value]`.
pub(super) struct Sums {
    values: Pointer<Global, f32>,
    shares: Reg<u32>,
    columns: Reg<u32>,
    pitch: Multiple,
}

impl Sums {
    /// The kernel's parameters of them: `shares`, `columns`.
    fn new(k: &Kernel, values: Pointer<Global, f32>, pitch: Multiple) -> Self {
        Self { values, shares: k.param("shares"), columns: k.param("columns"), pitch }
    }

    /// Adds the split-K parts of neighbouring values of a column from `index` on to `values`, in their order.
    fn add(&self, k: &Kernel, column: Reg<u32>, index: Multiple, values: &[Reg<f32>]) {
        k.for_(0u32, self.shares, 1u32, |share: Reg<u32>| {
            let line = k.row(self.values, k.mad(share, self.columns, column), self.pitch);
            let part = k.load_with(k.at(line, index), values.len() as u32, Cache::ReadOnly);
            values.iter().zip(part).for_each(|(value, part)| k.add_to(*value, part));
        });
    }
}

fn zeros(k: &Kernel) -> Vec<Reg<f32>> {
    (0..OWN).map(|_| k.var(0f32)).collect()
}

/// `columns_norm(state, x, sums, weight, out, len, eps, shares, columns)`: adds the sums of the previous
/// product to the residual stream `x` (f32, `[column][len]`), and writes its RMS norm as fragments. Grid:
/// `[columns]`.
pub(crate) fn norm(target: Target) -> Kernel {
    let k = Kernel::new("columns_norm");
    k.max_threads(NORM_THREADS);
    let state = k.param_ptr::<u32>("state", 16);
    let x = k.param_ptr::<f32>("x", 16);
    let sums = k.param_ptr::<f32>("sums", 16);
    let weight = k.param_ptr::<f32>("weight", 16);
    let out = k.param_ptr::<u8>("out", 16);
    let len = k.param_multiple("len", OWN);
    let eps = k.param::<f32>("eps");
    let sums = Sums::new(&k, sums, len);
    let warps = NORM_THREADS / 32;
    let partial = k.shared::<f32>(warps);
    let (tid, number) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    column(&k, target, state, number);
    let x = k.row(x, number, len);
    let tiles = k.shr(k.add(len.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let own = |tile: Reg<u32>| k.sum(k.scale(tile, TILE_COLS), k.scale(lane, OWN));
    let squares = k.var(0f32);
    k.for_(warp, tiles, warps, |tile: Reg<u32>| {
        let at = own(tile);
        k.if_(k.lt(at.reg(), len.reg()), || {
            let values = k.load_with(k.at(x, at), OWN, Cache::Default);
            sums.add(&k, number, at, &values);
            k.store_n(k.at(x, at), &values);
            values.iter().for_each(|v| k.mad_to(squares, *v, *v, squares));
        });
    });
    let sum = k.warp_sum(squares);
    k.if_(k.eq(lane, 0), || k.store(k.at(partial, warp), sum));
    k.sync_threads();
    let partials = k.load_with(partial, warps, Cache::Default);
    let sum = partials.into_iter().reduce(|a, b| k.add(a, b)).unwrap_or(sum);
    let mean = k.div(sum, k.convert::<u32, f32>(len.reg()));
    let scale = inverse_root(&k, mean, eps);
    k.for_(warp, tiles, warps, |tile: Reg<u32>| {
        let (at, values) = (own(tile), zeros(&k));
        k.if_(k.lt(at.reg(), len.reg()), || {
            let own = k.load_with(k.at(x, at), OWN, Cache::Default);
            let weights = k.load_with(k.at(weight, at), OWN, Cache::ReadOnly);
            for ((value, own), weight) in values.iter().zip(own).zip(weights) {
                k.set(*value, k.mul(k.mul(own, scale), weight));
            }
        });
        let columns = k.special(Special::NctaidX);
        store(&k, place(&k, out, number, (tile, columns)), number, lane, &values);
    });
    k
}

/// `columns_act(state, sums, out, len, shares, columns)`: `silu(gate) · up` as fragments; `sums` have `len`
/// gate values, then as many up values. Grid: `[tile_blocks(len), columns]`.
pub(crate) fn act(target: Target) -> Kernel {
    let k = Kernel::new("columns_act");
    k.max_threads(THREADS);
    let state = k.param_ptr::<u32>("state", 16);
    let sums = k.param_ptr::<f32>("sums", 16);
    let out = k.param_ptr::<u8>("out", 16);
    let len = k.param_multiple("len", OWN);
    let sums = Sums::new(&k, sums, k.scale(len, 2));
    let (tid, number) = (k.special(Special::TidX), k.special(Special::CtaidY));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    column(&k, target, state, number);
    let tiles = k.shr(k.add(len.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let tile = k.mad(k.special(Special::CtaidX), THREADS / 32, warp);
    k.exit_if(k.ge(tile, tiles));
    let (at, values) = (k.sum(k.scale(tile, TILE_COLS), k.scale(lane, OWN)), zeros(&k));
    k.if_(k.lt(at.reg(), len.reg()), || {
        let (gate, up) = (zeros(&k), zeros(&k));
        sums.add(&k, number, at, &gate);
        sums.add(&k, number, k.sum(at, len), &up);
        for ((value, gate), up) in values.iter().zip(gate).zip(up) {
            k.set(*value, silu_times(&k, gate, up));
        }
    });
    let columns = k.special(Special::NctaidY);
    store(&k, place(&k, out, number, (tile, columns)), number, lane, &values);
    k
}

/// `columns_rope(state, tables, sums, turns, q, keys, values, heads, kv_heads, half_dim, table_pitch, shares,
/// columns)`: adds the shares of queries, keys and values, writes the rotated queries to `q` (f32,
/// `[column][head][dim]`), and rotated keys and values at the column's position of caches
/// `[page][kv_head][PAGE][head_dim]`. Grid: `[pairs of a column / THREADS, columns]`. `columns_rope_q8_0`
/// takes another parameter, `scales_at`.
pub(crate) fn rope(kv: CacheType, target: Target) -> Kernel {
    let k = Kernel::new(&format!("columns_rope{}", kv.suffix()));
    k.max_threads(THREADS);
    let state = k.param_ptr::<u32>("state", 16);
    let tables = k.param_ptr::<u32>("tables", 16);
    let sums = k.param_ptr::<f32>("sums", 16);
    let turns = k.param_ptr::<u64>("turns", 16);
    let q = k.param_ptr::<f32>("q", 16);
    let keys = k.param_ptr::<f16>("keys", 16);
    let values = k.param_ptr::<f16>("values", 16);
    let heads = k.param::<u32>("heads");
    let kv_heads = k.param::<u32>("kv_heads");
    let half_dim = k.param::<u32>("half_dim");
    let table_pitch = k.param::<u32>("table_pitch");
    let rotated = k.add(heads, kv_heads);
    let pairs = k.mul(k.add(rotated, kv_heads), half_dim);
    let sums = Sums::new(&k, sums, k.scale(pairs, 2));
    let scales_at = (kv == CacheType::Q8_0).then(|| k.param_multiple("scales_at", BLOCK));
    let pair = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let own = column(&k, target, state, k.special(Special::CtaidY));
    k.exit_if(k.ge(pair, pairs));
    let head = k.div(pair, half_dim);
    let j = k.sub(pair, k.mul(head, half_dim));
    let (x, y) = (k.var(0f32), k.var(0f32));
    sums.add(&k, own.number, k.scale(pair, 2), &[x, y]);
    k.if_(k.lt(head, rotated), || {
        let (c, s) = rotate(&k, k.at(turns, j), own.position, x, y);
        k.set(x, c);
        k.set(y, s);
    });
    k.if_(k.lt(head, heads), || {
        let line = k.row(q, own.number, k.scale(k.mul(heads, half_dim), 2));
        k.store_n(k.at(line, k.scale(pair, 2)), &[x, y]);
        k.exit();
    });
    let is_key = k.lt(head, rotated);
    let kv_head = k.sub(k.sub(head, heads), k.select(is_key, 0u32, kv_heads));
    let page = page(&k, tables, table_pitch, own, k.shr(own.position, PAGE.trailing_zeros()));
    let row = k.mad(k.mad(page, kv_heads, kv_head), PAGE, k.and(own.position, PAGE - 1));
    store_pair(&k, k.select_ptr(is_key, keys, values), scales_at, (row, half_dim, j), [x, y]);
    k
}

/// `columns_argmax(state, logits, best_values, best_indices, count)`: one candidate per block. Grid:
/// `[ARGMAX_BLOCKS, columns]`.
pub(crate) fn argmax(target: Target) -> Kernel {
    let k = Kernel::new("columns_argmax");
    k.max_threads(THREADS);
    let state = k.param_ptr::<u32>("state", 16);
    let logits = k.param_ptr::<f32>("logits", 4);
    let values = k.param_ptr::<f32>("best_values", 4);
    let indices = k.param_ptr::<u32>("best_indices", 4);
    let count = k.param::<u32>("count");
    let partial = (k.shared::<f32>(THREADS / 32), k.shared::<u32>(THREADS / 32));
    let (tid, block) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let number = k.special(Special::CtaidY);
    column(&k, target, state, number);
    let logits = k.row(logits, number, count);
    let best = block_best(&k, THREADS, partial, (tid, block), (logits, count));
    let to = k.mad(number, k.special(Special::NctaidX), block);
    k.store(k.at(values, to), best.0);
    k.store(k.at(indices, to), best.1);
    k
}

/// `columns_choose(state, best_values, best_indices, tokens, candidates)`: the best of the candidates of each
/// column; `NONE` if no logit is a number. Grid: `[columns]`, a warp each.
pub(crate) fn choose(target: Target) -> Kernel {
    let k = Kernel::new("columns_choose");
    k.max_threads(32);
    let state = k.param_ptr::<u32>("state", 16);
    let values = k.param_ptr::<f32>("best_values", 4);
    let indices = k.param_ptr::<u32>("best_indices", 4);
    let tokens = k.param_ptr::<u32>("tokens", 4);
    let candidates = k.param::<u32>("candidates");
    let (lane, number) = (k.special(Special::LaneId), k.special(Special::CtaidX));
    column(&k, target, state, number);
    let (values, indices) = (k.row(values, number, candidates), k.row(indices, number, candidates));
    let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
    k.for_(lane, candidates, 32u32, |i: Reg<u32>| {
        take_better(&k, best, (k.load(k.at(values, i)), k.load(k.at(indices, i))));
    });
    warp_best(&k, best);
    k.if_(k.eq(lane, 0), || k.store(k.at(tokens, number), best.1));
    k
}
