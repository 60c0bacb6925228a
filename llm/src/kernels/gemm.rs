//! Matrix times many vectors on the tensor cores: `out[t][r] = x[t] · w[r]` for f16 factors, summed in single precision.
//!
//! A block computes a tile of tokens by rows. Its slices of both factors run through a ring in shared memory that asynchronous copies
//! keep filled; the ring is swizzled, so that neither the copies nor `ldmatrix` meet in a bank. A warp holds its part of the
//! tile in registers and loads the fragments of the next step while it multiplies those of this one.

use half::f16;
use ptxgen::{Accumulator, F16x2, Kernel, Pointer, Reg, Shared, Special, TileA, TileB, Transpose};
use serde::{Deserialize, Serialize};

use super::matvec::silu_times;

/// The shape of a block's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// Tokens of a block's tile.
    pub tokens: u32,
    /// Rows of the matrix in a block's tile.
    pub rows: u32,
    /// Values of each that a slice holds: 32 or 64.
    pub depth: u32,
    /// Warps along the tokens and along the rows.
    pub warps: [u32; 2],
    /// Slices in the ring.
    pub stages: u32,
}

/// What happens to the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// `out[share][t][r]`, in f32.
    Sums,
    /// `out[t][r] = silu(w[r]·x[t]) · (w[rows + r]·x[t])`, in f16: the matrix has gate rows, then as many up rows.
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

/// Row lengths must be multiples of this.
pub const DEPTH: u32 = 64;

/// The tiles that there are kernels for, the largest first.
pub const TILES: [Tile; 3] = [
    Tile::new(128, 256, 32, [2, 4], 4),
    Tile::new(128, 128, 64, [2, 2], 3),
    Tile::new(64, 128, 64, [1, 4], 4),
];

/// Tiles that are worth trying beside them, where a kernel can be compiled.
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

/// How much of the first tile's rate the others reach, in percent, measured on an H200 (`examples/gemm.rs`, gate and up of a 1B
/// model).
const RATES: [u64; TILES.len()] = [100, 83, 68];
/// Multiply-adds in the time that writing and reading one byte of a result takes, on the whole GPU: what a further part of the row
/// length costs.
const STORE: u64 = 160;
/// The most parts that the row length is split into.
const SHARES: u32 = 8;

/// Into how many parts the row length `cols` of a product may be split.
pub fn splits(output: Output, cols: u32) -> impl Iterator<Item = u32> {
    let slices = cols / DEPTH;
    [1, 2, 4, 8].into_iter().filter(move |s| {
        *s == 1 || (output == Output::Sums && *s <= SHARES && slices.is_multiple_of(*s) && slices / s >= 4)
    })
}

/// The tile for a product, and into how many parts to split its row length so that all of `sm_count` multiprocessors have work.
pub fn choose(output: Output, tokens: u32, rows: u32, cols: u32, sm_count: u32) -> (Tile, u32) {
    let all = splits(output, cols)
        .flat_map(|shares| TILES.into_iter().zip(RATES).map(move |(tile, rate)| (tile, rate, shares)));
    let cost = |&(tile, rate, shares): &(Tile, u64, u32)| {
        let [x, y, z] = tile.grid(output, tokens, rows, shares).map(u64::from);
        let turns = (x * y * z).div_ceil(sm_count.into());
        let block = u64::from(tile.tokens) * u64::from(tile.rows) * u64::from(cols / shares) * 100 / rate;
        let stored = 4 * u64::from(tokens) * u64::from(rows) * u64::from(shares);
        turns * block + stored * STORE / u64::from(sm_count)
    };
    // There is always the first.
    all.min_by_key(cost).map_or((TILES[0], 1), |(tile, _, shares)| (tile, shares))
}

impl Tile {
    /// `tokens` x `rows` x `depth` with `warps`, and a ring of `stages`.
    pub const fn new(tokens: u32, rows: u32, depth: u32, warps: [u32; 2], stages: u32) -> Self {
        Self { tokens, rows, depth, warps, stages }
    }

