//! One worker while it runs a warp: the state that operations read and write.

use std::sync::Arc;

use crate::gpu::sm::block::Block;
use crate::gpu::sm::code_map::CodeMap;
use crate::gpu::sm::counters::Counters;
use crate::gpu::sm::environment::Environment;
use crate::gpu::sm::fault::{Fault, esr};
use crate::gpu::sm::lanes::{Lanes, each, spread};
use crate::gpu::sm::launch::MemoryFault;
use crate::gpu::sm::slots::{NO_PREDICATE, NOT, POOL};
use crate::gpu::sm::tlb::Tlb;
use crate::gpu::sm::warp::Warp;

/// Continuation after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next op.
    Next,
    /// The op that `core.pc` names.
    Jump,
    /// These lanes are done or wait: another path of the warp.
    Park,
    /// Another path, warp or block first; the op is done.
    Yield,
    /// Another warp or block first, and then this path: the op is done. Uniform registers belong to the warp, and
    /// compilers keep values of a path in them while it waits so.
    Rest,
    /// The program must be extended by `core.missing`, then the op runs again.
    Missing,
    /// `core.fault` is set.
    Fault,
}

/// Room for the 16 factors of a matrix product, as values and exponents: two halves of A's rows, B's even and odd
/// columns. A worker keeps it from one product to the next: to clear it takes longer than the sums.
pub(crate) type Room = [[[Lanes; 16]; 2]; 4];
pub(crate) const EMPTY_ROOM: Room = [[[Lanes::ZERO; 16]; 2]; 4];

/// One worker.
pub(crate) struct Core<'a> {
    /// The warp's register file and the constant pool.
    bases: [*mut Lanes; 2],
    /// Lanes that execute the current op.
    pub mask: u32,
    /// The lanes that `put` writes, as all ones or zero each, and the mask that these are of.
    written: Lanes,
    written_mask: u32,
    /// Lanes of the current path.
    pub active: u32,
    /// Index of the current op.
    pub pc: u32,
    /// Taken jumps left before the path must give way.
    pub fuel: u32,
    /// Whether a path did anything but give way since this was last cleared.
    pub busy: bool,
    pub counters: Counters,
    pub warp: Warp,
    pub block: Block,
    /// Immediates and constants, for `bases`.
    pool: Arc<[Lanes]>,
    /// Origins of the ops.
    pub map: Arc<CodeMap>,
    pub env: &'a Environment<'a>,
    pub tlb: Tlb<'a>,
    pub missing: u64,
    pub fault: Option<Box<Fault>>,
    pub room: Box<Room>,
}

impl<'a> Core<'a> {
    pub fn new(env: &'a Environment<'a>) -> Self {
        Core {
            bases: [std::ptr::null_mut(); 2],
            mask: 0,
            written: Lanes::ZERO,
            written_mask: 0,
            active: 0,
            pc: 0,
            fuel: 0,
            busy: false,
            counters: Counters::default(),
            warp: Warp::default(),
            block: Block::default(),
            pool: Arc::default(),
            map: Arc::default(),
            env,
            tlb: Tlb::new(env.memory, env.launch.windows),
            missing: 0,
            fault: None,
            room: Box::new(EMPTY_ROOM),
        }
    }

    /// Makes the slots of the pool refer to `pool`, and ops to `map`.
    pub fn bind(&mut self, pool: &Arc<[Lanes]>, map: &Arc<CodeMap>) {
        (self.pool, self.map) = (Arc::clone(pool), Arc::clone(map));
        self.bases[1] = self.pool.as_ptr().cast_mut();
    }

    /// Makes the slots of registers refer to `self.warp`, after it was exchanged.
    pub fn attach(&mut self) {
        self.bases[0] = self.warp.file.as_mut_ptr();
    }

    /// A source: what lowering made a slot of. By value, so that the compiler knows that no result overlaps
    /// it, and keeps both in vector registers.
    #[inline(always)]
    pub fn src(&self, slot: u16) -> [u32; 32] {
        // SAFETY: lowering only makes slots that exist in the register file (`FileLayout`) or the pool;
        // `attach` and `bind` pointed the bases at them, and `self` owns both.
        unsafe { (*self.bases[usize::from(slot >> 15)].add(usize::from(slot & (POOL - 1)))).0 }
    }

    /// One lane of a source.
    #[inline(always)]
    pub fn lane(&self, slot: u16, lane: usize) -> u32 {
        // SAFETY: as in `src`; the index is inside.
        unsafe { (*self.bases[usize::from(slot >> 15)].add(usize::from(slot & (POOL - 1)))).0[lane & 31] }
    }

