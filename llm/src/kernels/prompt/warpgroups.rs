//! Matrix times many vectors by Hopper's warpgroups: what [`gemm`](super::gemm) computes, for whole tiles.
//!
//! One warpgroup of a block, the producer, copies slices of both factors to a ring in shared memory; the
//! others multiply them from there (`wgmma`), each 64 tokens by all rows of the block's tile. Barrier objects
//! say which slots are full and which empty, so that the producer is several slices ahead, over the ends of
//! tiles too: a block computes one tile after the other.
//!
//! Every wait for a barrier object is bounded and ends in a trap.

use half::f16;
use ptxgen::{
    F16x2, Global, Kernel, Mbarrier, Multiple, Number, Pointer, Poll, Pred, Reg, Shared, SharedRows, Shuffle,
    Special, Target, WarpgroupSums,
};
use serde::{Deserialize, Serialize};

use crate::kernels::activation::silu_times;
use crate::kernels::prompt::gemm::{Gemm, Output};

/// The module of the committed kernels.
pub const NAME: &str = "gemm_warpgroups";
/// The target that has them. Its code runs on no other generation.
pub const TARGET: Target = Target::Sm90a;

/// The shape of a block's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// Warpgroups that multiply, each 64 tokens: 1 or 2.
    pub consumers: u32,
    /// Rows of the matrix: 128 or 256.
    pub rows: u32,
    /// Slices in the ring, of 64 values.
    pub stages: u32,
}

/// The tiles of the committed kernels, the largest first.
pub const TILES: [Tile; 3] = [Tile::new(2, 256, 4), Tile::new(2, 128, 6), Tile::new(1, 128, 6)];

/// Rates of the tiles, in percent of that of the first tile of [`gemm`](super::gemm): products of 2048 and of
/// 1024 on an H200 (docs/notes/products.md, "Tiles of products").
pub(super) const RATES: [u64; TILES.len()] = [150, 142, 96];

/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;
/// Tokens that a warpgroup multiplies.
const TOKENS: u32 = 64;
/// Rows of a factor that the producer copies at once, 16 bytes of each by a thread.
const PASS: u32 = WARPGROUP / PIECES;
/// Pieces of 16 bytes in a row of a slice.
const PIECES: u32 = SharedRows::ROW_BYTES / 16;
/// Polls of a barrier object, each of which suspends the thread for up to microseconds, before the launch
/// ends with an error.
const MOST_POLLS: u32 = 1 << 20;
impl Tile {
    const fn new(consumers: u32, rows: u32, stages: u32) -> Self {
        Self { consumers, rows, stages }
    }

    /// Tokens of a block's tile.
    pub const fn tokens(self) -> u32 {
        TOKENS * self.consumers
    }

    /// Registers of every thread when a block begins, then those that the producer keeps and those that each
    /// consumer has: no more in all. What is left of an SM has room for a block that expands weights (two warps
    /// of 48 registers), beside 128 rows for seven.
    const fn registers(self) -> Option<[u32; 3]> {
        match (self.consumers, self.rows) {
            (2, 256) => Some([160, 40, 216]),
            (2, 128) => Some([112, 40, 144]),
            _ => None,
        }
    }

    /// Whether there is a kernel with this tile.
    pub fn is_valid(self) -> bool {
        TILES.contains(&self)
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        WARPGROUP * (1 + self.consumers)
    }

    /// Shared memory of a block, in bytes, set by the launch.
    pub const fn shared_bytes(self) -> u32 {
        self.stages * (self.stage_bytes() + 2 * 8)
    }

    /// Name of the kernel.
    pub fn kernel_name(self, output: Output) -> String {
        format!("{}_warpgroups_{}x{}_{}", output.name(), self.tokens(), self.rows, self.stages)
    }

    /// Results per token of a tile.
    const fn results(self, output: Output) -> u32 {
        match output {
            Output::Sums => self.rows,
            Output::Gate => self.rows / 2,
        }
    }

    /// Tiles of `tokens` x `rows` results; `None` if they are not whole ones.
    pub const fn count(self, output: Output, tokens: u32, rows: u32) -> Option<u32> {
        if !tokens.is_multiple_of(self.tokens()) || !rows.is_multiple_of(self.results(output)) {
            return None;
        }
        Some((tokens / self.tokens()) * (rows / self.results(output)))
    }

