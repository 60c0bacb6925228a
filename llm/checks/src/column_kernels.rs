//! The kernels of a batch step, one by one: columns of which one is left out, with pages of their own.

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::columns::experts::{self, ExpertAct};
use ga10b_llm::kernels::columns::state::NONE;
use ga10b_llm::kernels::columns::{attention, fragments, product, vector};
use ga10b_llm::kernels::heads::HEAD_DIMS;
use ga10b_llm::kernels::mixture::scores;
use ga10b_llm::model::architecture::Activation;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use crate::weights::{FORMATS, ROWS, Weights};
use ga10b_tests::conformance::BufferNumber;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{COLS, Drive, MILLIONTH, NEXT, halves};

const COLUMNS: u32 = 8;
/// Parts of the sums of a product.
const SHARES: u32 = 2;
const LEN: u32 = COLS as u32;
const KV_HEADS: u32 = 2;
/// Pages of a cache, and of a column's table. Columns have tables 0 to 2, alternately.
const PAGES: u32 = 6;
const TABLE_PITCH: u32 = 2;
const TABLES: [u32; 6] = [3, 0, 5, 1, 2, 4];

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![merge(), add_position(), expert_act()];
    cases.extend([false, true].map(norm));
    cases.extend(Activation::ALL.map(act));
    cases.extend(choices());
    for kv in CacheType::ALL {
        cases.push(rope(kv));
        for limited in [false, true] {
            let of_dims = |dims| [1, 5].map(|group| attended(dims, kv, group, limited));
            cases.extend(HEAD_DIMS.into_iter().flat_map(of_dims));
        }
    }
    for weights in &FORMATS {
        cases.push(embed(weights));
        cases.extend((!weights.format.has_codebook()).then(|| scores(weights)));
        cases.extend(product::SIZES.map(|size| multiplied(weights, size)));
        cases.extend(product::SIZES.map(|size| of_experts(weights, size)));
    }
    cases
}

/// The state of columns, of which number 2 takes no part; the others are at positions on the first page and the
/// second.
fn state(columns: u32) -> Vec<u32> {
    let column = |c: u32| [5 * c % ROWS as u32, if c == 2 { NONE } else { 97 * (c + 1) % 500 }, c % 3, 0];
    (0..columns).flat_map(column).collect()
}

fn drive(kernel: &str, config: LaunchConfig) -> Drive {
    Drive::of("columns", kernel, config)
}

/// Words of a tile of a group of columns: values, sums of them, factors of columns.
const TILE: [usize; 3] = {
    let (sums, factors) = (2 * 32, fragments::GROUP as usize);
    [fragments::BYTES as usize / 4 - sums - factors, sums, factors]
};

/// Inputs of the batch kernels.
trait Fragments {
    /// The state of `columns` columns.
    fn state(&mut self, columns: u32) -> BufferNumber;

    /// Columns of [`LEN`] values that the kernel stores as factors of the tensor cores.
    fn fragments_room(&mut self, columns: u32) -> BufferNumber;

    /// Tolerance of the next buffer, of such columns, for numbers that are uncertain in their last places. The largest
    /// value of a column's tile is from 256 to 511: a millionth of that is 5e-4. Of 32 values that may become the next
    /// f16, a quarter away, the upper half of a sum may as well, 8 away, and then the lower half is so much less.
    fn within_fragments(&mut self, columns: u32) -> &mut Self;

    /// Columns of [`LEN`] values as factors of the tensor cores.
    fn fragments(&mut self, columns: u32) -> BufferNumber;

    /// The sums of a product with `len` rows.
    fn parts(&mut self, len: u32, scale: f32) -> BufferNumber;
}

impl Fragments for Drive {
    fn state(&mut self, columns: u32) -> BufferNumber {
        self.words(state(columns))
    }

    fn fragments_room(&mut self, columns: u32) -> BufferNumber {
        self.room(fragments::bytes(columns, LEN) as usize / 4)
    }

