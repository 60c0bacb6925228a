//! A matrix product for Hopper's warpgroups: `out[t][r] = x[t] · w[r]` for f16 factors, summed in single
//! precision.
//!
//! One warpgroup of a block, the producer, copies slices of both factors to a ring in shared memory; the
//! others multiply them from there (`wgmma`), each 64 rows of `x` by all rows of `w` in the block's tile.
//! Barrier objects say which slots are full and which empty, so that the producer is several slices ahead,
//! over the ends of tiles too: a block computes one tile after the other.
//!
//! Every wait for a barrier object is bounded and ends in a trap.

use half::f16;
use ptxgen::{
    Global, Kernel, Mbarrier, Module, Multiple, Named, Pointer, Poll, Reg, Shared, SharedRows, Shuffle,
    Special, Target, WarpgroupSums,
};

/// The shape of a block's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Warpgroups that multiply, each 64 rows of `x`: 1 or 2.
    pub consumers: u32,
    /// Rows of `w`: a multiple of 16 up to 256.
    pub columns: u32,
    /// Slices in the ring.
    pub stages: u32,
}

/// The tiles that kernels are committed for, the largest first.
pub const TILES: [Tile; 3] = [Tile::new(2, 256, 4), Tile::new(2, 128, 6), Tile::new(1, 128, 6)];

/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;
/// Rows of `x` that a warpgroup multiplies.
const ROWS: u32 = 64;
/// Rows that the producer copies at once, 16 bytes of each by a thread.
const PASS: u32 = WARPGROUP / (SharedRows::ROW_BYTES / 16);
/// Polls of a barrier object, each of which suspends the thread for up to microseconds, before the launch
/// ends with an error.
const MOST_POLLS: u32 = 1 << 20;

impl Tile {
    const fn new(consumers: u32, columns: u32, stages: u32) -> Self {
        Self { consumers, columns, stages }
    }

    /// Rows of `x`.
    pub const fn rows(self) -> u32 {
        ROWS * self.consumers
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        WARPGROUP * (1 + self.consumers)
    }

    /// Name of the kernel.
    pub fn kernel_name(self) -> String {
        format!("product_{}x{}_{}", self.rows(), self.columns, self.stages)
    }

    const fn stage_bytes(self) -> u32 {
        (self.rows() + self.columns) * SharedRows::ROW_BYTES
    }

    /// Shared memory of a block, in bytes, set by the launch.
    pub const fn shared_bytes(self) -> u32 {
        self.stages * (self.stage_bytes() + 2 * 8)
    }

    /// Registers of a thread of the producer, and of the others, where a launch gives all fewer than 232:
    /// together no more than it gives, 168 each.
    const fn registers(self) -> Option<[u32; 2]> {
        if self.consumers == 2 { Some([40, 232]) } else { None }
    }

    /// Tiles of `rows` x `columns` results; `None` if they are not whole ones.
    pub const fn count(self, rows: u32, columns: u32) -> Option<u32> {
        if !rows.is_multiple_of(self.rows()) || !columns.is_multiple_of(self.columns) {
            return None;
        }
        Some((rows / self.rows()) * (columns / self.columns))
    }
}

/// The tile of a product of `rows` x `columns` results, and its number of tiles: the largest that leaves at
/// most a quarter of `sm_count` multiprocessors without work, or else the smallest. `None` if no tile fits.
pub fn choose(rows: u32, columns: u32, sm_count: u32) -> Option<(Tile, u32)> {
    let fitting = TILES.into_iter().filter_map(|tile| Some((tile, tile.count(rows, columns)?)));
    let mut last = None;
    for (tile, count) in fitting {
        last = Some((tile, count));
        if 4 * count >= 3 * sm_count {
            break;
        }
    }
    last
}

/// The committed kernels, for SM 9.0.
pub const CUBIN: &[u8] = include_bytes!("../kernels/conformance/product.sm_90a.cubin");

/// The module that is committed, for [`Target::Sm90a`].
pub(crate) fn module() -> Named {
    let mut module = Module::new(Target::Sm90a);
    for tile in TILES {
        module.add(kernel(tile));
    }
    Named { name: "product".to_owned(), module }
}

/// The kernel of `tile`: `(x, w, out, across, along, cols)`.
///
/// `x` has `across` tiles of rows, `w` has `along`, all rows are `cols` values long, a multiple of
/// [`SharedRows::VALUES`]; `out` is `[rows of x][rows of w]` in f32. Any number of blocks, each of
/// [`Tile::threads`] threads, share the tiles.
fn kernel(tile: Tile) -> Kernel {
    let k = Kernel::new(&tile.kernel_name());
    k.max_threads(tile.threads());
    k.min_blocks_per_sm(1);
    k.keep_loops();
    let x = k.param_ptr::<f16>("x", 16);
    let w = k.param_ptr::<f16>("w", 16);
    let out = k.param_ptr::<f32>("out", 16);
    let across = k.param::<u32>("across");
    let along = k.param::<u32>("along");
    let cols = k.param_multiple("cols", SharedRows::VALUES);

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
    let slices = k.shr(cols.reg(), SharedRows::VALUES.trailing_zeros());
    let place = Place { slot: k.var(0u32), parity: k.var(0u32) };
    let block =
        Block { k: &k, tile, tid, ring, full, empty, place, across, tiles: k.mul(across, along), slices };
    k.if_else(
        k.lt(tid, WARPGROUP),
        || {
            tile.registers().inspect(|[few, _]| k.release_registers(*few));
            block.produce([x, w], cols);
        },
        || {
            tile.registers().inspect(|[_, many]| k.claim_registers(*many));
            block.consume(out, along);
        },
    );
    k
}

