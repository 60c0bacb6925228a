//! The vector operations of a batch step: embedding, positions, norms, rotation and the write into the cache,
//! activations, the choice of tokens. A block takes a column or a part of one.

use half::f16;
use ptxgen::{
    Cache, Global, Kernel, Late, Multiple, Pointer, Ptr, Reg, Shared, Special, Target, kernel_params,
};

use crate::cache::{BLOCK, CacheType};
use crate::kernels::activation::{gelu, silu_times};
use crate::kernels::cache::{PAGE, row, store_pair};
use crate::kernels::columns::fragments::{place, store};
use crate::kernels::columns::state::{Column, NONE, WORDS, column, page};
use crate::kernels::format::{Format, TILE_COLS};
use crate::kernels::inverse_root::inverse_root;
use crate::kernels::layers::sum::block_sum;
use crate::kernels::links::after_previous;
use crate::kernels::rotation::rotate;
use crate::kernels::state::{block_best, take_better, warp_best};
use crate::model::architecture::Activation;

/// Threads of a block of all kernels here but `columns_norm` and `columns_choose`.
pub const THREADS: u32 = 128;
/// Threads of a block of `columns_norm`.
pub const NORM_THREADS: u32 = 512;
/// Blocks of a column of `columns_argmax`.
pub const ARGMAX_BLOCKS: u32 = 32;
/// Values of a lane where a warp has a tile.
pub(super) const OWN: u32 = TILE_COLS / 32;

/// Blocks of a column where each warp takes a tile of `len` values.
pub const fn tile_blocks(len: u32) -> u32 {
    len.div_ceil(TILE_COLS).div_ceil(THREADS / 32)
}

kernel_params! {
    /// `columns_embed_SUFFIX`: the embedding rows of the columns' tokens, in f32; zeros of columns that are left out.
    /// `from` is the state of the columns where the host writes it; the other kernels read `state`. Grid: `[columns]`.
    pub struct Embed(format: Format) {
        weights: Ptr<u8, 16>, from: Ptr<u32, 16>, state: Ptr<u32, 16>, out: Ptr<f32, 16>,
        rows: u32, cols: Multiple = format.block(),
    }
}

pub(crate) fn embed(format: Format, target: Target) -> Kernel {
    let k = Kernel::new(&format!("columns_embed_{}", format.suffix()));
    k.max_threads(THREADS);
    let p = Embed::declare(&k, format);
    let (tid, number) = (k.special(Special::TidX), k.special(Special::CtaidX));
    after_previous(&k, target);
    let words = k.load_n::<4, _, _>(k.at_stride(p.from, number, 4 * WORDS), Cache::Default);
    k.if_(k.eq(tid, 0), || k.store_n(k.at_stride(p.state, number, 4 * WORDS), &words));
    let [token, position, ..] = words;
    let to = k.row(p.out, number, p.cols);
    k.if_(k.eq(position, NONE), || {
        k.for_(tid, k.shr(p.cols.reg(), 2), THREADS, |quad: Reg<u32>| {
            k.store_n(k.at(to, k.scale(quad, 4)), &[(); 4].map(|()| k.var(0f32)));
        });
        k.exit();
    });
    let row = format.row(&k, p.weights, k.min(token, k.sub(p.rows, 1)), p.cols);
    let units = k.halve(p.cols, format.unit().trailing_zeros()).reg();
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
    /// Adds the split-K parts of neighbouring values of a column from `index` on to `values`, in their order; two are
    /// on their way together.
    fn add(&self, k: &Kernel, column: Reg<u32>, index: Multiple, values: &[Reg<f32>]) {
        let last = k.sub(self.shares, 1);
        k.for_(0u32, self.shares, 2u32, |share: Reg<u32>| {
            let parts = [0, 1].map(|next| {
                let share = k.min(k.add(share, next), last);
                let line = k.row(self.values, k.mad(share, self.columns, column), self.pitch);
                k.load_with(k.at(line, index), values.len() as u32, Cache::ReadOnly)
            });
            let both = k.lt(share, last);
            for ((value, first), second) in values.iter().zip(&parts[0]).zip(&parts[1]) {
                k.add_to(*value, *first);
                k.set(*value, k.select(both, k.add(*value, *second), *value));
            }
        });
    }
}

pub(super) fn zeros(k: &Kernel) -> Vec<Reg<f32>> {
    (0..OWN).map(|_| k.var(0f32)).collect()
}