    /// Blocks for `tiles` tiles and `shares` parts of the row length on `sm_count` multiprocessors: no more
    /// than run at once.
    pub fn grid(self, tiles: u32, shares: u32, sm_count: u32) -> [u32; 3] {
        [tiles.min(sm_count / shares).max(1), 1, shares]
    }

    const fn stage_bytes(self) -> u32 {
        (self.tokens() + self.rows) * SharedRows::ROW_BYTES
    }
}

/// The kernel of `tile` and `output`, with the parameters of [`gemm::kernel`](super::gemm::kernel): `tokens`
/// and `rows` are those of whole tiles, `pitch` is a multiple of 8. Block z of the grid sums part z of the row
/// length; in the other dimension any number of blocks, each of [`Tile::threads`] threads, share the tiles.
pub fn kernel(tile: Tile, output: Output) -> Kernel {
    let k = Kernel::new(&tile.kernel_name(output));
    k.max_threads(tile.threads());
    if let Some([all, ..]) = tile.registers() {
        k.max_registers(all);
    }
    k.keep_loops();
    let p = Gemm::declare(&k, output, 8);

    let tid = k.special(Special::TidX);
    let ring = k.dynamic_shared_aligned::<f16>(SharedRows::ALIGNMENT);
    let full = ring.plus_bytes((tile.stages * tile.stage_bytes()).into()).cast::<Mbarrier>();
    let empty = full.plus(tile.stages.into());
    k.if_(k.eq(tid, 0), || {
        for stage in 0..tile.stages.into() {
            k.init_mbarrier(full.plus(stage), WARPGROUP);
            k.init_mbarrier(empty.plus(stage), tile.consumers * WARPGROUP / 32);
        }
    });
    k.sync_threads();
    let part = k.special(Special::CtaidZ);
    let begin = k.mul(part, p.share.reg());
    let values = k.min(k.sub(p.cols.reg(), begin), p.share.reg());
    let slices = k.shr(values, SharedRows::VALUES.trailing_zeros());
    let across = k.shr(p.tokens, tile.tokens().trailing_zeros());
    let along = k.shr(p.rows, tile.results(output).trailing_zeros());
    let place = Place { slot: k.var(0u32), parity: k.var(0u32) };
    let tiles = k.mul(across, along);
    let block = Block { k: &k, tile, output, tid, ring, full, empty, place, across, tiles, slices };
    k.if_else(
        k.lt(tid, WARPGROUP),
        || {
            tile.registers().inspect(|[_, few, _]| k.release_registers(*few));
            let rows = match output {
                Output::Sums => vec![k.var(0u32)],
                Output::Gate => vec![k.var(0u32), p.rows],
            };
            block.produce([p.x, p.w], p.cols, begin, &rows);
        },
        || {
            tile.registers().inspect(|[.., many]| k.claim_registers(*many));
            block.consume(&Results {
                out: p.out,
                pitch: p.pitch,
                first: k.mul(part, p.share_pitch),
                factor: p.factor,
            });
        },
    );
    k
}

/// A slot of the ring, and the parity of the phase that its objects are in.
struct Place {
    slot: Reg<u32>,
    parity: Reg<u32>,
}

/// Destination of sums.
struct Results {
    out: Pointer<Global, f16>,
    pitch: Multiple,
    /// The row of the first token.
    first: Reg<u32>,
    /// Of [`Output::Gate`].
    factor: Option<Reg<f32>>,
}

struct Block<'a> {
    k: &'a Kernel,
    tile: Tile,
    output: Output,
    tid: Reg<u32>,
    ring: Pointer<Shared, f16>,
    /// Objects of the slots: filled, and read.
    full: Pointer<Shared, Mbarrier>,
    empty: Pointer<Shared, Mbarrier>,
    place: Place,
    /// Tiles along the tokens, and all of them.
    across: Reg<u32>,
    tiles: Reg<u32>,
    slices: Reg<u32>,
}

