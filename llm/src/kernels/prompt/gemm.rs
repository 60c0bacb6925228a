//! Matrix times many vectors on the tensor cores: `out[t][r] = x[t] · w[r]` for f16 factors, summed in single
//! precision.
//!
//! A block computes a tile of tokens by rows. Slices of both factors pass through a ring in shared memory,
//! which asynchronous copies fill; the ring is swizzled, so that neither the copies nor `ldmatrix` have bank
//! conflicts. A warp holds its part of the tile in registers and loads the fragments of the next step while
//! it multiplies those of this one.

use half::f16;
use ptxgen::{
    Accumulator, F16x2, Global, Kernel, Multiple, Pointer, Ptr, Reg, Shared, Special, TileA, TileB,
    Transpose, kernel_params,
};
use serde::{Deserialize, Serialize};

use crate::kernels::activation::silu_times;

/// The shape of a block's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// Tokens of a block's tile.
    pub tokens: u32,
    /// Rows of the matrix in a block's tile.
    pub rows: u32,
    /// Values of each row in a slice: 32 or 64.
    pub depth: u32,
    /// Warps along the tokens and along the rows.
    pub warps: [u32; 2],
    /// Slices in the ring.
    pub stages: u32,
}

/// The use of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// `out[share][t][r]`, in f32.
    Sums,
    /// `out[t][r] = factor · silu(w[r]·x[t]) · (w[rows + r]·x[t])`, in f16: the matrix has gate rows, then as
    /// many up rows. The kernel takes the factor as another parameter.
    Gate,
}

impl Output {
    /// All of them.
    pub const ALL: [Output; 2] = [Output::Sums, Output::Gate];

    /// First part of kernel names.
    pub const fn name(self) -> &'static str {
        match self {
            Output::Sums => "gemm",
            Output::Gate => "gemm_gate",
        }
    }
}

/// The module of the committed kernels.
pub const NAME: &str = "gemm";
/// Row lengths must be multiples of this.
pub const DEPTH: u32 = 64;

/// The tiles of the committed kernels, the largest first.
pub const TILES: [Tile; 3] = [
    Tile::new(128, 256, 32, [2, 4], 4),
    Tile::new(128, 128, 64, [2, 2], 3),
    Tile::new(64, 128, 64, [1, 4], 4),
];

/// More tiles, which a search tries where it can compile kernels.
pub const MORE_TILES: [Tile; 8] = [
    Tile::new(256, 128, 32, [4, 2], 4),
    Tile::new(256, 128, 64, [4, 2], 3),
    Tile::new(128, 256, 64, [2, 4], 3),
    Tile::new(128, 256, 32, [2, 4], 3),
    Tile::new(128, 128, 32, [2, 2], 4),
    Tile::new(128, 128, 64, [2, 4], 3),
    Tile::new(128, 64, 64, [2, 2], 4),
    Tile::new(64, 64, 64, [2, 2], 4),
];

/// Rates of the tiles in percent of the first one's with one block per SM, measured on an H200
/// (`llm/tools/examples/gemm.rs`, gate and up of a 1B model).
pub(super) const RATES: [u64; TILES.len()] = [100, 83, 68];
/// Most parts of a row length.
const SHARES: u32 = 8;

/// Into how many parts the row length `cols` of a product may be split.
pub fn splits(output: Output, cols: u32) -> impl Iterator<Item = u32> {
    let slices = cols / DEPTH;
    [1, 2, 4, 8].into_iter().filter(move |s| {
        *s == 1 || (output == Output::Sums && *s <= SHARES && slices.is_multiple_of(*s) && slices / s >= 4)
    })
}

impl Tile {
    /// `tokens` x `rows` x `depth` with `warps`, and a ring of `stages`.
    pub const fn new(tokens: u32, rows: u32, depth: u32, warps: [u32; 2], stages: u32) -> Self {
        Self { tokens, rows, depth, warps, stages }
    }