    /// Writes one lane of a register.
    #[inline(always)]
    pub fn set_lane(&mut self, slot: u16, lane: usize, value: u32) {
        debug_assert!(slot < POOL && self.mask >> lane & 1 != 0);
        // SAFETY: as in `put`; the index is inside.
        unsafe { (*self.bases[0].add(usize::from(slot))).0[lane & 31] = value };
    }

    /// Writes a register in the lanes of `self.mask`.
    #[inline(always)]
    pub fn put(&mut self, slot: u16, value: &[u32; 32]) {
        debug_assert!(slot < POOL);
        // SAFETY: as in `src`; destinations are never in the pool, and `&mut self` excludes other references.
        let dst = unsafe { &mut (*self.bases[0].add(usize::from(slot))).0 };
        if self.mask == u32::MAX {
            *dst = *value;
        } else {
            if self.written_mask != self.mask {
                self.set_written();
            }
            // A blend with words from memory. Where the compiler knows that they come from a mask it makes a
            // masked store of AVX-512, from which later loads are not forwarded.
            let (old, written) = (*dst, self.written.0);
            *dst = each(|i| (old[i] & !written[i]) | (value[i] & written[i]));
        }
    }

    #[inline(never)]
    fn set_written(&mut self) {
        let mask = self.mask;
        (self.written, self.written_mask) = (Lanes(each(|i| spread(mask, i))), mask);
    }

    /// Writes two neighbouring registers.
    #[inline(always)]
    pub fn put_pair(&mut self, slot: u16, value: &[u64; 32]) {
        let (mut lo, mut hi) = ([0u32; 32], [0u32; 32]);
        for i in 0..32 {
            lo[i] = value[i] as u32;
            hi[i] = (value[i] >> 32) as u32;
        }
        self.put(slot, &lo);
        self.put(slot + 1, &hi);
    }

    /// Reads two neighbouring registers.
    #[inline(always)]
    pub fn src_pair(&self, slot: u16) -> [u64; 32] {
        let (lo, hi) = (self.src(slot), self.src(slot + 1));
        let mut v = [0u64; 32];
        for i in 0..32 {
            v[i] = u64::from(lo[i]) | u64::from(hi[i]) << 32;
        }
        v
    }

    /// A predicate source as a lane mask.
    #[inline(always)]
    pub fn pred(&self, source: u8) -> u32 {
        let value = self.warp.preds[usize::from(source & 31)];
        if source & NOT != 0 { !value } else { value }
    }

    /// Writes a predicate in the lanes of `self.mask`.
    #[inline(always)]
    pub fn put_pred(&mut self, pd: u8, value: u32) {
        debug_assert!(pd <= NO_PREDICATE && pd & 7 != 7);
        let p = &mut self.warp.preds[usize::from(pd & 31)];
        *p = (*p & !self.mask) | (value & self.mask);
    }

    /// The value of a uniform register slot.
    #[inline(always)]
    pub fn uniform(&self, slot: u16) -> u32 {
        self.lane(slot, 0)
    }

    /// Guest address of the current op.
    pub fn va(&self) -> u64 {
        self.map.va(self.pc)
    }

    /// Records an error of the current op.
    #[cold]
    #[inline(never)]
    pub fn raise(&mut self, code: u32, lanes: u32, address: Option<u64>, mmu: Option<MemoryFault>) -> Flow {
        let text = self.env.text(self.map.word(self.pc), self.va());
        self.raise_text(code, lanes, address, mmu, text)
    }

    /// Records an error of the current op, with its own words.
    #[cold]
    #[inline(never)]
    pub fn raise_text(
        &mut self,
        code: u32,
        lanes: u32,
        address: Option<u64>,
        mmu: Option<MemoryFault>,
        text: String,
    ) -> Flow {
        self.fault = Some(Box::new(Fault {
            code,
            pc: self.va(),
            block: self.block.id,
            sm: self.block.sm,
            warp: self.warp.index,
            lanes,
            address,
            mmu,
            text,
            found: false,
            place: None,
            state: None,
        }));
        Flow::Fault
    }

    /// Records that the operation is not modelled.
    #[cold]
    pub fn unsupported(&mut self, why: &str) -> Flow {
        let text = format!("{why}: {}", self.env.text(self.map.word(self.pc), self.va()));
        self.raise_text(esr::ILLEGAL_INSTR_PARAM, self.mask, None, None, text)
    }
}