impl Block<'_> {
    /// Waits until the phase of `parity` is complete; traps if it does not end.
    fn wait(&self, barrier: Pointer<Shared, Mbarrier>, parity: Reg<u32>) {
        let k = self.k;
        let (polls, end) = (k.var(0u32), k.label());
        k.branch_if(k.phase_done(barrier, parity, Poll::Try), end);
        k.loop_(|l| {
            k.break_if(l, k.phase_done(barrier, parity, Poll::Try));
            k.add_to(polls, 1);
            k.if_(k.gt(polls, MOST_POLLS), || k.trap());
        });
        k.bind(end);
    }

    fn advance(&self) {
        let (k, Place { slot, parity }) = (self.k, &self.place);
        let next = k.add(*slot, 1);
        let wraps = k.eq(next, self.tile.stages);
        k.set(*slot, k.select(wraps, 0u32, next));
        k.set(*parity, k.select(wraps, k.xor(*parity, 1u32), *parity));
    }

    /// The slot before the current one.
    fn before(&self) -> Reg<u32> {
        let (k, slot) = (self.k, self.place.slot);
        k.select(k.eq(slot, 0u32), self.tile.stages - 1, k.sub(slot, 1u32))
    }

    /// For each of the block's tiles: its places along the tokens and along the rows.
    fn each_tile(&self, body: impl FnOnce(Reg<u32>, Reg<u32>)) {
        let k = self.k;
        k.for_(k.special(Special::CtaidX), self.tiles, k.special(Special::NctaidX), |number| {
            body(k.rem(number, self.across), k.div(number, self.across));
        });
    }

    /// Copies every slice of every tile, from value `begin` on, when its slot is empty. A tile has as many
    /// rows behind each of `starts`.
    fn produce(
        &self,
        [x, w]: [Pointer<Global, f16>; 2],
        cols: Multiple,
        begin: Reg<u32>,
        starts: &[Reg<u32>],
    ) {
        let (k, tile, tid) = (self.k, self.tile, self.tid);
        let (own_row, own_piece) = (k.shr(tid, PIECES.trailing_zeros()), k.and(tid, PIECES - 1));
        let landing = k.mad(own_row, PIECES, k.xor(own_piece, k.and(own_row, 7)));
        let landing = k.at_stride(self.ring, landing, 16);
        let row_pieces = k.halve(cols, 3).reg();
        let step = k.mul(row_pieces, PASS);
        let first_piece = k.add(own_piece, k.shr(begin, 3));
        let rows = tile.results(self.output);
        self.each_tile(|across, along| {
            let first = |row: Reg<u32>| k.var(k.mad(row, row_pieces, first_piece));
            let mut parts = vec![(x, first(k.mad(across, tile.tokens(), own_row)), tile.tokens())];
            let row = k.mad(along, rows, own_row);
            parts.extend(starts.iter().map(|start| (w, first(k.add(*start, row)), rows)));
            k.for_(0u32, self.slices, 1u32, |_| {
                let Place { slot, parity } = self.place;
                self.wait(k.at(self.empty, slot), k.xor(parity, 1u32));
                let to = k.at_stride(landing, slot, tile.stage_bytes());
                let mut offset = 0;
                for (factor, at, rows) in &parts {
                    for pass in 0..rows / PASS {
                        let from = k.at_stride(*factor, k.mad(step, pass, *at), 16);
                        k.copy_async(to.plus_bytes(offset), from, 8);
                        offset += i64::from(PASS * SharedRows::ROW_BYTES);
                    }
                    k.add_to(*at, PIECES);
                }
                k.arrive_after_copies(k.at(self.full, slot));
                self.advance();
            });
        });
    }

    /// Multiplies the slices of every tile when they are there, and stores the results.
    fn consume(&self, results: &Results) {
        let (k, tile) = (self.k, self.tile);
        let thread = k.sub(self.tid, WARPGROUP);
        let group = k.shr(thread, WARPGROUP.trailing_zeros());
        let lane = k.and(thread, 31);
        let sums = k.warpgroup_sums(tile.rows);
        let a = k.at_stride(self.ring, group, TOKENS * SharedRows::ROW_BYTES);
        let b = self.ring.plus_bytes((tile.tokens() * SharedRows::ROW_BYTES).into());
        let yes = k.eq(lane, lane);
        self.each_tile(|across, along| {
            for sum in sums.registers() {
                k.set(*sum, 0f32);
            }
            k.for_(0u32, self.slices, 1u32, |slice| {
                let Place { slot, parity } = self.place;
                self.wait(k.at(self.full, slot), parity);
                // The copies are ordinary writes; products read through the asynchronous proxy.
                k.fence_proxy_async();
                let of = |rows| k.shared_rows(k.at_stride(rows, slot, tile.stage_bytes()));
                let (a, b) = (of(a), of(b));
                k.fence_products();
                for value in (0..SharedRows::VALUES).step_by(SharedRows::STEP as usize) {
                    k.multiply_shared(&sums, k.rows_from(a, value), k.rows_from(b, value), yes);
                }
                k.commit_products();
                // The slot before has been read when the products from this one have begun.
                k.wait_products(1);
                let more = k.both(k.gt(slice, 0u32), k.eq(lane, 0));
                k.if_(more, || k.arrive(k.at(self.empty, self.before())));
                self.advance();
            });
            k.wait_products(0);
            k.if_(k.eq(lane, 0), || k.arrive(k.at(self.empty, self.before())));
            let token = k.mad(across, tile.tokens(), k.mad(group, TOKENS, self.own_token(thread)));
            // A thread stores four neighbours of 16 results, see `neighbours`.
            let row = k.scale(along, tile.results(self.output));
            let row = k.sum(row, k.scale(k.bfi(lane, k.bfe(lane, 1, 1), 1, 1), 4));
            self.store(&sums, results, (token, row), k.eq(k.and(lane, 1), 1u32));
        });
    }

    /// The first token of a thread's sums; the other is eight tokens further.
    fn own_token(&self, thread: Reg<u32>) -> Reg<u32> {
        let k = self.k;
        k.mad(k.bfe(thread, 5, 2), 16u32, k.bfe(thread, 2, 3))
    }

    /// Stores the results of a warpgroup; `token` and `row` are the first of the thread, whose lane is odd or
    /// not. Four threads together store 16 neighbouring results of a token.
    fn store(&self, sums: &WarpgroupSums, results: &Results, (token, row): (Reg<u32>, Multiple), odd: Pred) {
        let k = self.k;
        let &Results { out, pitch, first, factor } = results;
        let token = k.add(first, token);
        let tokens = [token, k.add(token, 8u32)];
        let sixteens: Vec<&[Reg<f32>]> = sums.registers().chunks_exact(8).collect();
        // Two columns of each eight, of the thread's token `h`.
        let pairs =
            |sixteen: &[Reg<f32>], h: usize| [0, 4].map(|at| [sixteen[at + 2 * h], sixteen[at + 2 * h + 1]]);
        match self.output {
            Output::Sums => {
                let lines = tokens.map(|token| k.at(k.row(out.cast::<f32>(), token, pitch), row));
                for (i, sixteen) in (0i64..).zip(sixteens) {
                    for (h, line) in lines.iter().enumerate() {
                        let [left, right] = pairs(sixteen, h);
                        k.store_n(line.plus(16 * i), &self.neighbours(&left, &right, odd));
                    }
                }
            }
            Output::Gate => {
                let lines = tokens.map(|token| k.at(k.row(out, token, pitch), row).cast::<F16x2>());
                let (gates, ups) = sixteens.split_at(sixteens.len() / 2);
                let scaled = |v| factor.map_or(v, |factor| k.mul(v, factor));
                let halves = |gate: [Reg<f32>; 2], up: [Reg<f32>; 2]| {
                    let [a, b] = [0, 1].map(|n| scaled(silu_times(k, gate[n], up[n])));
                    k.pack_f32(a, b)
                };
                for (i, (gate, up)) in (0i64..).zip(gates.iter().zip(ups)) {
                    for (h, line) in lines.iter().enumerate() {
                        let ([a, b], [c, d]) = (pairs(gate, h), pairs(up, h));
                        let both = self.neighbours(&[halves(a, c)], &[halves(b, d)], odd);
                        k.store_n(line.plus(8 * i), &both);
                    }
                }
            }
        }
    }

    /// Of 16 results, `left` of the first eight and `right` of the others belong to a lane. Neighbours exchange
    /// one each: then an even lane has four neighbouring results of the first eight, an odd one of the others.
    fn neighbours<T: Number>(&self, left: &[Reg<T>], right: &[Reg<T>], odd: Pred) -> Vec<Reg<T>> {
        let k = self.k;
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (l, r) in left.iter().zip(right) {
            let own = k.select(odd, *r, *l);
            let other = k.shuffle(k.select(odd, *l, *r), Shuffle::Xor(1));
            first.push(k.select(odd, other, own));
            second.push(k.select(odd, own, other));
        }
        first.extend(second);
        first
    }
}
