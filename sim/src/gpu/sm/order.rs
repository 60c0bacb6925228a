//! The order in which blocks, warps and paths run.

use crate::gpu::sm::launch::Schedule;

/// The order in which a worker runs them.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// State of a xorshift generator; 0 means the fixed order.
    seed: u64,
}

impl Order {
    pub fn new(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Shuffled(seed) => Order { seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 },
            Schedule::Parallel | Schedule::Deterministic => Order { seed: 0 },
        }
    }

    fn next(&mut self, n: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as usize % n
    }

    /// The path to run next, out of `n`.
    pub fn pick(&mut self, n: usize) -> usize {
        if self.seed == 0 { n - 1 } else { self.next(n) }
    }

    /// The warp to run at place `i` of `n`.
    pub fn warp(&mut self, i: usize, n: usize) -> usize {
        if self.seed == 0 { i } else { self.next(n) }
    }

    /// Jumps that a path may take at a stretch.
    pub fn fuel(&mut self, usual: u32) -> u32 {
        if self.seed == 0 { usual } else { 1 + self.next(64) as u32 }
    }

    /// Instructions that a block may run at a stretch.
    pub fn slice(&mut self, usual: u64) -> u64 {
        if self.seed == 0 { usual } else { 1 + self.next(5000) as u64 }
    }

    /// Instructions that a launch may run at a stretch: few as often as many.
    pub fn turn(&mut self, usual: u64) -> u64 {
        if self.seed == 0 { usual } else { 16 << self.next(10) }
    }

    /// Whether to go on with another block although this one could.
    pub fn exchange(&mut self) -> bool {
        self.seed != 0 && self.next(2) == 0
    }
}