    /// Whether a kernel can be generated with this tile.
    pub fn is_valid(self) -> bool {
        let Tile { tokens, rows, depth, warps: [m, n], stages } = self;
        let few = |warps: u32| [1, 2, 4, 8].contains(&warps);
        let size = |values: u32| [32, 64, 128, 256].contains(&values);
        if !(few(m) && few(n) && m * n <= 16 && size(tokens) && size(rows) && [32, 64].contains(&depth)) {
            return false;
        }
        // Each thread copies whole pieces, and holds at most 128 sums.
        let step = self.threads() / self.pieces();
        (2..=8).contains(&stages)
            && tokens.is_multiple_of(16 * m)
            && rows.is_multiple_of(16 * n)
            && tokens.is_multiple_of(step)
            && rows.is_multiple_of(step)
            && tokens * rows / self.threads() <= 128
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        32 * self.warps[0] * self.warps[1]
    }

    /// Shared memory of a block, in bytes, set by the launch.
    pub const fn shared_bytes(self) -> u32 {
        self.stages * self.stage_bytes()
    }

    /// Name of the kernel.
    pub fn kernel_name(self, output: Output) -> String {
        let Tile { tokens, rows, depth, warps: [m, n], stages } = self;
        let output = output.name();
        format!("{output}_{tokens}x{rows}x{depth}_{m}x{n}_{stages}")
    }

    /// Blocks for `tokens` and `rows` results, and `shares` parts of the row length.
    pub const fn grid(self, output: Output, tokens: u32, rows: u32, shares: u32) -> [u32; 3] {
        let rows_per_block = match output {
            Output::Sums => self.rows,
            Output::Gate => self.rows / 2,
        };
        [tokens.div_ceil(self.tokens), rows.div_ceil(rows_per_block), shares]
    }

    const fn stage_bytes(self) -> u32 {
        (self.tokens + self.rows) * self.row_bytes()
    }

    const fn row_bytes(self) -> u32 {
        2 * self.depth
    }

    /// Pieces of 16 bytes in a row of a slice.
    const fn pieces(self) -> u32 {
        self.depth / 8
    }

    /// The place of piece `piece` in row `row`: eight consecutive rows have the same piece in eight different
    /// sixteenths of 128 bytes.
    fn swizzled(self, k: &Kernel, row: Reg<u32>, piece: Reg<u32>) -> Reg<u32> {
        let twist = if self.depth == 64 { k.and(row, 7) } else { k.and(k.shr(row, 1), 3) };
        k.xor(piece, twist)
    }

    /// The address of piece `piece` of row `row` of the slice at `slice`.
    fn piece(
        self,
        k: &Kernel,
        slice: Pointer<Shared, f16>,
        row: Reg<u32>,
        piece: Reg<u32>,
    ) -> Pointer<Shared, f16> {
        k.at_stride(slice, k.mad(row, self.pieces(), self.swizzled(k, row, piece)), 16)
    }
}

kernel_params! {
    /// Parameters of the product of a tile and an output. `multiple` is what the number of values in a row of
    /// results is a multiple of.
    pub struct Gemm(output: Output, multiple: u32) {
        x: Ptr<f16, 16>, w: Ptr<f16, 16>, out: Ptr<f16, 16>, tokens: u32, rows: u32,
        cols: Multiple = DEPTH, pitch: Multiple = multiple, share: Multiple = DEPTH, share_pitch: u32,
        factor: Option<f32> = (output == Output::Gate).then_some(()),
    }
}

/// The kernel of `tile` and `output`, which takes [`Gemm`].
///
/// `x` is `[tokens][cols]`, `w` is `[rows][cols]` (twice as many rows for [`Output::Gate`]), `out` has rows
/// of `pitch` values. Block z of the grid sums values `share` · z to `share` · (z + 1) of each row into the
/// part of `out` that starts `share_pitch` · z rows in. `cols` and `share` are multiples of [`DEPTH`], `rows`
/// and `pitch` are even. [`Output::Gate`] takes another parameter, `factor`.
pub fn kernel(tile: Tile, output: Output) -> Kernel {
    let k = Kernel::new(&tile.kernel_name(output));
    k.max_threads(tile.threads());
    let p = Gemm::declare(&k, output, 2);

    let tid = k.special(Special::TidX);
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let part = k.special(Special::CtaidZ);
    let first_token = k.mul(k.special(Special::CtaidX), tile.tokens);
    let rows_per_block = if output == Output::Gate { tile.rows / 2 } else { tile.rows };
    let first_row = k.scale(k.special(Special::CtaidY), rows_per_block);
    let block = Block {
        k: &k,
        tile,
        output,
        factor: p.factor,
        tokens: p.tokens,
        rows: p.rows,
        apart: p.rows,
        listed: None,
        tid,
        lane,
        warp,
        first_token,
        first_row,
    };

    let copier = block.copier([p.x, p.w], p.cols);
    let begin = k.mul(part, p.share.reg());
    let values = k.min(k.sub(p.cols.reg(), begin), p.share.reg());
    let warps = block.multiply(&copier, begin, values);
    block.store(&warps, (p.out, p.pitch), (part, p.share_pitch));
    k
}

