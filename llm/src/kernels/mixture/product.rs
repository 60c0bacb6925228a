//! Products of experts with their tokens on the tensor cores: the product of a chunk with a matrix, where
//! each expert has another matrix and other tokens.

use half::f16;
use ptxgen::{Kernel, Special};

use crate::kernels::prompt::gemm::{self, Block, DEPTH, Output, Tile};

/// The tiles: for many tokens per expert, and for few.
pub const TILES: [Tile; 2] = [gemm::TILES[1], gemm::TILES[2]];

/// The tile for `entries` entries of `experts` experts.
pub const fn choose(entries: u32, experts: u32) -> Tile {
    if entries >= experts * TILES[0].tokens { TILES[0] } else { TILES[1] }
}

/// Name of the kernel of `tile` and `output`.
pub fn name(tile: Tile, output: Output) -> String {
    format!("experts_{}", tile.kernel_name(output))
}

/// Blocks for `experts` experts with up to `tokens` tokens and `rows` results each.
pub const fn grid(tile: Tile, output: Output, tokens: u32, rows: u32, experts: u32) -> [u32; 3] {
    let [tiles, across, _] = tile.grid(output, tokens, rows, 1);
    [tiles * experts, across, 1]
}

/// The kernel of `tile` and `output`: `(x, w, out, starts, rows, cols, first, tiles, apart, tokens, factor)`.
///
/// `w` has the matrices of some experts from expert `first` on, `[expert][rows][cols]`; for [`Output::Gate`]
/// the rows of their gates, and those of up `apart` rows later. Entries of expert e are rows `starts[e]` to
/// before `starts[e + 1]` of `out`, `[entry][rows]`. For [`Output::Gate`] an entry's row of `x` is the one of
/// its token, by the list `tokens`; for [`Output::Sums`] it is that of the entry, and the kernel takes
/// neither `tokens` nor `factor`. Grid: [`grid`], `tiles` per expert.
pub(crate) fn kernel(tile: Tile, output: Output) -> Kernel {
    let gated = output == Output::Gate;
    let k = Kernel::new(&name(tile, output));
    k.max_threads(tile.threads());
    let [x, w, out] = ["x", "w", "out"].map(|name| k.param_ptr::<f16>(name, 16));
    let starts = k.param_ptr::<u32>("starts", 16);
    let rows = k.param_multiple("rows", DEPTH);
    let cols = k.param_multiple("cols", DEPTH);
    let first = k.param::<u32>("first");
    let tiles = k.param::<u32>("tiles");
    let apart = k.param::<u32>("apart");
    let listed = gated.then(|| k.param_ptr::<u32>("tokens", 16));
    let factor = gated.then(|| k.param::<f32>("factor"));

    let tid = k.special(Special::TidX);
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let across = k.special(Special::CtaidX);
    let local = k.div(across, tiles);
    let expert = k.add(first, local);
    let start = k.load(k.at(starts, expert));
    let tokens = k.sub(k.load(k.at(starts, k.add(expert, 1))), start);
    let first_token = k.mul(k.sub(across, k.mul(local, tiles)), tile.tokens);
    k.exit_if(k.ge(first_token, tokens));
    let rows_per_block = if gated { tile.rows / 2 } else { tile.rows };
    let first_row = k.scale(k.special(Special::CtaidY), rows_per_block);
    let listed = listed.map(|list| k.at(list, start));
    let x = if gated { x } else { k.row(x, start, cols) };
    let w = k.row(w, k.mul(local, rows.reg()), cols);
    // Results have two or four bytes.
    let wide = if gated { rows } else { k.scale(rows, 2) };
    let out = k.row(out, start, wide);
    let block = Block {
        k: &k,
        tile,
        output,
        factor,
        tokens,
        rows: rows.reg(),
        apart,
        listed,
        tid,
        lane,
        warp,
        first_token,
        first_row,
    };
    let copier = block.copier([x, w], cols);
    let zero = k.var(0u32);
    let sums = block.multiply(&copier, zero, cols.reg());
    block.store(&sums, (out, rows), (zero, zero));
    k
}
