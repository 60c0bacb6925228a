//! Copies of whole runs of bytes from global to shared memory (UBLKCP of sm_90).

use std::cell::Cell;

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::guest;
use crate::gpu::sm::launch::{Access, MemoryFault};
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::mbarrier::{Arrival, Overflow, arrive_9x};
use crate::gpu::sm::micro_op::{MicroOp, warp_ops};
use crate::gpu::sm::ops::address;
use crate::gpu::sm::ops::atomic::update;
use crate::gpu::sm::ops::object::overflow;
use crate::gpu::sm::tlb::Miss;

/// Addresses and lengths are multiples of this, in bytes.
const UNIT: u64 = 16;
/// Bytes that are counted as one load: the size of a warp's widest.
const LOAD: u64 = 512;

/// A copy: what its registers say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkCopy {
    /// Guest address.
    pub from: u64,
    /// Offset into shared memory.
    pub to: u32,
    /// Offset of the barrier object that counts the bytes.
    pub object: u32,
    pub bytes: u32,
}

impl BulkCopy {
    /// The copy that [`CopyBulk`] is about to make.
    pub fn of(core: &Core<'_>, op: &MicroOp) -> Self {
        let pair = |slot: u16| (core.uniform(slot), core.uniform(slot + 1));
        let ((low, high), (to, object)) = (pair(op.a), pair(op.b));
        // The upper half names the blocks of a cluster that a copy is for.
        let bytes = (core.uniform(op.c) & 0xffff) * UNIT as u32;
        BulkCopy { from: u64::from(low) | u64::from(high) << 32, to, object, bytes }
    }

    /// Returns the state of the barrier object after the arrival of its bytes.
    pub fn arrive(&self, state: u64) -> Result<u64, Overflow> {
        arrive_9x(state, Arrival { bytes: -i64::from(self.bytes), ..Arrival::default() })
    }

    /// Checks the addresses; the error code, and the address that is wrong.
    fn check(&self, shared_bytes: u32) -> Result<(), (u32, u64)> {
        let (to, object, size) = (u64::from(self.to), u64::from(self.object), u64::from(shared_bytes));
        for (at, align) in [(to, UNIT), (self.from, UNIT), (object, 8)] {
            if !at.is_multiple_of(align) {
                return Err((esr::MISALIGNED_ADDR, at));
            }
        }
        for (at, bytes) in [(to, self.bytes.into()), (object, 8)] {
            if at + bytes > size {
                return Err((esr::OOR_ADDR, at));
            }
        }
        Ok(())
    }

    /// Copies the bytes.
    fn run(&self, core: &mut Core<'_>) -> Result<(), Miss> {
        let (mut at, end) = (self.from, self.from.saturating_add(self.bytes.into()));
        let mut to = (core.block.shared.as_mut_ptr() as *mut u8).wrapping_add(self.to as usize);
        while at < end {
            let entry = core.tlb.find(at, Access::Read)?;
            let run = (entry.va + entry.len - at).min(end - at).min(LOAD - at % LOAD);
            let sectors = ((at + run - 1) >> 5) - (at >> 5) + 1;
            address::count(core, sectors, Access::Read, |i| at + (UNIT * i as u64).min(run - UNIT));
            for offset in (0..run as usize).step_by(UNIT as usize) {
                let from = entry.host.wrapping_add((at - entry.va) as usize + offset);
                // SAFETY: the entry covers the run, `check` said that the destination lies in the block's shared
                // memory, and both are aligned to 16 bytes: pages and shared memory begin at such addresses.
                unsafe { guest::store_words::<16>(to.add(offset), guest::load_words::<16>(from)) };
            }
            to = to.wrapping_add(run as usize);
            at += run;
        }
        Ok(())
    }
}

/// Raises the error of one lane's copy.
#[cold]
fn raise(core: &mut Core<'_>, code: u32, at: u64, mmu: Option<MemoryFault>) -> Flow {
    let first = core.active & core.active.wrapping_neg();
    core.raise(code, first, Some(at), mmu)
}

warp_ops! {
    /// UBLKCP.S.G: copies at once, then its bytes arrive at the barrier object. A: the source, B: the destination
    /// and the object, C: units of 16 bytes; all uniform. Errors of the copy unit are those of other accesses;
    /// that the hardware reports them with the same codes is assumed.
    CopyBulk(core, op) {
        let copy = BulkCopy::of(core, op);
        if let Err((code, at)) = copy.check(core.env.launch.shared_bytes) {
            return raise(core, code, at, None);
        }
        match copy.run(core) {
            Ok(()) => {}
            Err(Miss::Mmu(fault)) => return raise(core, esr::MMU_FAULT, fault.va, Some(fault)),
            Err(Miss::Shared | Miss::Local) => return raise(core, esr::INVALID_ADDR_SPACE, copy.from, None),
        }
        let object = (core.block.shared.as_mut_ptr() as u64).wrapping_add(u64::from(copy.object));
        let refused = Cell::new(None);
        update(object, true, |state| {
            copy.arrive(state).unwrap_or_else(|what| {
                refused.set(Some(what));
                state
            })
        });
        match refused.get() {
            Some(what) => overflow(core, core.active.trailing_zeros() as usize & 31, what),
            None => Flow::Next,
        }
    }
}

/// UBLKCP from global to shared memory.
pub(super) fn copy(l: &mut Lower<'_>) -> Result<(), Refusal> {
    const TO_SHARED: u32 = 1;
    if l.bits(73, 2) != TO_SHARED {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    l.op.a = l.ureg(l.bits(24, 6), 2)?;
    l.op.b = l.ureg(l.bits(32, 6), 2)?;
    l.op.c = l.ureg(l.bits(64, 6), 1)?;
    l.run::<CopyBulk>();
    Ok(())
}
