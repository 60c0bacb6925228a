//! Means of all warps of the kernel: the record of a phase, packets, barriers, the clock.

use ptxgen::{Element, Global, Kernel, Mbarrier, Pointer, Poll, Pred, Reg, Shared, Special, Target};

use crate::kernels::cache::PAGE;
use crate::kernels::format::Format;
use crate::kernels::stream::layout::CONSUMERS;
use crate::kernels::stream::record::{MAX_SEGMENTS, WORDS, at, segment};
use crate::kernels::stream::sync::{MARKS, PACKET_BYTES};
use crate::kernels::stream::variant::Variant;

/// Polls before a warp sleeps between them.
const POLLS: u32 = 64;
/// Polls before a warp gives up: some seconds.
const MOST_POLLS: u32 = 1 << 24;

/// Words of shared memory with what all warps know of the step.
pub(super) mod own {
    /// Position of the current token.
    pub const POSITION: i64 = 0;
    /// The step's first phase number.
    pub const FIRST_PHASE: i64 = 1;
    /// Number of the block, and of all blocks.
    pub const BLOCK: i64 = 2;
    pub const BLOCKS: i64 = 3;
    pub const WORDS: u32 = 4;
}

/// Context of a phase's code.
pub(super) struct Stream<'a> {
    pub k: &'a Kernel,
    pub target: Target,
    /// The types of weights that the kernel takes.
    pub variant: &'a Variant,
    pub lane: Reg<u32>,
    /// Number of the warp; that of a consumer among the consumers.
    pub warp: Reg<u32>,
    /// Number of the phase.
    pub index: Reg<u32>,
    /// The list of records.
    pub tasks: Pointer<Global, u32>,
    /// Copies of records, two per warp.
    pub records: Pointer<Shared, u32>,
    /// The warp's copy of the phase's record, as an address and as a pointer.
    pub task_at: Reg<u32>,
    pub task: Pointer<Shared, u32>,
    /// See [`own`].
    pub own: Pointer<Shared, u32>,
    pub ring: Ring,
    pub sums: Sums,
    /// Inputs of the consumers' columns.
    pub inputs: Pointer<Shared, u8>,
    /// Zeros that lanes without an input read.
    pub zeros: Pointer<Shared, u8>,
    /// The codebooks of the types that have one.
    pub books: Vec<(Format, Pointer<Shared, u32>)>,
    /// The gate's sums.
    pub held: Pointer<Shared, f32>,
    /// Results of attention per warp, and a word.
    pub scratch: Pointer<Shared, f32>,
    pub last: Pointer<Shared, u32>,
    /// Two numbers per consumer, where inputs have layer norms.
    pub moments: Option<Pointer<Shared, f32>>,
    pub state: Pointer<Global, u32>,
    pub sync: Pointer<Global, u32>,
    /// The numbers of the sequence's pages.
    pub pages: Pointer<Global, u32>,
    /// Address of the buffer of times, and whether the thread writes there.
    pub times: Reg<u64>,
    pub stamps: Reg<u32>,
}

/// The words of a packet.
pub(super) type Packet = [Reg<u32>; 4];

/// The ring of weights.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub start: Pointer<Shared, u8>,
    /// Bytes of a slot.
    pub slot_bytes: ptxgen::Multiple,
    /// Number of slots.
    pub slots: Reg<u32>,
    pub full: Pointer<Shared, Mbarrier>,
    pub empty: Pointer<Shared, Mbarrier>,
}

/// A warp's place in the ring: its slot and the parity of the lap.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub slot: Reg<u32>,
    pub parity: Reg<u32>,
}

/// The sums of chunks of tiles, two buffers alternately.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    pub values: Pointer<Shared, f32>,
    /// Sums of squares of the consumers.
    pub squares: Pointer<Shared, f32>,
    pub full: Pointer<Shared, Mbarrier>,
    pub empty: Pointer<Shared, Mbarrier>,
    /// Number of the warp's next chunk.
    pub chunk: Reg<u32>,
}

