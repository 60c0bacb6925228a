//! Copies of blocks, made when one of their warps fails: the state that a debugger would read.

use std::sync::Arc;

use crate::gpu::sm::block::Block;
use crate::gpu::sm::code_map::CodeMap;
use crate::gpu::sm::fault::Fault;
use crate::gpu::sm::lanes::Lanes;
use crate::gpu::sm::launch::Launch;
use crate::gpu::sm::slots::UNIFORM_PREDICATES;
use crate::gpu::sm::state::{BlockState, WarpState};
use crate::gpu::sm::warp::Warp;

/// Most bytes of a warp's local memory that are kept.
const MOST_LOCAL: usize = 1 << 20;
/// Uniform registers of a warp, URZ left out.
const UNIFORM_REGISTERS: usize = 63;

impl Fault {
    /// The fault with the state of its block. `active` are the lanes of the path that failed; 0 if none did.
    pub(crate) fn with_state(self, launch: &Launch, block: &Block, map: &CodeMap, active: u32) -> Self {
        let warp = |warp: &Warp| {
            let failed = (warp.index == self.warp).then_some((self.pc, active));
            state(warp, launch, map, failed)
        };
        let state = BlockState {
            program: launch.program,
            grid_id: launch.grid_id,
            grid: launch.grid,
            block: launch.block,
            registers: launch.registers,
            index: block.id,
            sm: block.sm,
            windows: launch.windows,
            shared: bytes(&block.shared, launch.shared_bytes as usize),
            warps: block.warps.iter().filter(|warp| !warp.is_done()).map(warp).collect(),
        };
        Self { state: Some(Arc::new(state)), ..self }
    }
}

/// The state of a warp; `failed` is the address of the error and the lanes of its path.
fn state(warp: &Warp, launch: &Launch, map: &CodeMap, failed: Option<(u64, u32)>) -> WarpState {
    let mut pc = [0; 32];
    let mut put = |mask: u32, va: u64| {
        (0..32).filter(|lane| mask >> lane & 1 != 0).for_each(|lane: usize| pc[lane] = va);
    };
    warp.paths.iter().for_each(|path| put(path.mask, map.va(path.pc)));
    // They continue after the operation at which they wait.
    warp.waiting.iter().for_each(|wait| put(wait.mask, map.va(wait.pc.wrapping_sub(1))));
    let parked = warp.paths.iter().map(|path| path.mask).chain(warp.waiting.iter().map(|wait| wait.mask));
    let stopped = failed.map_or(0, |(_, active)| active & warp.live & !parked.fold(0, |a, b| a | b));
    if let Some((va, _)) = failed {
        put(stopped, va);
    }
    let next = || warp.paths.last().map(|path| path.mask).or(warp.waiting.first().map(|wait| wait.mask));
    let general = launch.registers as usize;
    // Write-only slots stand between general and uniform registers.
    let uniform = warp.file.len().saturating_sub(UNIFORM_REGISTERS + 1);
    WarpState {
        index: warp.index,
        valid: warp.live,
        active: if stopped != 0 { stopped } else { next().unwrap_or(0) },
        pc,
        registers: warp.file.iter().take(general).map(|lanes| lanes.0).collect(),
        predicates: std::array::from_fn(|p| warp.preds[p]),
        uniform_registers: warp.file.iter().skip(uniform).take(UNIFORM_REGISTERS).map(|l| l.0[0]).collect(),
        uniform_predicates: std::array::from_fn(|p| warp.preds[usize::from(UNIFORM_PREDICATES) + p] & 1 != 0),
        local: if failed.is_some() { local(warp, launch) } else { Vec::new() },
    }
}

/// Local memory of each lane.
fn local(warp: &Warp, launch: &Launch) -> Vec<Vec<u8>> {
    let size = (launch.local_bytes as usize).next_multiple_of(16);
    if warp.local.is_empty() || size == 0 || 32 * size > MOST_LOCAL {
        return Vec::new();
    }
    bytes(&warp.local, 32 * size).chunks(size).map(<[u8]>::to_vec).collect()
}

/// The first `len` bytes of memory that is kept in rows.
fn bytes(rows: &[Lanes], len: usize) -> Vec<u8> {
    rows.iter().flat_map(|row| row.0).flat_map(u32::to_le_bytes).take(len).collect()
}

#[cfg(test)]
mod tests {
    use sass::Arch;

    use super::*;
    use crate::gpu::sm::launch::Windows;
    use crate::gpu::sm::slots::FileLayout;
    use crate::gpu::sm::warp::{Path, Wait, Waiting};

    fn launch() -> Launch {
        Launch {
            arch: Arch::Sm87,
            program: 0x1000,
            grid: [1; 3],
            block: [32, 1, 1],
            registers: 2,
            shared_bytes: 0,
            local_bytes: 20,
            barriers: 1,
            banks: [None; 8],
            windows: Windows { shared_base: 0xfe00_0000, local_base: 0xff00_0000 },
            grid_id: 0,
            sm_count: 1,
            max_warps_per_sm: 48,
            shared_bytes_per_sm: 0x1_0000,
        }
    }

    #[test]
    fn lanes_stand_where_their_paths_and_waits_are() {
        let mut map = CodeMap::default();
        (0..4).for_each(|op| map.push(0x1000 + 16 * op, 0));
        let mut warp = Warp::default();
        warp.start(3, 32, FileLayout { registers: 4, uniforms: 2 }, Lanes::ZERO);
        for (slot, row) in (1..).zip(&mut warp.file) {
            *row = Lanes::splat(slot);
        }
        warp.exit(1 << 31);
        warp.paths = vec![Path { pc: 2, mask: 0b10 }];
        warp.waiting = vec![Waiting { pc: 1, mask: 0b100, on: Wait::Block(0) }];
        warp.local =
            (0..32 * 32 / 128).map(|row| Lanes(std::array::from_fn(|i| row * 32 + i as u32))).collect();
        let state = state(&warp, &launch(), &map, Some((0x1030, u32::MAX)));
        assert_eq!((state.index, state.valid, state.active), (3, u32::MAX >> 1, u32::MAX >> 1 & !0b110));
        assert_eq!(state.pc[..4], [0x1030, 0x1020, 0x1000, 0x1030]);
        assert_eq!(state.pc[31], 0, "it has exited");
        assert_eq!(state.registers, [[1; 32], [2; 32]], "those of the launch");
        // Four general registers and four write-only slots stand before UR0.
        assert_eq!((state.uniform_registers.len(), state.uniform_registers[0]), (63, 9));
        assert_eq!((state.local.len(), state.local[1].len()), (32, 32));
        assert_eq!(state.local[1][..8], [8, 0, 0, 0, 9, 0, 0, 0]);
        let waits = state_of_a_warp_that_waits(&map);
        assert_eq!((waits.active, waits.local.len()), (0b100, 0));
    }

    fn state_of_a_warp_that_waits(map: &CodeMap) -> WarpState {
        let mut warp = Warp::default();
        warp.start(0, 3, FileLayout { registers: 4, uniforms: 0 }, Lanes::ZERO);
        warp.paths.clear();
        warp.waiting = vec![Waiting { pc: 1, mask: 0b100, on: Wait::Block(0) }];
        state(&warp, &launch(), map, None)
    }
}