/// The state of a thread block.
pub(crate) struct Block<'a> {
    pub k: &'a Kernel,
    pub tile: Tile,
    pub output: Output,
    /// Of [`Output::Gate`].
    pub factor: Option<Reg<f32>>,
    pub tokens: Reg<u32>,
    pub rows: Reg<u32>,
    /// Rows from one of a gate to the one of up that belongs to it.
    pub apart: Reg<u32>,
    /// The row of `x` for each token, unless it is the token's number.
    pub listed: Option<Pointer<Global, u32>>,
    pub tid: Reg<u32>,
    pub lane: Reg<u32>,
    pub warp: Reg<u32>,
    pub first_token: Reg<u32>,
    pub first_row: Multiple,
}

/// A thread's part of the copy of each slice: one piece of every `step`th row.
pub(crate) struct Copier {
    x: Pointer<Global, f16>,
    w: Pointer<Global, f16>,
    x_pieces: Vec<Reg<u32>>,
    w_pieces: Vec<Reg<u32>>,
    step: u32,
    ring: Pointer<Shared, f16>,
    landing: Pointer<Shared, f16>,
}

/// A warp's part of the product: fragments of 16 tokens, and pairs of fragments of 8 rows.
pub(crate) struct WarpTile {
    tokens: u32,
    rows: u32,
    /// The warp's place along the tokens and along the rows.
    across: Reg<u32>,
    along: Reg<u32>,
    /// Start of the fragments of both factors, per step of 16 values.
    corners: Vec<[Pointer<Shared, f16>; 2]>,
    fragments: [Fragments; 2],
    sums: Vec<Vec<Accumulator>>,
}

