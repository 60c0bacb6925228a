//! A thread block: its warps, its shared memory and its barriers.

use crate::gpu::sm::code_map::CodeMap;
use crate::gpu::sm::lanes::Lanes;
use crate::gpu::sm::launch::Launch;
use crate::gpu::sm::slots::FileLayout;
use crate::gpu::sm::warp::{Wait, Warp};
use crate::gpu::sm::written::WrittenBytes;

/// Threads that a block has at most.
const MOST: u32 = 1024;

/// One of the 16 barriers of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barrier {
    /// Threads that have arrived, whole warps at a time.
    pub arrived: u32,
    /// Threads to wait for, as those who have come say; 0 means all of the block that have not exited.
    pub wanted: u32,
    /// Lanes of a diverged warp that came while others are still away, by warp.
    pub partial: Vec<(u32, u32)>,
    /// Threads whose predicate was true, and false.
    pub votes: [u32; 2],
    /// Whether the reduction is an OR.
    pub any: bool,
}

impl Barrier {
    /// Whether threads have come to it since it was last complete.
    pub fn has_begun(&self) -> bool {
        self.arrived != 0 || !self.partial.is_empty()
    }

    /// Whether it takes an arrival with this count, after those that have come.
    pub fn takes(&self, count: u32, waits: bool) -> bool {
        let known = count.is_multiple_of(32) && count <= MOST && (waits || count != 0);
        known && (!self.has_begun() || self.wanted == count)
    }

    /// Back to the state of a block that begins.
    fn reset(&mut self) {
        let mut partial = std::mem::take(&mut self.partial);
        partial.clear();
        *self = Barrier { partial, ..Barrier::default() };
    }
}

/// A thread block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub id: [u32; 3],
    pub index: u64,
    pub sm: u32,
    pub warps: Vec<Warp>,
    /// Instructions issued so far.
    pub instructions: u64,
    /// Shared memory, rounded up to whole rows.
    pub shared: Vec<Lanes>,
    /// Bytes of `shared` that were written, where that is checked.
    pub written: WrittenBytes,
    pub barriers: [Barrier; 16],
    /// Registers of a thread that warps gave back, summed over warps.
    pub spare_registers: u32,
}

impl Block {
    /// Begins block `index` of the grid. Memory and registers hold `fresh`.
    pub fn start(&mut self, launch: &Launch, index: u64, layout: FileLayout, fresh: Lanes) {
        let [gx, gy, _] = launch.grid.map(u64::from);
        self.index = index;
        self.instructions = 0;
        self.id = [(index % gx) as u32, (index / gx % gy) as u32, (index / gx / gy) as u32];
        self.sm = (index % u64::from(launch.sm_count.max(1))) as u32;
        self.shared.clear();
        self.written.clear();
        self.shared.resize(launch.shared_bytes.div_ceil(128) as usize, fresh);
        let threads = launch.threads_per_block();
        self.warps.resize_with(launch.warps_per_block() as usize, Warp::default);
        for (i, warp) in (0u32..).zip(&mut self.warps) {
            warp.start(i, (threads - 32 * i).min(32), layout, fresh);
            warp.registers = launch.registers;
        }
        self.barriers.iter_mut().for_each(Barrier::reset);
        self.spare_registers = 0;
    }

    /// Every path and wait of the block, for a deadlock report.
    pub fn describe(&self, map: &CodeMap) -> String {
        let mut lines = Vec::new();
        for warp in &self.warps {
            for w in &warp.waiting {
                let what = match w.on {
                    Wait::Converge(n) => {
                        format!("convergence barrier B{n} (lanes {:#010x})", warp.barriers[usize::from(n)])
                    }
                    Wait::WarpSync(mask) => format!("WARPSYNC of lanes {mask:#010x}"),
                    Wait::Block(id) => format!("block barrier {id}"),
                };
                let at = map.va(w.pc.wrapping_sub(1));
                lines.push(format!("warp {} lanes {:#010x} at {at:#x} wait for {what}", warp.index, w.mask));
            }
        }
        lines.join("; ")
    }
}