    fn within_fragments(&mut self, columns: u32) -> &mut Self {
        let tiles = fragments::bytes(columns, LEN) as usize / fragments::BYTES as usize;
        let [values, sums, factors] = TILE;
        for tile in (0..tiles).map(|tile| tile * (values + sums + factors)) {
            self.within_from(tile, Tolerance::Halves { ulps: 1, absolute: 5e-4 });
            self.within_from(tile + values, Tolerance::Halves { ulps: 1, absolute: 8.5 });
            self.within_from(tile + values + sums, Tolerance::Exact);
        }
        self
    }

    fn fragments(&mut self, columns: u32) -> BufferNumber {
        let tiles = fragments::bytes(columns, LEN) as usize / fragments::BYTES as usize;
        let [values, sums, factors] = TILE;
        let mut words = Vec::new();
        for _ in 0..tiles {
            words.extend(halves(&mut self.noise, 2 * values, 500.0));
            words.extend(halves(&mut self.noise, 2 * sums, 4000.0));
            words.extend((0..factors).map(|_| (0.5f32.powi(self.noise.below(12) as i32)).to_bits()));
        }
        self.words(words)
    }

    fn parts(&mut self, len: u32, scale: f32) -> BufferNumber {
        self.floats((SHARES * COLUMNS * len) as usize, scale)
    }
}

fn norm(layer: bool) -> Case {
    let drive = drive(vector::norm_name(layer), LaunchConfig::new(COLUMNS, vector::NORM_THREADS));
    drive.done(|d| vector::Norm {
        x: d.floats((COLUMNS * LEN) as usize, 3.0),
        sums: d.parts(LEN, 1.0),
        weight: d.floats(COLS, 1.0),
        out: d.fragments_room(COLUMNS),
        len: LEN,
        eps: 1e-5,
        shares: SHARES,
        columns: COLUMNS,
        bias: layer.then(|| d.floats(COLS, 1.0)),
    })
}

fn act(activation: Activation) -> Case {
    let config = LaunchConfig::new((vector::tile_blocks(LEN), COLUMNS), vector::THREADS);
    let vectors = if activation.is_gated() { 2 } else { 1 };
    drive(vector::act_name(activation), config).done(|d| vector::Act {
        sums: d.parts(vectors * LEN, 3.0),
        out: d.within_fragments(COLUMNS).fragments_room(COLUMNS),
        len: LEN,
        shares: SHARES,
        columns: COLUMNS,
        bias: (!activation.is_gated()).then(|| d.floats(COLS, 1.0)),
    })
}

/// Learned positions, of which the columns at the latest have the last.
fn add_position() -> Case {
    let (rows, config) = (400, LaunchConfig::new((LEN.div_ceil(vector::THREADS), COLUMNS), vector::THREADS));
    drive("columns_position", config).done(|d| vector::AddPosition {
        state: d.state(COLUMNS),
        positions: d.floats(rows * COLS, 1.0),
        x: d.floats((COLUMNS * LEN) as usize, 3.0),
        len: LEN,
        rows: rows as u32,
    })
}

/// Experts of a mixture, and those that a column has chosen.
const EXPERTS: u32 = 3;
const USED: u32 = 2;

/// The experts that columns have chosen: number 1 is that of the last column alone, and of one that takes no
/// part.
fn chosen(columns: u32) -> Vec<u32> {
    let of = |c: u32| if c == 2 || c + 1 == columns { [1, 0] } else { [2 * (c % 2), 2 - 2 * (c % 2)] };
    (0..columns).flat_map(of).collect()
}

fn expert_act() -> Case {
    let config = LaunchConfig::new((vector::tile_blocks(LEN), COLUMNS, USED), vector::THREADS);
    drive("columns_expert_act", config).done(|d| ExpertAct {
        state: d.state(COLUMNS),
        products: d.floats((COLUMNS * USED * 2 * LEN) as usize, 3.0),
        chosen: d.words(chosen(COLUMNS)),
        out: d.within_fragments(EXPERTS * COLUMNS).fragments_room(EXPERTS * COLUMNS),
        len: LEN,
        apart: fragments::bytes(COLUMNS, LEN) as u32,
    })
}

