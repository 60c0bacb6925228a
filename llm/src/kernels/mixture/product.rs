//! Products of experts with their tokens on the tensor cores: the product of a chunk with a matrix, where
//! each expert has another matrix and other tokens.

use half::f16;
use ptxgen::{Kernel, Multiple, Ptr, Special, kernel_params};

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

kernel_params! {
    /// Parameters of the kernel of a tile and an output.
    pub struct ExpertsProduct(gated: bool) {
        x: Ptr<f16, 16>, w: Ptr<f16, 16>, out: Ptr<f16, 16>, starts: Ptr<u32, 16>,
        rows: Multiple = DEPTH, cols: Multiple = DEPTH, first: u32, tiles: u32, apart: u32,
        tokens: Option<Ptr<u32, 16>> = gated.then_some(()),
        factor: Option<f32> = gated.then_some(()),
    }
}

/// The kernel of `tile` and `output`.
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
    let p = ExpertsProduct::declare(&k, gated);

    let tid = k.special(Special::TidX);
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let across = k.special(Special::CtaidX);
    let local = k.div(across, p.tiles);
    let expert = k.add(p.first, local);
    let start = k.load(k.at(p.starts, expert));
    let tokens = k.sub(k.load(k.at(p.starts, k.add(expert, 1))), start);
    let first_token = k.mul(k.sub(across, k.mul(local, p.tiles)), tile.tokens);
    k.exit_if(k.ge(first_token, tokens));
    let rows_per_block = if gated { tile.rows / 2 } else { tile.rows };
    let first_row = k.scale(k.special(Special::CtaidY), rows_per_block);
    let listed = p.tokens.map(|list| k.at(list, start));
    let x = if gated { p.x } else { k.row(p.x, start, p.cols) };
    let w = k.row(p.w, k.mul(local, p.rows.reg()), p.cols);
    // Results have two or four bytes.
    let wide = if gated { p.rows } else { k.scale(p.rows, 2) };
    let out = k.row(p.out, start, wide);
    let block = Block {
        k: &k,
        tile,
        output,
        factor: p.factor,
        tokens,
        rows: p.rows.reg(),
        apart: p.apart,
        listed,
        tid,
        lane,
        warp,
        first_token,
        first_row,
    };
    let copier = block.copier([x, w], p.cols);
    let zero = k.var(0u32);
    let sums = block.multiply(&copier, zero, p.cols.reg());
    block.store(&sums, (out, p.rows), (zero, zero));
    k
}
