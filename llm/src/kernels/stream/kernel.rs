//! The kernel: division into warps, the loop over phases, the embedding.

use ptxgen::{
    Cache, Evict, Global, Kernel, Mbarrier, Multiple, Nullable, Pointer, Ptr, Reg, Shared, Special, Target,
    kernel_params,
};

use crate::kernels::format::Format;
use crate::kernels::state::TOKENS_AT;
use crate::kernels::stream::block::{Place, Ring, Stream, Sums, own};
use crate::kernels::stream::layout::{
    CHUNK, CONSUMERS, MAX_SLOTS, PRODUCER, RESULTS, SLOT_TILES, THREADS, TILE_SUMS, WARPS, input,
};
use crate::kernels::stream::record::{ATTENTION, MATVEC, WORDS, at, segment};
use crate::kernels::stream::sync::{FIRST_PHASE_AT, PACKET_VALUES};
use crate::kernels::stream::variant::{Style, Variant};

/// The module and the kernel.
pub const NAME: &str = "stream";

kernel_params! {
    /// `stream`: phases `first` to before `last`. The ring has `slots` slots, a multiple of [`GROUP_SLOTS`],
    /// of `slot_bytes` bytes at the start of dynamic shared memory; the last three are byte offsets there, in
    /// this order. `pages` has the numbers of the sequence's pages in the cache. `ragged` is not 0 if some rows are no
    /// multiple of eight tiles. `times` may be 0; else the first block writes [`MARKS`] clock readings per phase there.
    ///
    /// [`GROUP_SLOTS`]: crate::kernels::stream::layout::GROUP_SLOTS
    /// [`MARKS`]: crate::kernels::stream::sync::MARKS
    pub struct Step {
        tasks: Ptr<u32, 16>, state: Ptr<u32, 16>, sync: Ptr<u32, 16>, pages: Ptr<u32, 16>,
        times: Nullable, first: u32, last: u32, slots: u32, slot_bytes: Multiple = 16, ragged: u32,
        inputs: Multiple = 16, held: Multiple = 16, scratch: Multiple = 16,
    }
}

pub(crate) fn kernel(target: Target, variant: &Variant) -> Kernel {
    let k = Kernel::new(NAME);
    k.max_threads(THREADS);
    k.min_blocks_per_sm(1);
    k.keep_loops();
    let p = Step::declare(&k);

    let records = k.shared::<u32>(2 * WARPS * WORDS);
    let known = k.shared::<u32>(own::WORDS);
    let sums = k.shared::<f32>(2 * CHUNK * TILE_SUMS);
    let squares = k.shared::<f32>(2 * CONSUMERS);
    let zeros = k.shared::<u32>(input::READ / 4);
    let barriers = k.shared::<u64>(2 * MAX_SLOTS + 4).cast::<Mbarrier>();
    let one = k.shared::<u32>(4);
    let moments = (variant.style == Style::Plain).then(|| k.shared::<f32>(2 * CONSUMERS));
    let dynamic = k.dynamic_shared::<u8>();
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let warp = k.shr(tid, 5);
    let of_array = |at: u32| barriers.plus(i64::from(at));
    let ring = Ring {
        start: dynamic,
        slot_bytes: p.slot_bytes,
        slots: p.slots,
        full: of_array(0),
        empty: of_array(MAX_SLOTS),
    };
    let chunk = k.var(0u32);
    let sums = Sums {
        values: sums,
        squares,
        full: of_array(2 * MAX_SLOTS),
        empty: of_array(2 * MAX_SLOTS + 2),
        chunk,
    };
    init_barriers(&k, target, (lane, warp), &ring, &sums);
    k.if_(k.lt(tid, input::READ / 4), || k.store(k.at(zeros, tid), 0u32));
    // Consumers without a column of their own read what lies there, and ignore it.
    k.if_(k.ne(p.ragged, 0), || {
        let zero = [(); 4].map(|()| k.var(0u32));
        k.for_(tid, k.shr(p.held.reg(), 4), THREADS, |piece: Reg<u32>| {
            k.store_n(k.at(dynamic.cast::<u32>(), k.scale(piece, 4)), &zero);
        });
        if Stream::copies_in_bulk(target) {
            k.fence_proxy_async();
        }
    });
    store_known(&k, tid, known, (p.state, p.sync));
    let book = |format: &Format| Some((*format, format.shared_book(&k, tid, THREADS)?));
    let books = variant.formats.iter().filter_map(book).collect();
    k.sync_threads();

    let index = k.var(p.first);
    let task_at = k.var(0u32);
    let s = Stream {
        k: &k,
        target,
        variant,
        lane,
        warp,
        index,
        tasks: p.tasks,
        records,
        task_at,
        task: k.shared_pointer(task_at, 16),
        own: known,
        ring,
        sums,
        inputs: k.at(dynamic, p.inputs),
        zeros: zeros.cast(),
        books,
        held: k.at(dynamic, p.held).cast(),
        scratch: k.at(dynamic, p.scratch).cast(),
        last: one,
        moments,
        state: p.state,
        sync: p.sync,
        pages: p.pages,
        times: p.times,
        stamps: stamps(&k, tid, p.times),
    };
    s.run(p.last);
    k
}

/// The first thread stores what all warps know of the step.
fn store_known(
    k: &Kernel,
    tid: Reg<u32>,
    known: Pointer<Shared, u32>,
    (state, sync): (Pointer<Global, u32>, Pointer<Global, u32>),
) {
    k.if_(k.eq(tid, 0), || {
        k.store(known.plus(own::BLOCK), k.special(Special::CtaidX));
        k.store(known.plus(own::BLOCKS), k.special(Special::NctaidX));
        k.store(known.plus(own::POSITION), k.load(state));
        k.store(known.plus(own::FIRST_PHASE), k.load(sync.plus(i64::from(FIRST_PHASE_AT))));
    });
}

