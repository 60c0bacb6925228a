//! Scratch memory: where the stack frames of kernels live.
//!
//! One allocation serves all queues of a device. It grows when a kernel needs more; smaller ones stay until
//! the device goes, since kernels that were launched before may still use them.

use std::sync::Mutex;

use crate::backend::MemoryKind;
use crate::core::Core;
use crate::error::Error;
use crate::info::Info;
use crate::memory::manager::Piece;
use crate::submission::pushbuffer::Scratch;
use crate::sync::lock;

/// SMs in a texture processing cluster, since Volta.
const SMS_PER_TPC: u64 = 2;
/// Bytes above the place where compiled code starts its stack pointer (0xFFFDC0 in a 16 MiB window).
const STACK_TOP_GAP: u32 = 0x240;
/// Unit of the size per thread, in bytes.
const THREAD_UNIT: u32 = 32;

/// Bytes of local memory per thread that a frame of `frame` bytes takes, as the QMD's
/// `SHADER_LOCAL_MEMORY_HIGH_SIZE` wants it: the frame and what lies above the stack's start. 0 for kernels
/// without a frame.
pub(crate) fn per_thread(frame: u32) -> u32 {
    if frame == 0 {
        0
    } else {
        frame.saturating_add(STACK_TOP_GAP).saturating_add(THREAD_UNIT - 1) & !(THREAD_UNIT - 1)
    }
}

/// Bytes that a cluster of SMs with `warps` warps each needs, and bytes for the whole GPU.
fn sizes(info: &Info, warps: u32, per_thread: u32) -> (u64, u64) {
    let per_warp = (32 * u64::from(per_thread)).next_multiple_of(0x200);
    let per_tpc = (per_warp * u64::from(warps) * SMS_PER_TPC).next_multiple_of(0x8000);
    (per_tpc, (per_tpc * u64::from(info.tpc_count)).next_multiple_of(0x2_0000))
}

#[derive(Default)]
struct State {
    per_thread: u32,
    current: Option<Scratch>,
    pieces: Vec<Piece>,
}

/// A device's scratch memory.
#[derive(Default)]
pub(crate) struct ScratchPool(Mutex<State>);

/// The scratch base takes 128 KiB alignment; mappings of their own start on granules, so some is skipped.
const ALIGN: u64 = 0x2_0000;

/// Bytes that [`ScratchPool::get`] allocates for `per_thread` bytes per thread, if it has none yet.
pub(crate) fn bytes(core: &Core, per_thread: u32) -> u64 {
    match per_thread {
        0 => 0,
        some => sizes(core.info(), core.backend().layout().local_warps, some).1 + ALIGN,
    }
}

impl ScratchPool {
    /// Scratch memory for at least `per_thread` bytes per thread.
    pub fn get(&self, core: &Core, per_thread: u32) -> Result<Scratch, Error> {
        let mut state = lock(&self.0);
        if let (Some(scratch), true) = (state.current, state.per_thread >= per_thread) {
            return Ok(scratch);
        }
        let (per_tpc, _) = sizes(core.info(), core.backend().layout().local_warps, per_thread);
        let piece = core.alloc(bytes(core, per_thread), MemoryKind::Device, "scratch")?;
        let base = piece.at(piece.va().raw().next_multiple_of(ALIGN) - piece.va().raw());
        let scratch = Scratch { base, per_tpc };
        *state = State {
            per_thread,
            current: Some(scratch),
            pieces: std::mem::take(&mut state.pieces).into_iter().chain([piece]).collect(),
        };
        Ok(scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_equal_the_golden_values() {
        assert_eq!(per_thread(0), 0);
        assert_eq!(per_thread(1024), 0x640);
        let mut info = crate::backend::nvgpu::tests::info();
        info.tpc_count = 8;
        assert_eq!(sizes(&info, 48, 0x240), (0x1b_0000, 0xd8_0000));
        assert_eq!(sizes(&info, 48, 0x640), (0x4b_0000, 0x258_0000));
        info.tpc_count = 66;
        assert_eq!(sizes(&info, 64, 0x240), (0x24_0000, 0x948_0000));
    }
}