    /// Whether a kernel can be written with it.
    pub fn is_valid(self) -> bool {
        let Tile { tokens, rows, depth, warps: [m, n], stages } = self;
        let few = |warps: u32| [1, 2, 4, 8].contains(&warps);
        let size = |values: u32| [32, 64, 128, 256].contains(&values);
        if !(few(m) && few(n) && m * n <= 16 && size(tokens) && size(rows) && [32, 64].contains(&depth)) {
            return false;
        }
        // Each thread copies whole pieces, and keeps at most 128 sums.
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

    /// Where piece `piece` of row `row` lies in its row: eight consecutive rows have any one piece in eight different
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

/// The kernel of `tile` and `output`: `(x, w, out, tokens, rows, cols, pitch, share, share_pitch)`. `x` is `[tokens][cols]`, `w` is
/// `[rows][cols]` (twice as many rows for [`Output::Gate`]), `out` has rows of `pitch` values. Block z of the grid sums values
/// `share` · z to `share` · (z + 1) of each row into the part of `out` that starts `share_pitch` · z rows in. `cols` and `share` are
/// multiples of [`DEPTH`], `rows` and `pitch` are even.
pub fn kernel(tile: Tile, output: Output) -> Kernel {
    let k = Kernel::new(&tile.kernel_name(output));
    k.max_threads(tile.threads());
    let x = k.param_ptr::<f16>("x", 16);
    let w = k.param_ptr::<f16>("w", 16);
    let out = k.param_ptr::<f16>("out", 16);
    let tokens = k.param::<u32>("tokens");
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", DEPTH);
    let pitch = k.param_multiple("pitch", 2);
    let share = k.param_multiple("share", DEPTH);
    let share_pitch = k.param::<u32>("share_pitch");

    let tid = k.special(Special::TidX);
    let (lane, warp) = (k.and(tid, 31), k.shr(tid, 5));
    let part = k.special(Special::CtaidZ);
    let first_token = k.mul(k.special(Special::CtaidX), tile.tokens);
    let rows_per_block = if output == Output::Gate { tile.rows / 2 } else { tile.rows };
    let first_row = k.scale(k.special(Special::CtaidY), rows_per_block);

    // What this thread copies of a slice: one piece of every `step`th row.
    let pieces = tile.pieces();
    let step = tile.threads() / pieces;
    let (own_row, own_piece) = (k.shr(tid, pieces.trailing_zeros()), k.and(tid, pieces - 1));
    let row_pieces = k.halve(cols, 3).reg();
    let sources = |count: u32, row: &dyn Fn(Reg<u32>) -> Reg<u32>| -> Vec<Reg<u32>> {
        (0..count / step).map(|i| k.mad(row(k.add(own_row, i * step)), row_pieces, own_piece)).collect()
    };
    let last_token = k.sub(tokens, 1);
    let last_row = k.sub(rows, 1);
    // Past the ends the last ones are read again, and dropped in the end.
    let x_pieces = sources(tile.tokens, &|i| k.min(k.add(first_token, i), last_token));
    let w_pieces = sources(tile.rows, &|i| match output {
        Output::Sums => k.min(k.add(first_row.reg(), i), last_row),
        Output::Gate => {
            // Eights of gate rows alternate with the eights of up rows that belong to them.
            let row = k.bfi(i, k.shl(k.shr(i, 4), 3), 0, 3);
            let row = k.min(k.add(first_row.reg(), row), last_row);
            k.mad(k.bfe(i, 3, 1), rows, row)
        }
    });
    let ring = k.dynamic_shared::<f16>();
    let landing = tile.piece(&k, ring, own_row, own_piece);
    let w_slice = i64::from(tile.tokens * tile.row_bytes());

    let begin = k.mul(part, share.reg());
    let values = k.min(k.sub(cols.reg(), begin), share.reg());
    let slices = k.shr(values, tile.depth.trailing_zeros());
    let next_piece = k.var(k.shr(begin, 3));
    let copy = |slot: Reg<u32>| {
        let to = k.at_stride(landing, slot, tile.stage_bytes());
        let row = |i: usize| i as i64 * i64::from(step * tile.row_bytes());
        let (x, w) = (k.at_stride(x, next_piece, 16), k.at_stride(w, next_piece, 16));
        for (i, piece) in x_pieces.iter().enumerate() {
            k.copy_async(to.plus_bytes(row(i)), k.at_stride(x, *piece, 16), 8);
        }
        for (i, piece) in w_pieces.iter().enumerate() {
            k.copy_async(to.plus_bytes(w_slice + row(i)), k.at_stride(w, *piece, 16), 8);
        }
        k.add_to(next_piece, pieces);
    };
    for slot in 0..tile.stages - 1 {
        k.if_(k.gt(slices, slot), || copy(k.var(slot)));
        k.commit_copies();
    }

    // What this warp multiplies: fragments of 16 tokens, and pairs of fragments of 8 rows.
    let [warp_tokens, warp_rows] = [tile.tokens / tile.warps[0], tile.rows / tile.warps[1]];
    let (across, along) = (k.rem(warp, tile.warps[0]), k.div(warp, tile.warps[0]));
    let token_row = k.mad(across, warp_tokens, k.and(lane, 15));
    let matrix_row = k.bfi(k.shr(lane, 4), k.and(lane, 7), 3, 1);
    let matrix_row = k.mad(along, warp_rows, matrix_row);
    let steps = tile.depth / 16;
    let corners: Vec<_> = (0..steps)
        .map(|s| {
            let x = tile.piece(&k, ring, token_row, k.add(k.shr(lane, 4), 2 * s));
            let w = tile.piece(&k, ring, matrix_row, k.add(k.bfe(lane, 3, 1), 2 * s));
            (x, w.plus_bytes(w_slice))
        })
        .collect();
    let fragments: Vec<_> = (0..2).map(|_| Fragments::new(&k, warp_tokens, warp_rows)).collect();
    let fetch = |s: u32, slot: Reg<u32>| {
        let (x, w) = corners[s as usize];
        let at = |p| k.at_stride(p, slot, tile.stage_bytes());
        fragments[s as usize % 2].load(&k, at(x), at(w), tile.row_bytes());
    };
    let sums: Vec<Vec<Accumulator>> =
        (0..warp_tokens / 16).map(|_| (0..warp_rows / 8).map(|_| k.accumulator()).collect()).collect();

    let (reading, filling) = (k.var(0u32), k.var(tile.stages - 1));
    let advance = |slot: Reg<u32>| {
        let next = k.add(slot, 1);
        k.set(slot, k.select(k.eq(next, tile.stages), 0u32, next));
    };
    k.wait_copies(tile.stages - 2);
    k.sync_threads();
    fetch(0, reading);
    k.for_(0u32, slices, 1u32, |slice: Reg<u32>| {
        for s in 0..steps {
            if s + 1 == steps {
                // The next slice is there, and nobody reads this one any more.
                k.wait_copies(tile.stages - 2);
                k.sync_threads();
                advance(reading);
            }
            fetch((s + 1) % steps, reading);
            if s == 0 {
                k.if_(k.lt(k.add(slice, tile.stages - 1), slices), || copy(filling));
                k.commit_copies();
                advance(filling);
            }
            fragments[s as usize % 2].multiply(&k, &sums);
        }
    });

    let token = k.add(first_token, k.mad(across, warp_tokens, k.shr(lane, 2)));
    let pairs = if output == Output::Gate { warp_rows / 2 } else { warp_rows };
    let row = k.sum(k.scale(along, pairs), k.scale(k.and(lane, 3), 2));
    let row = k.sum(first_row, row);
    for (i, sums) in (0u32..).zip(&sums) {
        for half in 0..2usize {
            let token = k.add(token, 16 * i + 8 * half as u32);
            k.if_(k.lt(token, tokens), || {
                let pair = |sum: &Accumulator| [sum.0[2 * half], sum.0[2 * half + 1]];
                match output {
                    Output::Sums => {
                        let line = k.row(out.cast::<f32>(), k.mad(part, share_pitch, token), pitch);
                        let to = k.at(line, row);
                        for (j, sum) in (0u32..).zip(sums) {
                            let inside = k.lt(k.add(row.reg(), 8 * j), rows);
                            k.if_(inside, || k.store_n(to.plus(8 * i64::from(j)), &pair(sum)));
                        }
                    }
                    Output::Gate => {
                        let to = k.at(k.row(out, token, pitch), row).cast::<F16x2>();
                        for (j, both) in (0u32..).zip(sums.chunks_exact(2)) {
                            let (gate, up) = (pair(&both[0]), pair(&both[1]));
                            let inside = k.lt(k.add(row.reg(), 8 * j), rows);
                            k.if_(inside, || {
                                let [a, b] = [0, 1].map(|n| silu_times(&k, gate[n], up[n]));
                                k.store(to.plus(4 * i64::from(j)), k.pack_f32(a, b));
                            });
                        }
                    }
                }
            });
        }
    }
    k
}

/// What a warp multiplies in one step of 16 values.
struct Fragments {
    x: Vec<[Reg<F16x2>; 4]>,
    /// Each of two fragments of 8 rows.
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