/// Whether the thread writes times: the first one does, if there is a buffer.
fn stamps(k: &Kernel, tid: Reg<u32>, times: Reg<u64>) -> Reg<u32> {
    let first = k.eq(k.add(k.special(Special::CtaidX), tid), 0);
    k.select(k.both(k.ne(times, 0u64), first), 1u32, 0u32)
}

/// Makes the barrier objects of the ring and of the sums.
fn init_barriers(k: &Kernel, target: Target, (lane, warp): (Reg<u32>, Reg<u32>), ring: &Ring, sums: &Sums) {
    let fillers = if Stream::copies_in_bulk(target) { 1u32 } else { 32 };
    // One lane of each warp: an address is the same for all lanes that make it a barrier object together.
    k.if_(k.eq(lane, 0), || {
        k.for_(warp, ring.slots, WARPS, |slot: Reg<u32>| {
            k.init_mbarrier(k.at(ring.full, slot), fillers);
            k.init_mbarrier(k.at(ring.empty, slot), SLOT_TILES);
        });
        k.for_(warp, 2u32, WARPS, |buffer: Reg<u32>| {
            k.init_mbarrier(k.at(sums.full, buffer), CONSUMERS);
            k.init_mbarrier(k.at(sums.empty, buffer), 1u32);
        });
        if Stream::copies_in_bulk(target) {
            k.fence_mbarrier_init();
            k.fence_proxy_async();
        }
    });
}

impl Stream<'_> {
    /// All phases up to `last`, by what the warp is for.
    fn run(&self, last: Reg<u32>) {
        let k = self.k;
        k.if_(k.lt(self.warp, CONSUMERS), || {
            // A consumer has every fourth slot.
            let place =
                Place { slot: k.var(k.shr(self.warp, SLOT_TILES.trailing_zeros())), parity: k.var(0u32) };
            self.phases(last, true, || {
                self.stamp(0);
                let kind = self.word(at::KIND);
                k.if_else(
                    k.eq(kind, MATVEC),
                    || self.multiply_matrices(place),
                    || k.if_else(k.eq(kind, ATTENTION), || self.attend(), || self.embed()),
                );
                self.stamp(4);
                self.stamp(5);
            });
            k.exit();
        });
        k.if_(k.eq(self.warp, PRODUCER), || {
            let place = Place { slot: k.var(0u32), parity: k.var(0u32) };
            let policy = k.policy(Evict::First, 1.0);
            self.phases(last, Self::copies_in_bulk(self.target), || {
                let works = k.eq(self.word(at::KIND), MATVEC);
                let works =
                    if Self::copies_in_bulk(self.target) { k.both(works, k.eq(self.lane, 0)) } else { works };
                k.if_(works, || self.produce(place, policy));
            });
            k.exit();
        });
        k.if_(k.eq(self.warp, RESULTS), || {
            let best = (k.var(f32::NEG_INFINITY), k.var(u32::MAX));
            let is_last = k.var(0u32);
            self.phases(last, true, || {
                k.set(is_last, self.word(at::IS_LAST));
                k.if_(k.eq(self.word(at::KIND), MATVEC), || self.use_results(best));
            });
            k.if_(k.ne(is_last, 0), || self.finish(best));
        });
    }

    /// The current token's row of the embedding.
    fn embed(&self) {
        let k = self.k;
        let record: Pointer<Shared, u32> = self.task.plus(at::SEGMENT);
        let word = |at: i64| k.load(record.plus(at));
        let tiles = k.pointer::<u8>(k.load(record.plus(segment::TILES).cast::<u64>()), 16);
        let token = k.load(k.at(self.state.plus(i64::from(TOKENS_AT)), self.position()));
        let token = k.min(token, k.sub(word(segment::ROWS), 1));
        self.stamp(1);
        self.stamp(2);
        // Whole units of every type.
        let whole = k.scale(k.shr(word(segment::COLS), 4), 16);
        let cols = whole.reg();
        // Neighbouring units go to different blocks.
        let thread = k.mad(k.mad(self.warp, 32u32, self.lane), self.blocks(), self.block());
        let step = k.mul(self.blocks(), 32 * CONSUMERS);
        let phase = self.phase(at::OUTPUT);
        // The vector of the position, where the model learned them.
        let learned = (self.variant.style == Style::Plain)
            .then(|| k.row(self.address::<f32>(at::WEIGHT), self.position(), whole));
        for format in self.variant.formats.iter().copied() {
            k.if_(k.eq(word(segment::FORMAT), format as u32), || {
                let row = format.row(k, tiles, token, whole);
                k.for_(thread, k.shr(cols, format.unit().trailing_zeros()), step, |unit: Reg<u32>| {
                    let packed = format.fetch(k, &row, unit);
                    let values = format.weights(k, &packed).concat();
                    let first = k.mul(unit, format.unit() / PACKET_VALUES);
                    for (i, values) in (0..).zip(values.as_chunks::<4>().0) {
                        let to = self.packet(self.address(at::OUT), k.add(first, i));
                        let values = learned.map_or(*values, |vector| {
                            let from = k.at(vector, k.scale(k.add(first, i), PACKET_VALUES));
                            let added = k.load_n::<4, _, _>(from, Cache::ReadOnly);
                            std::array::from_fn(|v| k.add(values[v], added[v]))
                        });
                        self.send(to, values, phase);
                    }
                });
            });
        }
        self.stamp(3);
    }
}