/// The router's scores of each column.
fn scores(weights: &Weights) -> Case {
    let experts = ROWS as u32;
    let config = LaunchConfig::new((experts.div_ceil(scores::THREADS / 32), COLUMNS), scores::THREADS);
    drive(&experts::scores_name(weights.format), config).done(|d| experts::ColumnScores {
        weights: weights.matrix(d, ROWS),
        x: d.floats((COLUMNS * LEN) as usize, 3.0),
        norm: d.floats(COLS, 1.0),
        state: d.state(COLUMNS),
        out: d.room(COLUMNS as usize * ROWS),
        experts,
        cols: LEN,
        eps: 1e-5,
    })
}

/// The products of experts with the columns that have chosen them, each with columns of its own.
fn of_experts(weights: &Weights, size: u32) -> Case {
    let (rows, pitch) = (16, 20);
    let config = LaunchConfig::new(product::experts_grid(rows, (EXPERTS, USED), size, 2), product::THREADS);
    let module = weights.format.module("columns_experts");
    let drive = Drive::of(module, &product::experts_name(weights.format, size), config);
    drive.on_tensor_cores().done(|d| product::ExpertsProduct {
        weights: weights.matrix(d, (EXPERTS * rows) as usize),
        x: d.fragments(EXPERTS * size),
        state: d.state(size),
        chosen: d.words(chosen(size)),
        out: d.room((size * USED * pitch) as usize),
        rows,
        cols: LEN,
        pitch,
        used: USED,
        weights_apart: weights.format.packed_bytes(rows.into(), LEN.into()) as u32,
        x_apart: fragments::bytes(size, LEN) as u32,
    })
}

/// The kernel that merges the split-K parts of heads, here as many values as a vector has.
fn merge() -> Case {
    let head_dim = 64;
    let (heads, words) = (LEN / head_dim, attention::partial_words(head_dim));
    let config = LaunchConfig::new((vector::tile_blocks(LEN), COLUMNS), vector::THREADS);
    // Sums of weights are not near zero.
    let positive = |i: u32| (0.5 + (i * 37 % 64) as f32 / 128.0).to_bits();
    drive("columns_merge", config).done(|d| attention::Merge {
        state: d.state(COLUMNS),
        partials: d.words((0..COLUMNS * heads * SHARES * words).map(positive).collect()),
        out: d.within_fragments(COLUMNS).fragments_room(COLUMNS),
        head_dim,
        head_values: head_dim,
        heads,
        shares: SHARES,
    })
}

/// The best logit of each column, in two steps.
fn choices() -> Vec<Case> {
    let (count, candidates) = (5_003, vector::ARGMAX_BLOCKS);
    let best = (COLUMNS * candidates) as usize;
    vec![
        drive("columns_argmax", LaunchConfig::new((candidates, COLUMNS), vector::THREADS)).done(|d| {
            vector::Argmax {
                state: d.state(COLUMNS),
                logits: d.floats((COLUMNS * count) as usize, 9.0),
                best_values: d.room(best),
                best_indices: d.room(best),
                count,
            }
        }),
        drive("columns_choose", LaunchConfig::new(COLUMNS, 32)).done(|d| vector::Choose {
            state: d.state(COLUMNS),
            best_values: d.floats(best, 9.0),
            best_indices: d.random(best),
            tokens: d.room(COLUMNS as usize),
            candidates,
        }),
    ]
}