impl Block<'_> {
    /// From the start of a slice of tokens to that of the rows.
    fn w_slice(&self) -> i64 {
        i64::from(self.tile.tokens * self.tile.row_bytes())
    }

    pub fn copier(&self, [x, w]: [Pointer<Global, f16>; 2], cols: Multiple) -> Copier {
        let (k, tile) = (self.k, self.tile);
        let pieces = tile.pieces();
        let step = tile.threads() / pieces;
        let (own_row, own_piece) = (k.shr(self.tid, pieces.trailing_zeros()), k.and(self.tid, pieces - 1));
        let row_pieces = k.halve(cols, 3).reg();
        let sources = |count: u32, row: &dyn Fn(Reg<u32>) -> Reg<u32>| -> Vec<Reg<u32>> {
            (0..count / step).map(|i| k.mad(row(k.add(own_row, i * step)), row_pieces, own_piece)).collect()
        };
        let last_token = k.sub(self.tokens, 1);
        let last_row = k.sub(self.rows, 1);
        // Past the ends the last ones are read again; their results are not stored.
        let x_pieces = sources(tile.tokens, &|i| {
            let token = k.min(k.add(self.first_token, i), last_token);
            self.listed.map_or(token, |rows| k.load(k.at(rows, token)))
        });
        let w_pieces = sources(tile.rows, &|i| match self.output {
            Output::Sums => k.min(k.add(self.first_row.reg(), i), last_row),
            Output::Gate => {
                // Eight gate rows alternate with the eight up rows that belong to them.
                let row = k.bfi(i, k.shl(k.shr(i, 4), 3), 0, 3);
                let row = k.min(k.add(self.first_row.reg(), row), last_row);
                k.mad(k.bfe(i, 3, 1), self.apart, row)
            }
        });
        let ring = k.dynamic_shared::<f16>();
        let landing = tile.piece(k, ring, own_row, own_piece);
        Copier { x, w, x_pieces, w_pieces, step, ring, landing }
    }

    fn warp_tile(&self, ring: Pointer<Shared, f16>) -> WarpTile {
        let (k, tile, lane) = (self.k, self.tile, self.lane);
        let [tokens, rows] = [tile.tokens / tile.warps[0], tile.rows / tile.warps[1]];
        let (across, along) = (k.rem(self.warp, tile.warps[0]), k.div(self.warp, tile.warps[0]));
        let token_row = k.mad(across, tokens, k.and(lane, 15));
        let matrix_row = k.bfi(k.shr(lane, 4), k.and(lane, 7), 3, 1);
        let matrix_row = k.mad(along, rows, matrix_row);
        let corners = (0..tile.depth / 16)
            .map(|s| {
                let x = tile.piece(k, ring, token_row, k.add(k.shr(lane, 4), 2 * s));
                let w = tile.piece(k, ring, matrix_row, k.add(k.bfe(lane, 3, 1), 2 * s));
                [x, w.plus_bytes(self.w_slice())]
            })
            .collect();
        let fragments = [(); 2].map(|()| Fragments::new(k, tokens, rows));
        let sums = (0..tokens / 16).map(|_| (0..rows / 8).map(|_| k.accumulator()).collect()).collect();
        WarpTile { tokens, rows, across, along, corners, fragments, sums }
    }

    /// The sums of `values` values of each row from value `begin` on.
    pub fn multiply(&self, copier: &Copier, begin: Reg<u32>, values: Reg<u32>) -> WarpTile {
        let (k, tile) = (self.k, self.tile);
        let slices = k.shr(values, tile.depth.trailing_zeros());
        let next_piece = k.var(k.shr(begin, 3));
        for slot in 0..tile.stages - 1 {
            k.if_(k.gt(slices, slot), || copier.copy(self, k.var(slot), next_piece));
            k.commit_copies();
        }

        let warps = self.warp_tile(copier.ring);
        let steps = tile.depth / 16;
        let (reading, filling) = (k.var(0u32), k.var(tile.stages - 1));
        let advance = |slot: Reg<u32>, by: Reg<u32>| {
            let next = k.add(slot, by);
            k.set(slot, k.select(k.eq(next, tile.stages), 0u32, next));
        };
        k.wait_copies(tile.stages - 2);
        k.sync_threads();
        warps.fetch(self, 0, reading);
        k.for_(0u32, slices, 1u32, |slice: Reg<u32>| {
            for s in 0..steps {
                if s + 1 == steps {
                    // The next slice has arrived, and no warp reads this one any more.
                    k.wait_copies(tile.stages - 2);
                    k.sync_threads();
                    // After the last slice its own first fragments are fetched again: the next slot may never
                    // have been filled.
                    advance(reading, k.select(k.lt(k.add(slice, 1), slices), 1u32, 0u32));
                }
                warps.fetch(self, (s + 1) % steps, reading);
                if s == 0 {
                    let more = k.lt(k.add(slice, tile.stages - 1), slices);
                    k.if_(more, || copier.copy(self, filling, next_piece));
                    k.commit_copies();
                    advance(filling, k.var(1u32));
                }
                warps.fragments[s as usize % 2].multiply(k, &warps.sums);
            }
        });
        warps
    }

    /// Stores the results of the warp's sums.
    pub fn store(
        &self,
        warps: &WarpTile,
        (out, pitch): (Pointer<Global, f16>, Multiple),
        (part, share_pitch): (Reg<u32>, Reg<u32>),
    ) {
        let k = self.k;
        let token = k.mad(warps.across, warps.tokens, k.shr(self.lane, 2));
        let token = k.add(self.first_token, token);
        let pairs = if self.output == Output::Gate { warps.rows / 2 } else { warps.rows };
        let row = k.sum(k.scale(warps.along, pairs), k.scale(k.and(self.lane, 3), 2));
        let row = k.sum(self.first_row, row);
        for (i, sums) in (0u32..).zip(&warps.sums) {
            for half in 0..2usize {
                let token = k.add(token, 16 * i + 8 * half as u32);
                let pair = |sum: &Accumulator| [sum.0[2 * half], sum.0[2 * half + 1]];
                let inside = |j: u32| k.lt(k.add(row.reg(), 8 * j), self.rows);
                k.if_(k.lt(token, self.tokens), || match self.output {
                    Output::Sums => {
                        let line = k.row(out.cast::<f32>(), k.mad(part, share_pitch, token), pitch);
                        let to = k.at(line, row);
                        for (j, sum) in (0u32..).zip(sums) {
                            k.if_(inside(j), || k.store_n(to.plus(8 * i64::from(j)), &pair(sum)));
                        }
                    }
                    Output::Gate => {
                        let to = k.at(k.row(out, token, pitch), row).cast::<F16x2>();
                        for (j, both) in (0u32..).zip(sums.chunks_exact(2)) {
                            let (gate, up) = (pair(&both[0]), pair(&both[1]));
                            k.if_(inside(j), || {
                                let scaled = |v| self.factor.map_or(v, |factor| k.mul(v, factor));
                                let [a, b] = [0, 1].map(|n| scaled(silu_times(k, gate[n], up[n])));
                                k.store(to.plus(4 * i64::from(j)), k.pack_f32(a, b));
                            });
                        }
                    }
                });
            }
        }
    }
}

