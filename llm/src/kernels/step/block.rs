//! What every phase of the step kernel uses: its record, flags, counter and clock.

use ptxgen::{Atomic, Element, Global, Kernel, Pointer, Pred, Reg, Shared, Special};

use crate::kernels::format::Format;
use crate::kernels::step::record::at;
use crate::kernels::step::shape::Shape;
use crate::kernels::step::sync::{CANDIDATES, MARKS, MAX_BLOCKS};

/// Polls before a block sleeps between them.
const POLLS: u32 = 4;
/// Polls before a block gives up: some seconds.
const MOST_POLLS: u32 = 1 << 24;

/// What the code of a phase works with.
pub(super) struct Step<'a> {
    pub k: &'a Kernel,
    pub formats: &'static [Format],
    pub shape: Shape,
    pub tid: Reg<u32>,
    pub lane: Reg<u32>,
    pub warp: Reg<u32>,
    pub block: Reg<u32>,
    pub blocks: Reg<u32>,
    /// Number of the phase.
    pub index: Reg<u32>,
    /// Record of the phase.
    pub task: Pointer<Shared, u32>,
    /// Values that would only take registers: see [`own`].
    pub own: Pointer<Shared, u32>,
    /// Sums of a matrix phase: two per item.
    pub results: Pointer<Shared, f32>,
    /// Input of a matrix phase, or scratch.
    pub inputs: Pointer<Shared, u8>,
    /// Two words per warp.
    pub squares: Pointer<Shared, f32>,
    /// Operands of the results, 16 bytes per thread.
    pub needed: Pointer<Shared, u32>,
    pub state: Pointer<Global, u32>,
    pub sync: Pointer<Global, u32>,
    /// Address of the buffer of times, or 0.
    pub times: Reg<u64>,
}

/// Words that a block keeps in shared memory for the whole step: tiles of weights need nearly all registers.
pub(super) mod own {
    /// Position of the current token.
    pub const POSITION: i64 = 0;
    /// The step's first flag.
    pub const FIRST_FLAG: i64 = 1;
    /// The counter's value when all blocks have completed the phase before; for the first thread.
    pub const TARGET: i64 = 2;
    /// The counter's value before this block's last arrival; for the first thread.
    pub const ARRIVED: i64 = 3;
    pub const WORDS: u32 = 4;
}

impl Step<'_> {
    /// Word `at` of the record.
    pub fn word(&self, at: i64) -> Reg<u32> {
        self.k.load(self.task.plus(at))
    }

    /// An address in the record, aligned to 16 bytes.
    pub fn address<E: Element>(&self, at: i64) -> Pointer<Global, E> {
        self.k.pointer(self.k.load(self.task.plus(at).cast::<u64>()), 16)
    }

    /// Position of the current token.
    pub fn position(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::POSITION))
    }

    /// The flag in word `at` of the record, in this step.
    pub fn flag(&self, at: i64) -> Reg<u32> {
        self.k.add(self.k.load(self.own.plus(own::FIRST_FLAG)), self.word(at))
    }

    /// The counter's value when all blocks have completed the phase before.
    pub fn target(&self) -> Reg<u32> {
        self.k.load(self.own.plus(own::TARGET))
    }

    /// The first thread counts its block as arrived. How many arrived before is needed after the `last` phase
    /// only: an atomic operation whose result is not used is not waited for.
    pub fn arrive(&self, last: Pred) {
        let k = self.k;
        let add = || k.atomic(self.sync, Atomic::Add, 1u32);
        k.fence();
        k.if_else(last, || k.store(self.own.plus(own::ARRIVED), add()), || _ = add());
        k.store(self.own.plus(own::TARGET), k.add(self.target(), self.blocks));
    }

    /// Writes the clock to the buffer of times.
    pub fn stamp(&self, mark: i64) {
        let k = self.k;
        k.if_(k.both(k.ne(self.times, 0u64), k.eq(k.add(self.block, self.tid), 0)), || {
            let marks = k.at(k.pointer::<u32>(self.times, 4), k.scale(self.index, MARKS));
            k.store(marks.plus(mark), k.special(Special::Clock));
        });
    }

    /// Values and indices of the blocks' candidates for the next token.
    pub fn candidates(&self) -> (Pointer<Global, f32>, Pointer<Global, u32>) {
        let values = self.sync.plus(i64::from(CANDIDATES));
        (values.cast(), values.plus(i64::from(MAX_BLOCKS)))
    }

    /// Whether `flag` is set in the record.
    pub fn is_set(&self, flag: u32) -> Pred {
        self.k.ne(self.k.and(self.word(at::FLAGS), flag), 0)
    }

    /// Waits until all blocks have completed the phases that are waited for; what they wrote is visible
    /// afterwards.
    pub fn wait(&self) {
        let k = self.k;
        k.if_(k.eq(self.tid, 0), || {
            let target = self.target();
            k.if_(k.ne(target, 0), || self.poll(|| k.ge(k.load_acquire(self.sync), target)));
        });
        k.sync_threads();
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

    /// Stores one value, or two from an even index on, of the phase's flagged results.
    pub fn store_flagged(&self, index: Reg<u32>, values: &[Reg<f32>]) {
        let k = self.k;
        let flag = self.flag(at::OUTPUT_FLAG);
        let index = k.scale(k.halve(index, values.len().trailing_zeros()), values.len() as u32);
        let words: Vec<Reg<u32>> = values.iter().flat_map(|v| [k.bits(*v), flag]).collect();
        k.store_relaxed(k.at_stride(self.address::<u32>(at::OUT), index, 8), &words);
    }
}
