//! The kernels of a batch step, one by one: columns of which one is left out, with pages of their own.

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::columns::state::NONE;
use ga10b_llm::kernels::columns::{attention, fragments, product, vector};
use ga10b_llm::kernels::heads::HEAD_DIMS;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use crate::weights::{FORMATS, ROWS, Weights};
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
    let mut cases = vec![norm(), act(), merge()];
    cases.extend(choices());
    for kv in CacheType::ALL {
        cases.push(rope(kv));
        let of_dims = |dims| [1, 4].map(|group| attended(dims, kv, group));
        cases.extend(HEAD_DIMS.into_iter().flat_map(of_dims));
    }
    for weights in &FORMATS {
        cases.push(embed(weights));
        cases.extend(product::SIZES.map(|size| multiplied(weights, size)));
    }
    cases
}

/// The state of columns, of which number 2 takes no part; the others are at positions on the first page and the
/// second.
fn state(columns: u32) -> Vec<u32> {
    let column = |c: u32| [5 * c % ROWS as u32, if c == 2 { NONE } else { 97 * (c + 1) % 500 }, c % 3, 0];
    (0..columns).flat_map(column).collect()
}

/// A kernel that reads the state of `columns` columns.
fn drive(kernel: &str, config: LaunchConfig, columns: u32) -> Drive {
    Drive::of("columns", kernel, config).words(state(columns))
}

/// Words of a tile of a group of columns: values, sums of them, factors of columns.
const TILE: [usize; 3] = {
    let (sums, factors) = (2 * 32, fragments::GROUP as usize);
    [fragments::BYTES as usize / 4 - sums - factors, sums, factors]
};

/// Inputs of the batch kernels.
trait Fragments: Sized {
    /// Columns of [`LEN`] values that the kernel stores as factors of the tensor cores.
    fn fragments_room(self, columns: u32) -> Self;

    /// The tolerance of the last buffer, of such columns, for numbers that are uncertain in their last
    /// places. The largest value of a column's tile is from 256 to 511: a millionth of that is 5e-4. Of 32
    /// values that may become the next f16, a quarter away, the upper half of a sum may as well, 8 away, and
    /// then the lower half is so much less.
    fn within_fragments(self, columns: u32) -> Self;

    /// Columns of [`LEN`] values as factors of the tensor cores.
    fn fragments(self, columns: u32) -> Self;

    /// The sums of a product with `len` rows.
    fn parts(self, len: u32, scale: f32) -> Self;
}

impl Fragments for Drive {
    fn fragments_room(self, columns: u32) -> Self {
        self.room(fragments::bytes(columns, LEN) as usize / 4)
    }

    fn within_fragments(mut self, columns: u32) -> Self {
        let tiles = fragments::bytes(columns, LEN) as usize / fragments::BYTES as usize;
        let [values, sums, factors] = TILE;
        for tile in (0..tiles).map(|tile| tile * (values + sums + factors)) {
            self = self.within_from(tile, Tolerance::Halves { ulps: 1, absolute: 5e-4 });
            self = self.within_from(tile + values, Tolerance::Halves { ulps: 1, absolute: 8.5 });
            self = self.within_from(tile + values + sums, Tolerance::Exact);
        }
        self
    }

    fn fragments(self, columns: u32) -> Self {
        let tiles = fragments::bytes(columns, LEN) as usize / fragments::BYTES as usize;
        let [values, sums, factors] = TILE;
        let mut drive = self;
        let mut words = Vec::new();
        for _ in 0..tiles {
            words.extend(halves(&mut drive.noise, 2 * values, 500.0));
            words.extend(halves(&mut drive.noise, 2 * sums, 4000.0));
            words.extend((0..factors).map(|_| (0.5f32.powi(drive.noise.below(12) as i32)).to_bits()));
        }
        drive.words(words)
    }

    fn parts(self, len: u32, scale: f32) -> Self {
        self.floats((SHARES * COLUMNS * len) as usize, scale)
    }
}

fn norm() -> Case {
    drive("columns_norm", LaunchConfig::new(COLUMNS, vector::NORM_THREADS), COLUMNS)
        .floats((COLUMNS * LEN) as usize, 3.0)
        .parts(LEN, 1.0)
        .floats(COLS, 1.0)
        .fragments_room(COLUMNS)
        .u32(LEN)
        .f32(1e-5)
        .u32(SHARES)
        .u32(COLUMNS)
        .done()
}

fn act() -> Case {
    let config = LaunchConfig::new((vector::tile_blocks(LEN), COLUMNS), vector::THREADS);
    drive("columns_act", config, COLUMNS)
        .parts(2 * LEN, 3.0)
        .fragments_room(COLUMNS)
        .within_fragments(COLUMNS)
        .u32(LEN)
        .u32(SHARES)
        .u32(COLUMNS)
        .done()
}

