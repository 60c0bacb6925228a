//! A thread block: its warps, its shared memory and its barriers.

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::Lanes;
use crate::gpu::sm::launch::Launch;
use crate::gpu::sm::warp::{Wait, Waiting, Warp};

/// One of the 16 barriers of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barrier {
    /// Threads that have arrived, whole warps at a time.
    arrived: u32,
    /// Threads to wait for; 0 stands for all of the block.
    wanted: u32,
    /// Lanes of a diverged warp that came while others are still away, by warp.
    partial: Vec<(u32, u32)>,
    /// Threads whose predicate was true, and false.
    votes: [u32; 2],
    /// Whether the reduction is an OR.
    any: bool,
}

/// How threads come to a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub id: u32,
    /// Threads to wait for; 0 stands for all of the block.
    pub count: u32,
    pub lanes: u32,
    /// Whether they stay until the barrier is complete.
    pub waits: bool,
    /// Lanes whose predicate is true, for a reduction.
    pub votes: u32,
    pub any: bool,
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
    barriers: [Barrier; 16],
}

impl Block {
    /// Begins block `index` of the grid.
    pub fn start(&mut self, launch: &Launch, index: u64, slots: usize) {
        let [gx, gy, _] = launch.grid.map(u64::from);
        self.index = index;
        self.instructions = 0;
        self.id = [(index % gx) as u32, (index / gx % gy) as u32, (index / gx / gy) as u32];
        self.sm = (index % u64::from(launch.sm_count.max(1))) as u32;
        self.shared.clear();
        self.shared.resize(launch.shared_bytes.div_ceil(128) as usize, Lanes::ZERO);
        let threads = launch.threads_per_block();
        self.warps.resize_with(launch.warps_per_block() as usize, Warp::default);
        for (i, warp) in (0u32..).zip(&mut self.warps) {
            warp.start(i, (threads - 32 * i).min(32), slots);
        }
        self.barriers = Default::default();
    }

    /// Every path and wait of the block, for a deadlock report.
    pub fn describe(&self, vas: &[u64]) -> String {
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
                let at = vas.get((w.pc as usize).wrapping_sub(1)).copied().unwrap_or(0);
                lines.push(format!("warp {} lanes {:#010x} at {at:#x} wait for {what}", warp.index, w.mask));
            }
        }
        lines.join("; ")
    }
}

impl Core<'_> {
    /// Lets the lanes of `arrival` come to a barrier.
    pub fn arrive(&mut self, arrival: Arrival) -> Flow {
        let Arrival { id, count, lanes, waits, votes, any } = arrival;
        if id >= self.grid.launch.barriers.clamp(1, 16) {
            return self.raise(esr::OOR_REG, lanes, None, None);
        }
        let warp = self.warp.index;
        let live = self.warp.live;
        let barrier = &mut self.block.barriers[id as usize];
        barrier.wanted = count.div_ceil(32) * 32;
        barrier.any = any;
        barrier.votes[0] += (votes & lanes).count_ones();
        barrier.votes[1] += (!votes & lanes).count_ones();
        let before = match barrier.partial.iter().position(|p| p.0 == warp) {
            Some(i) => barrier.partial.swap_remove(i).1,
            None => 0,
        };
        if live & !(before | lanes) == 0 {
            barrier.arrived += 32;
        } else {
            barrier.partial.push((warp, before | lanes));
        }
        if waits {
            self.active &= !lanes;
            self.warp.waiting.push(Waiting { pc: self.pc + 1, mask: lanes, on: Wait::Block(id as u8) });
        }
        self.complete_barrier(id as usize);
        if !waits {
            return Flow::Next;
        }
        // Lanes that the guard kept away from the barrier go on alone.
        if self.active == 0 { Flow::Park } else { Flow::Next }
    }

    /// Lets the waiters of a barrier go if it is complete.
    fn complete_barrier(&mut self, id: usize) {
        let own = u32::from(!self.warp.is_done());
        let me = self.warp.index as usize;
        let others =
            self.block.warps.iter().enumerate().filter(|(i, w)| *i != me && !w.is_done()).count() as u32;
        let barrier = &mut self.block.barriers[id];
        let all = 32 * (own + others);
        let wanted = if barrier.wanted == 0 { all } else { barrier.wanted.min(all.max(32)) };
        if barrier.arrived == 0 || barrier.arrived < wanted {
            return;
        }
        let [yes, no] = barrier.votes;
        let result = if barrier.any { yes > 0 } else { no == 0 };
        *barrier = Barrier::default();
        let on = Wait::Block(id as u8);
        for (i, warp) in self.block.warps.iter_mut().enumerate() {
            let warp = if i == me { &mut self.warp } else { warp };
            if warp.waiting.iter().any(|w| w.on == on) {
                warp.bar_count = yes;
                warp.bar_bool = result;
                warp.release(|w| w.on == on);
            }
        }
    }

    /// Takes lanes out of the current warp for good, which may complete barriers of the block.
    pub fn exit_lanes(&mut self, lanes: u32) {
        self.warp.exit(lanes);
        self.active &= !lanes;
        let (warp, live) = (self.warp.index, self.warp.live);
        for id in 0..16 {
            let barrier = &mut self.block.barriers[id];
            if let Some(i) = barrier.partial.iter().position(|p| p.0 == warp)
                && live & !barrier.partial[i].1 == 0
            {
                barrier.partial.swap_remove(i);
                barrier.arrived += 32;
            }
            if barrier.arrived != 0 {
                self.complete_barrier(id);
            }
        }
    }
}