/// The tiles of a segment that belong to this block.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub first: Reg<u32>,
    pub count: Reg<u32>,
}

impl Stream<'_> {
    /// Number of the block.
    pub fn block(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::BLOCK))
    }

    /// Number of blocks.
    pub fn blocks(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::BLOCKS))
    }

    /// Word `at` of the record.
    pub fn word(&self, at: i64) -> Reg<u32> {
        self.k.load(self.task.plus(at))
    }

    /// A number in single precision in the record.
    pub fn number(&self, at: i64) -> Reg<f32> {
        self.k.bits(self.word(at))
    }

    /// An address in the record, aligned to 16 bytes.
    pub fn address<E: Element>(&self, at: i64) -> Pointer<Global, E> {
        self.k.pointer(self.k.load(self.task.plus(at).cast::<u64>()), 16)
    }

    /// The record of segment `number`.
    pub fn segment(&self, number: Reg<u32>) -> Pointer<Shared, u32> {
        self.k.at(self.task.plus(at::SEGMENT), self.k.scale(number, at::SEGMENT_WORDS as u32))
    }

    /// Position of the current token.
    pub fn position(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::POSITION))
    }

    /// The row of a position in the cache; from position `end` on, which is not past the current one, some row of its
    /// page.
    pub fn row_of(&self, position: Reg<u32>, end: Reg<u32>) -> Reg<u32> {
        let k = self.k;
        let page = k.shr(k.min(position, end), PAGE.trailing_zeros());
        k.mad(k.load(k.at(self.pages, page)), PAGE, k.and(position, PAGE - 1))
    }

    /// The phase number in word `at` of the record, in this step.
    pub fn phase(&self, at: i64) -> Reg<u32> {
        self.k.add(self.k.load(self.own.plus(own::FIRST_PHASE)), self.word(at))
    }

    /// Whether `flag` is set in the record.
    pub fn is_set(&self, flag: u32) -> Pred {
        self.k.ne(self.k.and(self.word(at::FLAGS), flag), 0)
    }

    /// Makes record `index` the warp's.
    fn enter(&self, index: Reg<u32>) {
        let k = self.k;
        let place = k.mad(self.warp, 2u32, k.and(index, 1));
        k.set(self.task_at, k.address(k.at(self.records, k.scale(place, WORDS))));
    }

    /// Address of the warp's copy of record `index`.
    fn copy_of(&self, index: Reg<u32>) -> Pointer<Shared, u32> {
        let k = self.k;
        let place = k.mad(self.warp, 2u32, k.and(index, 1));
        k.at(self.records, k.scale(place, WORDS))
    }

    /// Runs `phase` for all phases. The next record is copied meanwhile, asynchronously or, by a warp that has
    /// other asynchronous copies under way, through registers.
    pub fn phases(&self, last: Reg<u32>, asynchronous: bool, phase: impl FnOnce()) {
        let k = self.k;
        let lane_of = |record: Pointer<Global, u32>| k.at(record, self.lane);
        let record = |index: Reg<u32>| k.at(self.tasks, k.scale(index, WORDS));
        let next = if asynchronous { vec![] } else { [(); 3].map(|()| k.var(0u32)).to_vec() };
        let fetch = |index: Reg<u32>| {
            if asynchronous {
                k.if_(k.lt(self.lane, WORDS / 4), || {
                    let quad = k.scale(self.lane, 4);
                    k.copy_async(k.at(self.copy_of(index), quad), k.at(record(index), quad), 4);
                });
                k.commit_copies();
            } else {
                for (i, word) in (0..).step_by(32).zip(&next) {
                    let from = lane_of(record(index)).plus(i);
                    k.load_words_where(None, from, &[*word], ptxgen::Cache::ReadOnly);
                }
            }
        };
        fetch(self.index);
        k.loop_(|l| {
            if asynchronous {
                k.wait_copies(0);
            } else {
                k.sync_warp();
                for (i, word) in (0..).step_by(32).zip(&next) {
                    k.store(k.at(self.copy_of(self.index), self.lane).plus(i), *word);
                }
            }
            k.sync_warp();
            self.enter(self.index);
            let following = k.add(self.index, 1);
            k.if_(k.lt(following, last), || fetch(following));
            phase();
            k.add_to(self.index, 1);
            k.break_if(l, k.ge(self.index, last));
        });
    }

    /// The block's tiles of a segment.
    pub fn share(&self, record: Pointer<Shared, u32>) -> Share {
        let k = self.k;
        let (block, blocks) = (self.block(), self.blocks());
        let [each, rest, turn, _] = k.load_n(record.plus(segment::EACH), ptxgen::Cache::Default);
        let before = k.sub(block, turn);
        let index = k.select(k.lt(block, turn), k.add(before, blocks), before);
        let first = k.mad(each, index, k.min(index, rest));
        Share { first, count: k.add(each, k.select(k.lt(index, rest), 1u32, 0u32)) }
    }

    /// The block's tiles of all segments, and their number.
    pub fn shares(&self) -> ([Share; MAX_SEGMENTS], Reg<u32>) {
        let shares: [Share; MAX_SEGMENTS] =
            std::array::from_fn(|i| self.share(self.task.plus(at::SEGMENT + i as i64 * at::SEGMENT_WORDS)));
        let all = shares.iter().map(|s| s.count).reduce(|a, b| self.k.add(a, b));
        (shares, all.unwrap_or(self.block()))
    }

    /// The way in which barrier objects are polled.
    fn how(&self) -> Poll {
        if self.target >= Target::Sm90 { Poll::Try } else { Poll::Test }
    }

    /// Waits until the phase of `parity` of a barrier object is complete.
    pub fn wait_phase(&self, barrier: Pointer<Shared, Mbarrier>, parity: Reg<u32>) {
        let k = self.k;
        let (polls, end) = (k.var(0u32), k.label());
        k.branch_if(k.phase_done(barrier, parity, self.how()), end);
        k.loop_(|l| {
            k.break_if(l, k.phase_done(barrier, parity, self.how()));
            k.add_to(polls, 1);
            k.if_(k.gt(polls, MOST_POLLS), || k.trap());
        });
        k.bind(end);
    }

    /// Repeats `read` until its result is true.
    pub fn poll(&self, read: impl FnOnce() -> Pred) {
        let k = self.k;
        let polls = k.var(0u32);
        k.loop_(|l| {
            let seen = read();
            k.break_if(l, seen);
            k.add_to(polls, 1);
            k.if_(k.gt(polls, POLLS), || {
                k.if_(k.gt(polls, MOST_POLLS), || k.trap());
                k.sleep(32);
            });
        });
    }

    /// Arrives once for the whole warp, after all its lanes' accesses.
    pub fn arrive_warp(&self, barrier: Pointer<Shared, Mbarrier>) {
        let k = self.k;
        k.sync_warp();
        k.if_(k.eq(self.lane, 0), || k.arrive(barrier));
    }

    /// Barrier object `number` of an array.
    pub fn barrier(&self, first: Pointer<Shared, Mbarrier>, number: Reg<u32>) -> Pointer<Shared, Mbarrier> {
        self.k.at_stride(first, number, 8)
    }

    /// Moves a place `by` slots on.
    pub fn advance(&self, place: Place, by: u32) {
        let k = self.k;
        let next = k.add(place.slot, by);
        let wraps = k.ge(next, self.ring.slots);
        k.set(place.slot, k.select(wraps, k.sub(next, self.ring.slots), next));
        k.set(place.parity, k.select(wraps, k.xor(place.parity, 1u32), place.parity));
    }

    /// Start of slot `number` of the ring.
    pub fn slot(&self, number: Reg<u32>) -> Pointer<Shared, u8> {
        self.k.row(self.ring.start, number, self.ring.slot_bytes)
    }

    /// Number and parity of buffer and lap of chunk `chunk`.
    pub fn buffer(&self) -> (Reg<u32>, Reg<u32>) {
        let k = self.k;
        (k.and(self.sums.chunk, 1), k.bfe(self.sums.chunk, 1, 1))
    }

    /// The number of the warp among the consumers, and the barrier at which they meet.
    pub fn sync_consumers(&self) {
        self.k.sync_named(1u32, 32 * CONSUMERS);
    }

    /// Writes the clock to the buffer of times.
    pub fn stamp(&self, mark: i64) {
        let k = self.k;
        k.if_(k.ne(self.stamps, 0), || {
            let marks = k.at(k.pointer::<u32>(self.times, 4), k.scale(self.index, MARKS));
            k.store(marks.plus(mark), k.special(Special::Clock));
        });
    }

    /// Packet `index` from `first` on.
    pub fn packet(&self, first: Pointer<Global, u32>, index: Reg<u32>) -> Pointer<Global, u32> {
        self.k.at_stride(first, index, PACKET_BYTES)
    }

    /// Loads packets until all have phase number `phase`, in all lanes of the warp.
    pub fn receive<const N: usize>(
        &self,
        from: [Pointer<Global, u32>; N],
        phase: Reg<u32>,
    ) -> [[Reg<f32>; 4]; N] {
        let words = from.map(|_| [(); 4].map(|()| self.k.reg()));
        self.request(from, words);
        self.settle(from, words, phase);
        words.map(|words| self.unpack(words))
    }

    /// Loads packets, whatever they have.
    pub fn request<const N: usize>(&self, from: [Pointer<Global, u32>; N], words: [Packet; N]) {
        for (from, words) in from.iter().zip(words) {
            words
                .into_iter()
                .zip(self.k.load_relaxed_b128(*from))
                .for_each(|(to, word)| self.k.set(to, word));
        }
    }

    /// Loads requested packets again until all have phase number `phase`, in all lanes of the warp.
    pub fn settle<const N: usize>(
        &self,
        from: [Pointer<Global, u32>; N],
        words: [Packet; N],
        phase: Reg<u32>,
    ) {
        let k = self.k;
        let missing = || {
            let wrong = words.map(|words| k.xor(words[3], phase)).into_iter().reduce(|a, b| k.or(a, b));
            wrong.map_or(k.ne(phase, phase), |wrong| k.ne(wrong, 0))
        };
        let end = k.label();
        k.branch_if(k.all(k.unless(missing())), end);
        self.poll(|| {
            // Packets that are there leave the memory to the others.
            for (from, words) in from.iter().zip(words) {
                k.if_(k.ne(words[3], phase), || self.request([*from], [words]));
            }
            k.all(k.unless(missing()))
        });
        k.bind(end);
    }

    /// The values of a packet.
    pub fn unpack(&self, [x, y, z, _]: [Reg<u32>; 4]) -> [Reg<f32>; 4] {
        let k = self.k;
        // The lowest bytes are the upper bytes of the fourth value.
        let fourth = k.prmt(k.prmt(y, x, 0x4000u32), z, 0x3240u32);
        [x, y, z, fourth].map(|word| k.bits(k.and(word, 0xffff_ff00u32)))
    }

    /// Stores four values and a phase number. Values are rounded to 24 bits.
    pub fn send(&self, to: Pointer<Global, u32>, values: [Reg<f32>; 4], phase: Reg<u32>) {
        let k = self.k;
        let [a, b, c, d] = values.map(|v| {
            let rounded = k.add(k.bits::<f32, u32>(v), 0x80u32);
            // Rounding would carry into the sign of what is not a number.
            k.select(k.eq(v, v), rounded, 0x7fff_ff00u32)
        });
        let words = [k.prmt(a, d, 0x3217u32), k.prmt(b, d, 0x3216u32), k.prmt(c, d, 0x3215u32), phase];
        k.store_relaxed_b128(to, words);
    }
}