/// The kernel that merges the split-K parts of heads, here as many values as a vector has.
fn merge() -> Case {
    let dims = 64;
    let (heads, words) = (LEN / dims, attention::partial_words(dims));
    let config = LaunchConfig::new((vector::tile_blocks(LEN), COLUMNS), vector::THREADS);
    // Sums of weights are not near zero.
    let positive = |i: u32| (0.5 + (i * 37 % 64) as f32 / 128.0).to_bits();
    drive("columns_merge", config, COLUMNS)
        .words((0..COLUMNS * heads * SHARES * words).map(positive).collect())
        .fragments_room(COLUMNS)
        .within_fragments(COLUMNS)
        .u32(dims)
        .u32(heads)
        .u32(SHARES)
        .done()
}

/// The best logit of each column, in two steps.
fn choices() -> Vec<Case> {
    let (logits, candidates) = (5_003, vector::ARGMAX_BLOCKS);
    let best = (COLUMNS * candidates) as usize;
    vec![
        drive("columns_argmax", LaunchConfig::new((candidates, COLUMNS), vector::THREADS), COLUMNS)
            .floats((COLUMNS * logits) as usize, 9.0)
            .room(best)
            .room(best)
            .u32(logits)
            .done(),
        drive("columns_choose", LaunchConfig::new(COLUMNS, 32), COLUMNS)
            .floats(best, 9.0)
            .random(best)
            .room(COLUMNS as usize)
            .u32(candidates)
            .done(),
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
    let drive = drive(
        kernel,
        LaunchConfig::new(((row / 2).div_ceil(vector::THREADS), COLUMNS), vector::THREADS),
        COLUMNS,
    )
    .words(TABLES.to_vec())
    .parts(row, 0.5)
    .words((0..dim).map(|i: u32| i.wrapping_mul(0x1234_5677) >> 2).collect())
    .room((COLUMNS * heads * dim) as usize)
    .within(MILLIONTH);
    let drive = if quantized {
        drive.quantized_room(cached).within_codes(cached).quantized_room(cached)
    } else {
        drive.room(cached / 2).within(NEXT).room(cached / 2)
    };
    let drive = drive.u32(heads).u32(KV_HEADS).u32(dim / 2).u32(TABLE_PITCH).u32(SHARES).u32(COLUMNS);
    if quantized { drive.u32(cached as u32).done() } else { drive.done() }
}

/// Attention of three columns over one page or two; `group` query heads share keys and values.
fn attended(dims: u32, kv: CacheType, group: u32) -> Case {
    let (columns, heads) = (4, KV_HEADS * group);
    let cached = (PAGES * KV_HEADS * PAGE as u32 * dims) as usize;
    let together = attention::together(group);
    let config =
        LaunchConfig::new((KV_HEADS * group.div_ceil(together), SHARES, columns), attention::THREADS);
    let drive = drive(&attention::kernel_name(dims, kv, together), config, columns)
        .words(TABLES.to_vec())
        .floats((columns * heads * dims) as usize, 1.0);
    let drive = match kv {
        CacheType::F16 => drive.halves(cached, 1.0).halves(cached, 1.0),
        CacheType::Q8_0 => drive.quantized(cached).quantized(cached),
    };
    let drive = drive
        .room((columns * heads * SHARES * attention::partial_words(dims)) as usize)
        // Sums of up to 256 values, with weights up to 1.
        .within(Tolerance::Single { ulps: 64, absolute: 5e-5 })
        .u32(dims)
        .u32(KV_HEADS)
        .u32(group)
        .u32(TABLE_PITCH)
        .f32(1.0 / (dims as f32).sqrt());
    if kv == CacheType::Q8_0 { drive.u32(cached as u32).done() } else { drive.done() }
}

fn embed(weights: &Weights) -> Case {
    let kernel = format!("columns_embed_{}", weights.format.suffix());
    weights
        .matrix(Drive::of("columns", &kernel, LaunchConfig::new(COLUMNS, vector::THREADS)), ROWS)
        .words(state(COLUMNS))
        .room((COLUMNS * 4) as usize)
        .room((COLUMNS * LEN) as usize)
        .u32(ROWS as u32)
        .u32(LEN)
        .done()
}

/// The product of a matrix with `size` columns, the row length in two parts.
fn multiplied(weights: &Weights, size: u32) -> Case {
    let (rows, pitch) = (ROWS as u32, 40);
    let config = LaunchConfig::new(product::grid(rows, SHARES, 2), product::THREADS);
    let drive = Drive::of("columns_product", &product::kernel_name(weights.format, size), config);
    weights
        .matrix(drive.on_tensor_cores(), ROWS)
        .fragments(size)
        .room((SHARES * size * pitch) as usize)
        .u32(rows)
        .u32(LEN)
        .u32(pitch)
        .u32(product::share_tiles(LEN, SHARES))
        .done()
}