/// A slot of the ring, and the parity of the phase that its objects are in.
struct Place {
    slot: Reg<u32>,
    parity: Reg<u32>,
}

struct Block<'a> {
    k: &'a Kernel,
    tile: Tile,
    tid: Reg<u32>,
    ring: Pointer<Shared, f16>,
    /// Objects of the slots: filled, and read.
    full: Pointer<Shared, Mbarrier>,
    empty: Pointer<Shared, Mbarrier>,
    place: Place,
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

    /// For each of the block's tiles: its places in `x` and `w`.
    fn each_tile(&self, body: impl FnOnce(Reg<u32>, Reg<u32>)) {
        let k = self.k;
        k.for_(k.special(Special::CtaidX), self.tiles, k.special(Special::NctaidX), |number| {
            body(k.rem(number, self.across), k.div(number, self.across));
        });
    }

    /// Copies every slice of every tile, when its slot is empty.
    fn produce(&self, factors: [Pointer<Global, f16>; 2], cols: Multiple) {
        let (k, tile, tid) = (self.k, self.tile, self.tid);
        let pieces = SharedRows::ROW_BYTES / 16;
        let (own_row, own_piece) = (k.shr(tid, pieces.trailing_zeros()), k.and(tid, pieces - 1));
        let landing = k.mad(own_row, pieces, k.xor(own_piece, k.and(own_row, 7)));
        let landing = k.at_stride(self.ring, landing, 16);
        let row_pieces = k.halve(cols, 3).reg();
        let step = k.mul(row_pieces, PASS);
        let rows = [tile.rows(), tile.columns];
        self.each_tile(|across, along| {
            let first = |place, rows| k.mad(k.mad(place, rows, own_row), row_pieces, own_piece);
            let at = [k.var(first(across, rows[0])), k.var(first(along, rows[1]))];
            k.for_(0u32, self.slices, 1u32, |_| {
                let Place { slot, parity } = self.place;
                self.wait(k.at(self.empty, slot), k.xor(parity, 1u32));
                let to = k.at_stride(landing, slot, tile.stage_bytes());
                let mut offset = 0;
                for ((factor, at), rows) in factors.into_iter().zip(at).zip(rows) {
                    for pass in 0..rows / PASS {
                        let from = k.at_stride(factor, k.mad(step, pass, at), 16);
                        k.copy_async(to.plus_bytes(offset), from, 8);
                        offset += i64::from(PASS * SharedRows::ROW_BYTES);
                    }
                    k.add_to(at, pieces);
                }
                k.arrive_after_copies(k.at(self.full, slot));
                self.advance();
            });
        });
    }

    /// Multiplies the slices of every tile when they are there, and stores the sums.
    fn consume(&self, out: Pointer<Global, f32>, along: Reg<u32>) {
        let (k, tile) = (self.k, self.tile);
        let thread = k.sub(self.tid, WARPGROUP);
        let group = k.shr(thread, WARPGROUP.trailing_zeros());
        let lane = k.and(thread, 31);
        let sums = k.warpgroup_sums(tile.columns);
        let a = k.at_stride(self.ring, group, ROWS * SharedRows::ROW_BYTES);
        let b = self.ring.plus_bytes((tile.rows() * SharedRows::ROW_BYTES).into());
        let pitch = k.scale(along, tile.columns);
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
            let row = k.mad(across, tile.rows(), k.mad(group, ROWS, self.own_row(thread)));
            let first = k.at(k.row(out, row, pitch), k.scale(along, tile.columns));
            self.store(&sums, first, pitch, lane);
        });
    }

    /// The first row of a thread's sums.
    fn own_row(&self, thread: Reg<u32>) -> Reg<u32> {
        let k = self.k;
        k.mad(k.bfe(thread, 5, 2), 16u32, k.bfe(thread, 2, 3))
    }

    /// Stores the sums of a warpgroup; `first` is the first column of the thread's first row.
    ///
    /// Of 16 columns a thread has two at two places. Neighbours exchange one pair each: then each has four
    /// neighbouring columns, and four threads together store 64 bytes of a row.
    fn store(&self, sums: &WarpgroupSums, first: Pointer<Global, f32>, pitch: Multiple, lane: Reg<u32>) {
        let k = self.k;
        let odd = k.eq(k.and(lane, 1), 1u32);
        let first = k.at(first, k.scale(k.bfi(lane, k.bfe(lane, 1, 1), 1, 1), 4));
        let rows = [first, k.row(first, k.var(8u32), pitch)];
        for (i, sixteen) in (0i64..).zip(sums.registers().chunks_exact(8)) {
            let (left, right) = sixteen.split_at(4);
            for (h, row) in rows.iter().enumerate() {
                let (left, right) = (&left[2 * h..][..2], &right[2 * h..][..2]);
                let (mut own, mut other) = (Vec::new(), Vec::new());
                for (l, r) in left.iter().zip(right) {
                    own.push(k.select(odd, *r, *l));
                    other.push(k.shuffle(k.select(odd, *l, *r), Shuffle::Xor(1)));
                }
                let pick = |n: usize| k.select(odd, other[n], own[n]);
                let after = |n: usize| k.select(odd, own[n], other[n]);
                k.store_n(row.plus(16 * i), &[pick(0), pick(1), after(0), after(1)]);
            }
        }
    }
}
