//! The barriers of a block: threads arrive, wait and exit.
//!
//! An H100 says what happens at the edges (`named_barrier` of `tests/kernels/suite.ptx`); what an SM 8.x does
//! there is not measured, and taken to be the same:
//! - A barrier with a count is complete when as many threads have arrived. Warps that exit neither count nor
//!   lower the count: if too few are left, the others wait for ever.
//! - One without a count waits for the warps of the block that have not exited.
//! - A warp arrives as a whole, once its lanes that have not exited are there, and counts as 32 threads.
//! - A count that is no multiple of 32, that is more than a block has, or that is another one than that of those
//!   who came before, is an error: no count and the count of all threads differ too. The largest count that it
//!   takes is not measured; 2048 is too many.
//! - A number in a register counts modulo 16.
//! - A block may end with arrivals that no one has waited for.

use crate::gpu::sm::block::Barrier;
use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::warp::{Wait, Waiting, Warp};

/// Arrival of threads at a barrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub id: u32,
    /// Threads to wait for; 0 means all of the block.
    pub count: u32,
    pub lanes: u32,
    /// Whether they stay until the barrier is complete.
    pub waits: bool,
    /// Lanes whose predicate is true, for a reduction.
    pub votes: u32,
    pub any: bool,
}

impl Core<'_> {
    /// The lanes of `arrival` arrive at a barrier.
    pub fn arrive(&mut self, arrival: Arrival) -> Flow {
        let Arrival { id, count, lanes, waits, votes, any } = arrival;
        if id >= self.env.launch.barriers.clamp(1, 16) {
            return self.raise(esr::OOR_REG, lanes, None, None);
        }
        let warp = self.warp.index;
        let live = self.warp.live;
        let barrier = &mut self.block.barriers[id as usize];
        if !barrier.takes(count, waits) {
            return self.raise(esr::ILLEGAL_INSTR_PARAM, lanes, None, None);
        }
        barrier.wanted = count;
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
        let me = self.warp.index as usize;
        let wanted = match self.block.barriers[id].wanted {
            0 => {
                let alive = |(i, w): (usize, &Warp)| !if i == me { &self.warp } else { w }.is_done();
                32 * self.block.warps.iter().enumerate().filter(|&at| alive(at)).count() as u32
            }
            count => count,
        };
        let barrier = &mut self.block.barriers[id];
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

    /// Lanes of the current warp exit, which may complete barriers of the block.
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