impl Copier {
    /// Starts to copy the slice at `next_piece` to slot `slot` of the ring, and moves on to the next slice.
    fn copy(&self, block: &Block<'_>, slot: Reg<u32>, next_piece: Reg<u32>) {
        let (k, tile) = (block.k, block.tile);
        let to = k.at_stride(self.landing, slot, tile.stage_bytes());
        let row = |i: usize| i as i64 * i64::from(self.step * tile.row_bytes());
        let (x, w) = (k.at_stride(self.x, next_piece, 16), k.at_stride(self.w, next_piece, 16));
        for (i, piece) in self.x_pieces.iter().enumerate() {
            k.copy_async(to.plus_bytes(row(i)), k.at_stride(x, *piece, 16), 8);
        }
        for (i, piece) in self.w_pieces.iter().enumerate() {
            k.copy_async(to.plus_bytes(block.w_slice() + row(i)), k.at_stride(w, *piece, 16), 8);
        }
        k.add_to(next_piece, tile.pieces());
    }
}

impl WarpTile {
    /// Loads the fragments of step `s` of the slice in slot `slot`.
    fn fetch(&self, block: &Block<'_>, s: u32, slot: Reg<u32>) {
        let [x, w] = self.corners[s as usize];
        let at = |p| block.k.at_stride(p, slot, block.tile.stage_bytes());
        self.fragments[s as usize % 2].load(block.k, at(x), at(w), block.tile.row_bytes());
    }
}

/// The factors of one step of 16 values.
struct Fragments {
    x: Vec<[Reg<F16x2>; 4]>,
    /// Two fragments of 8 rows each.
    w: Vec<[Reg<F16x2>; 4]>,
}

impl Fragments {
    fn new(k: &Kernel, tokens: u32, rows: u32) -> Self {
        let of = |count: u32| (0..count / 16).map(|_| k.matrices()).collect();
        Self { x: of(tokens), w: of(rows) }
    }

    fn load(&self, k: &Kernel, x: Pointer<Shared, f16>, w: Pointer<Shared, f16>, row_bytes: u32) {
        for (from, all) in [(x, &self.x), (w, &self.w)] {
            for (i, to) in (0i64..).zip(all) {
                k.load_matrices(*to, from.plus_bytes(16 * i * i64::from(row_bytes)), Transpose::No);
            }
        }
    }

    fn multiply(&self, k: &Kernel, sums: &[Vec<Accumulator>]) {
        for (x, sums) in self.x.iter().zip(sums) {
            for (w, pair) in self.w.iter().zip(sums.chunks_exact(2)) {
                let [a, b, c, d] = *w;
                k.multiply(pair[0], TileA(*x), TileB([a, b]));
                k.multiply(pair[1], TileA(*x), TileB([c, d]));
            }
        }
    }
}