kernel_params! {
    /// `columns_norm`: adds the sums of the previous product to the residual stream `x` (f32,
    /// `[column][len]`), and writes its RMS norm as fragments. `columns_layer_norm` writes its layer norm, and
    /// takes a `bias`. Grid: `[columns]`.
    pub struct Norm(layer: bool) {
        x: Ptr<f32, 16>, sums: Ptr<f32, 16>, weight: Ptr<f32, 16>, out: Ptr<u8, 16>,
        len: Multiple = OWN, eps: f32, shares: u32, columns: u32,
        bias: Option<Ptr<f32, 16>> = layer.then_some(()),
    }
}

/// Name of the kernel for layer norms or RMS norms.
pub const fn norm_name(layer: bool) -> &'static str {
    if layer { "columns_layer_norm" } else { "columns_norm" }
}

pub(crate) fn norm(layer: bool, target: Target) -> Kernel {
    let k = Kernel::new(norm_name(layer));
    k.max_threads(NORM_THREADS);
    let p = Norm::declare(&k, layer);
    let sums = Sums { values: p.sums, shares: p.shares, columns: p.columns, pitch: p.len };
    let warps = NORM_THREADS / 32;
    let (tid, number) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let partials = [Some(()), p.bias.map(|_| ())].map(|some| some.map(|()| k.shared::<f32>(warps)));
    let mean_of = |partial: Option<Pointer<Shared, f32>>, own: Reg<f32>| {
        let sum = partial.map_or(own, |partial| block_sum(&k, partial, (tid, NORM_THREADS), own));
        k.div(sum, k.convert::<u32, f32>(p.len.reg()))
    };
    after_previous(&k, target);
    let x = k.row(p.x, number, p.len);
    let tiles = k.shr(k.add(p.len.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let own = |tile: Reg<u32>| k.sum(k.scale(tile, TILE_COLS), k.scale(lane, OWN));
    // The values themselves for a mean, or their squares.
    let sum = k.var(0f32);
    k.for_(warp, tiles, warps, |tile: Reg<u32>| {
        let at = own(tile);
        k.if_(k.lt(at.reg(), p.len.reg()), || {
            let values = k.load_with(k.at(x, at), OWN, Cache::Default);
            sums.add(&k, number, at, &values);
            k.store_n(k.at(x, at), &values);
            values.iter().for_each(|v| if layer { k.add_to(sum, *v) } else { k.mad_to(sum, *v, *v, sum) });
        });
    });
    let first = mean_of(partials[0], sum);
    // A mean that is large against the deviation costs no digits.
    let mean = layer.then_some(first);
    let off = |values: Vec<Reg<f32>>| -> Vec<Reg<f32>> {
        values.into_iter().map(|value| mean.map_or(value, |mean| k.sub(value, mean))).collect()
    };
    let squares = match layer {
        false => first,
        true => {
            let squares = k.var(0f32);
            k.for_(warp, tiles, warps, |tile: Reg<u32>| {
                let at = own(tile);
                k.if_(k.lt(at.reg(), p.len.reg()), || {
                    let values = off(k.load_with(k.at(x, at), OWN, Cache::Default));
                    values.iter().for_each(|v| k.mad_to(squares, *v, *v, squares));
                });
            });
            mean_of(partials[1], squares)
        }
    };
    let scale = inverse_root(&k, squares, p.eps);
    k.for_(warp, tiles, warps, |tile: Reg<u32>| {
        let (at, values) = (own(tile), zeros(&k));
        k.if_(k.lt(at.reg(), p.len.reg()), || {
            let own = off(k.load_with(k.at(x, at), OWN, Cache::Default));
            let weights = k.load_with(k.at(p.weight, at), OWN, Cache::ReadOnly);
            for ((value, own), weight) in values.iter().zip(own).zip(weights) {
                k.set(*value, k.mul(k.mul(own, scale), weight));
            }
            let bias = p.bias.map(|bias| k.load_with(k.at(bias, at), OWN, Cache::ReadOnly));
            values.iter().zip(bias.iter().flatten()).for_each(|(value, bias)| k.add_to(*value, *bias));
        });
        let columns = k.special(Special::NctaidX);
        store(&k, place(&k, p.out, number, (tile, columns)), number, lane, &values);
    });
    k
}

kernel_params! {
    /// `columns_act`: `silu(gate) · up` as fragments; `sums` have `len` gate values, then as many up values.
    /// `columns_act_gelu_gate`: `gelu(gate) · up`. `columns_act_gelu`: `gelu(up + bias)`; `sums` have `len`
    /// values. Grid: `[tile_blocks(len), columns]`.
    pub struct Act(activation: Activation) {
        sums: Ptr<f32, 16>, out: Ptr<u8, 16>,
        len: Multiple = OWN, shares: Late<u32>, columns: Late<u32>,
        bias: Option<Ptr<f32, 16>> = (!activation.is_gated()).then_some(()),
    }
}

/// Name of the kernel for an activation.
pub const fn act_name(activation: Activation) -> &'static str {
    match activation {
        Activation::SiluGate => "columns_act",
        Activation::GeluGate => "columns_act_gelu_gate",
        Activation::Gelu => "columns_act_gelu",
    }
}

pub(crate) fn act(activation: Activation, target: Target) -> Kernel {
    let k = Kernel::new(act_name(activation));
    k.max_threads(THREADS);
    let p = Act::declare(&k, activation);
    let pitch = if activation.is_gated() { k.scale(p.len, 2) } else { p.len };
    let sums = Sums { values: p.sums, shares: p.shares.load(&k), columns: p.columns.load(&k), pitch };
    let (tid, number) = (k.special(Special::TidX), k.special(Special::CtaidY));
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    after_previous(&k, target);
    let tiles = k.shr(k.add(p.len.reg(), TILE_COLS - 1), TILE_COLS.trailing_zeros());
    let tile = k.mad(k.special(Special::CtaidX), THREADS / 32, warp);
    k.exit_if(k.ge(tile, tiles));
    let (at, values) = (k.sum(k.scale(tile, TILE_COLS), k.scale(lane, OWN)), zeros(&k));
    k.if_(k.lt(at.reg(), p.len.reg()), || {
        let first =
            p.bias.map_or_else(|| zeros(&k), |bias| k.load_with(k.at(bias, at), OWN, Cache::ReadOnly));
        sums.add(&k, number, at, &first);
        if !activation.is_gated() {
            values.iter().zip(first).for_each(|(value, up)| k.set(*value, gelu(&k, up)));
            return;
        }
        let up = zeros(&k);
        sums.add(&k, number, k.sum(at, p.len), &up);
        for ((value, gate), up) in values.iter().zip(first).zip(up) {
            let activated = match activation {
                Activation::SiluGate => silu_times(&k, gate, up),
                Activation::GeluGate | Activation::Gelu => k.mul(gelu(&k, gate), up),
            };
            k.set(*value, activated);
        }
    });
    let columns = k.special(Special::NctaidY);
    store(&k, place(&k, p.out, number, (tile, columns)), number, lane, &values);
    k
}

kernel_params! {
    /// `columns_position`: adds the vector of its position to the residual stream of each column. Positions
    /// past the last one of `rows` have its vector. Grid: `[len / THREADS, columns]`.
    pub struct AddPosition {
        state: Ptr<u32, 16>, positions: Ptr<f32, 16>, x: Ptr<f32, 16>,
        len: Multiple = 16, rows: u32,
    }
}

pub(crate) fn add_position(target: Target) -> Kernel {
    let k = Kernel::new("columns_position");
    k.max_threads(THREADS);
    let p = AddPosition::declare(&k);
    let i = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let own = column(&k, target, p.state, k.special(Special::CtaidY));
    k.exit_if(k.ge(i, p.len.reg()));
    let vector = k.row(p.positions, k.min(own.position, k.sub(p.rows, 1)), p.len);
    let to = k.at(k.row(p.x, own.number, p.len), i);
    k.store(to, k.add(k.load_with(to, 1, Cache::Default)[0], k.load(k.at(vector, i))));
    k
}

kernel_params! {
    /// `columns_rope`: adds the shares of queries, keys and values, writes the rotated queries to `q` (f32,
    /// `[column][head][dim]`), and rotated keys and values at the column's position of caches
    /// `[page][kv_head][PAGE][head_dim]`. Grid: `[pairs of a column / THREADS, columns]`. `columns_rope_q8_0`
    /// takes another parameter, `scales_at`.
    pub struct Rope(kv: CacheType) {
        state: Ptr<u32, 16>, tables: Ptr<u32, 16>, sums: Ptr<f32, 16>, turns: Ptr<u64, 16>, q: Ptr<f32, 16>,
        keys: Ptr<f16, 16>, values: Ptr<f16, 16>,
        heads: u32, kv_heads: u32, half_dim: u32, table_pitch: u32, shares: Late<u32>, columns: Late<u32>,
        scales_at: Option<Late<Multiple>> = (kv == CacheType::Q8_0).then_some(BLOCK),
    }
}

pub(crate) fn rope(kv: CacheType, target: Target) -> Kernel {
    let k = Kernel::new(&format!("columns_rope{}", kv.suffix()));
    k.max_threads(THREADS);
    let p = Rope::declare(&k, kv);
    let rotated = k.add(p.heads, p.kv_heads);
    let pairs = k.mul(k.add(rotated, p.kv_heads), p.half_dim);
    let pitch = k.scale(pairs, 2);
    let sums = Sums { values: p.sums, shares: p.shares.load(&k), columns: p.columns.load(&k), pitch };
    let scales_at = p.scales_at.map(|scales_at| scales_at.load(&k));
    let pair = k.mad(k.special(Special::CtaidX), THREADS, k.special(Special::TidX));
    let own = Column::request(&k, target, p.state, k.special(Special::CtaidY));
    k.exit_if(k.ge(pair, pairs));
    let head = k.div(pair, p.half_dim);
    let j = k.sub(pair, k.mul(head, p.half_dim));
    let (x, y) = (k.var(0f32), k.var(0f32));
    sums.add(&k, own.number, k.scale(pair, 2), &[x, y]);
    own.end_if_left_out(&k);
    k.if_(k.lt(head, rotated), || {
        let (c, s) = rotate(&k, k.at(p.turns, j), own.position, x, y);
        k.set(x, c);
        k.set(y, s);
    });
    k.if_(k.lt(head, p.heads), || {
        let line = k.row(p.q, own.number, k.scale(k.mul(p.heads, p.half_dim), 2));
        k.store_n(k.at(line, k.scale(pair, 2)), &[x, y]);
        k.exit();
    });
    let is_key = k.lt(head, rotated);
    let kv_head = k.sub(k.sub(head, p.heads), k.select(is_key, 0u32, p.kv_heads));
    let page = page(&k, p.tables, p.table_pitch, own, k.shr(own.position, PAGE.trailing_zeros()));
    let row = row(&k, page, (kv_head, p.kv_heads), own.position);
    store_pair(&k, k.select_ptr(is_key, p.keys, p.values), scales_at, (row, p.half_dim, j), [x, y]);
    k
}

kernel_params! {
    /// `columns_argmax`: one candidate per block. Grid: `[ARGMAX_BLOCKS, columns]`.
    pub struct Argmax {
        state: Ptr<u32, 16>, logits: Ptr<f32, 4>, best_values: Ptr<f32, 4>,
        best_indices: Ptr<u32, 4>,
        count: u32,
    }
}

pub(crate) fn argmax(target: Target) -> Kernel {
    let k = Kernel::new("columns_argmax");
    k.max_threads(THREADS);
    let p = Argmax::declare(&k);
    let partial = (k.shared::<f32>(THREADS / 32), k.shared::<u32>(THREADS / 32));
    let (tid, block) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let number = k.special(Special::CtaidY);
    column(&k, target, p.state, number);
    let logits = k.row(p.logits, number, p.count);
    let best = block_best(&k, THREADS, partial, (tid, block), (logits, p.count));
    let to = k.mad(number, k.special(Special::NctaidX), block);
    k.store(k.at(p.best_values, to), best.0);
    k.store(k.at(p.best_indices, to), best.1);
    k
}

kernel_params! {
    /// `columns_choose`: the best of the candidates of each column; `NONE` if no logit is a number. Grid:
    /// `[columns]`, a warp each.
    pub struct Choose {
        state: Ptr<u32, 16>, best_values: Ptr<f32, 4>, best_indices: Ptr<u32, 4>,
        tokens: Ptr<u32, 4>,
        candidates: u32,
    }
}

pub(crate) fn choose(target: Target) -> Kernel {
    let k = Kernel::new("columns_choose");
    k.max_threads(32);
    let p = Choose::declare(&k);
    let (lane, number) = (k.special(Special::LaneId), k.special(Special::CtaidX));
    column(&k, target, p.state, number);
    let (values, indices) =
        (k.row(p.best_values, number, p.candidates), k.row(p.best_indices, number, p.candidates));
    let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
    k.for_(lane, p.candidates, 32u32, |i: Reg<u32>| {
        take_better(&k, best, (k.load(k.at(values, i)), k.load(k.at(indices, i))));
    });
    warp_best(&k, best);
    k.if_(k.eq(lane, 0), || k.store(k.at(p.tokens, number), best.1));
    k
}
