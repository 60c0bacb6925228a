//! Strong accesses of 128 bits to global memory, each a single value: no access sees a part of another.
//!
//! Where the host has vector accesses, these are single when aligned, as here. Languages have no atomics of
//! this width on every other host, so there such accesses of different workers are serialized; weak accesses,
//! and the process that owns the buffer, may see halves then, as PTX allows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gpu::sm::core::Flow;
use crate::gpu::sm::guest;
use crate::gpu::sm::lanes::Isa;
use crate::gpu::sm::launch::Access;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::warp_ops;
use crate::gpu::sm::ops::address::{self, Pattern, Space};
use crate::gpu::sm::ops::atomic::lanes;
use crate::gpu::sm::ops::memory::{self, addresses};

/// Addresses that may be accessed at the same time.
const STRIPES: usize = 64;
static TURNS: [Mutex<()>; STRIPES] = [const { Mutex::new(()) }; STRIPES];

/// The turn of an access at a host address.
fn turn(host: u64) -> MutexGuard<'static, ()> {
    TURNS[(host / 16) as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
}

warp_ops! {
    /// LDG.128 with an order and scope; ps[0] takes lanes away, k[5]: generic.
    LoadWhole(core, op) {
        core.mask &= core.pred(op.ps[0]);
        if core.mask == 0 {
            return Flow::Next;
        }
        let space = if op.k[5] != 0 { Space::Generic } else { Space::Global };
        let at = match address::global(core, addresses(core, op), 16, Access::Read, space) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let vectors = guest::HAS_VECTOR_ACCESSES && core.env.target.isa != Isa::Baseline;
        let load = |host: u64| {
            if vectors {
                // SAFETY: `Checked`; beyond the baseline there is AVX.
                return unsafe { guest::load_16(host as *const u8) };
            }
            let _turn = turn(host);
            // SAFETY: `Checked`.
            unsafe { guest::load_words::<16>(host as *const u8) }
        };
        let mut t = [[0u32; 32]; 4];
        if at.pattern == Pattern::Broadcast {
            let words = load(at.host[0]);
            t = [[words[0]; 32], [words[1]; 32], [words[2]; 32], [words[3]; 32]];
        } else {
            for i in lanes(core.mask) {
                for (row, word) in t.iter_mut().zip(load(at.host[i])) {
                    row[i] = word;
                }
            }
        }
        for (w, row) in (0..).zip(&t) {
            core.put(op.d + w, row);
        }
        Flow::Next
    }

    /// STG.128 with an order and scope, of the registers from C on; k[5]: generic.
    StoreWhole(core, op) {
        let space = if op.k[5] != 0 { Space::Generic } else { Space::Global };
        let at = match address::global(core, addresses(core, op), 16, Access::Write, space) {
            Ok(at) => at,
            Err(flow) => return flow,
        };
        let vectors = guest::HAS_VECTOR_ACCESSES && core.env.target.isa != Isa::Baseline;
        for i in lanes(core.mask) {
            let word = |w: u16| core.lane(op.c + w, i);
            let words = [word(0), word(1), word(2), word(3)];
            if vectors {
                // SAFETY: `Checked`; beyond the baseline there is AVX.
                unsafe { guest::store_16(at.host[i] as *mut u8, words) };
                continue;
            }
            let _turn = turn(at.host[i]);
            // SAFETY: `Checked`.
            unsafe { guest::store_words::<16>(at.host[i] as *mut u8, words) };
        }
        Flow::Next
    }
}

/// Whether a load or store is of 128 bits and strong: orders from this number on are; those below are none,
/// and constant ones.
fn is_whole(l: &Lower<'_>) -> bool {
    const STRONG: u32 = 5;
    const B128: u32 = 6;
    l.bits(73, 3) == B128 && l.bits(77, 4) >= STRONG
}

/// LDG and LD.
pub(super) fn load_wide(l: &mut Lower<'_>, space: Space) -> Result<(), Refusal> {
    memory::load_wide(l, space)?;
    if is_whole(l) {
        l.op.k[5] = u32::from(space == Space::Generic);
        l.run::<LoadWhole>();
    }
    Ok(())
}

/// STG and ST.
pub(super) fn store_wide(l: &mut Lower<'_>, space: Space) -> Result<(), Refusal> {
    memory::store_wide(l, space)?;
    if is_whole(l) {
        l.op.k[5] = u32::from(space == Space::Generic);
        l.run::<StoreWhole>();
    }
    Ok(())
}