/// Rotation, and the write to pages.
fn rope(kv: CacheType) -> Case {
    let (heads, dim) = (4, 32);
    let row = (heads + 2 * KV_HEADS) * dim;
    let cached = (PAGES * KV_HEADS * PAGE as u32 * dim) as usize;
    let (kernel, quantized) = match kv {
        CacheType::F16 => ("columns_rope", false),
        CacheType::Q8_0 => ("columns_rope_q8_0", true),
    };
    let config = LaunchConfig::new(((row / 2).div_ceil(vector::THREADS), COLUMNS), vector::THREADS);
    drive(kernel, config).done(|d| vector::Rope {
        state: d.state(COLUMNS),
        tables: d.words(TABLES.to_vec()),
        sums: d.parts(row, 0.5),
        turns: d.words((0..dim).map(|i: u32| i.wrapping_mul(0x1234_5677) >> 2).collect()),
        q: d.within(MILLIONTH).room((COLUMNS * heads * dim) as usize),
        keys: match quantized {
            true => d.within_codes(cached).quantized_room(cached),
            false => d.within(NEXT).room(cached / 2),
        },
        values: if quantized { d.quantized_room(cached) } else { d.room(cached / 2) },
        heads,
        kv_heads: KV_HEADS,
        half_dim: dim / 2,
        table_pitch: TABLE_PITCH,
        shares: SHARES,
        columns: COLUMNS,
        scales_at: quantized.then_some(cached as u32),
    })
}

/// Attention of three columns over one page or two; `group` query heads share keys and values. With limits a
/// column sees a part of a page, or of two.
fn attended(dims: u32, kv: CacheType, group: u32, limited: bool) -> Case {
    let (columns, heads) = (4, KV_HEADS * group);
    let cached = (PAGES * KV_HEADS * PAGE as u32 * dims) as usize;
    let config =
        LaunchConfig::new(attention::grid((KV_HEADS, group), dims, SHARES, columns), attention::THREADS);
    let cache = |d: &mut Drive| match kv {
        CacheType::F16 => d.halves(cached, 1.0),
        CacheType::Q8_0 => d.quantized(cached),
    };
    // Sums of up to 256 values, with weights up to 1 that may be rounded to either of two neighbours in f16.
    let tolerance = Tolerance::Single { ulps: 64, absolute: 2e-3 };
    drive(&attention::kernel_name(dims, kv, limited), config).done(|d| attention::Attention {
        state: d.state(columns),
        tables: d.words(TABLES.to_vec()),
        q: d.floats((columns * heads * dims) as usize, 1.0),
        keys: cache(d),
        values: cache(d),
        partials: d
            .within(tolerance)
            .room((columns * heads * SHARES * attention::partial_words(dims)) as usize),
        head_dim: dims,
        kv_heads: KV_HEADS,
        group,
        table_pitch: TABLE_PITCH,
        scale: 1.0 / (dims as f32).sqrt(),
        scales_at: (kv == CacheType::Q8_0).then_some(cached as u32),
        window: limited.then_some(150),
        cap: limited.then_some(0.3),
    })
}

fn embed(weights: &Weights) -> Case {
    let kernel = format!("columns_embed_{}", weights.format.suffix());
    let config = LaunchConfig::new(COLUMNS, vector::THREADS);
    Drive::of(weights.format.module("columns"), &kernel, config).done(|d| vector::Embed {
        weights: weights.matrix(d, ROWS),
        from: d.state(COLUMNS),
        state: d.room((COLUMNS * 4) as usize),
        out: d.room((COLUMNS * LEN) as usize),
        rows: ROWS as u32,
        cols: LEN,
    })
}

/// The product of a matrix with `size` columns, the row length in two parts.
fn multiplied(weights: &Weights, size: u32) -> Case {
    let (rows, pitch) = (ROWS as u32, 40);
    let config = LaunchConfig::new(product::grid(rows, SHARES, 2), product::THREADS);
    let module = weights.format.module("columns_product");
    let drive = Drive::of(module, &product::kernel_name(weights.format, size), config);
    drive.on_tensor_cores().done(|d| product::ColumnsProduct {
        weights: weights.matrix(d, ROWS),
        x: d.fragments(size),
        out: d.room((SHARES * size * pitch) as usize),
        rows,
        cols: LEN,
        pitch,
        share: product::share_tiles(LEN, SHARES),
    })
}
