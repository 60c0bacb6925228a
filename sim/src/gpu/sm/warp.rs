//! A warp: its registers, its paths, and waits between its lanes.

use crate::gpu::sm::lanes::Lanes;
use crate::gpu::sm::slots::{FileLayout, PREDICATES, UNIFORM_PREDICATES};
use crate::gpu::sm::written::WrittenBytes;

/// Times that lanes give way before they count as spinning.
const SPINS: u32 = 64;

/// Lanes at one op that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub pc: u32,
    pub mask: u32,
}

/// Reason why lanes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The other lanes of a convergence barrier.
    Converge(u8),
    /// The lanes of a mask, at the same WARPSYNC.
    WarpSync(u32),
    /// A barrier of the block.
    Block(u8),
}

/// Lanes at one op that wait for an event; they continue at `pc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub pc: u32,
    pub mask: u32,
    pub on: Wait,
}

/// The state of a warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// Registers, write-only slots and uniform registers, as `FileLayout` places them.
    pub file: Vec<Lanes>,
    /// Predicates as lane masks; uniform ones are all ones or all zeros.
    pub preds: [u32; PREDICATES],
    /// Convergence barriers.
    pub barriers: [u32; 16],
    /// Lanes that have not exited.
    pub live: u32,
    /// Warp within the block.
    pub index: u32,
    /// Lanes that the warp began with.
    pub threads: u32,
    pub paths: Vec<Path>,
    /// The lanes of the path that continues first, if one rests; else none.
    pub resting: u32,
    pub waiting: Vec<Waiting>,
    /// Local memory, lane after lane; empty until first used.
    pub local: Vec<Lanes>,
    /// Lanes that gave way while others waited, and how often that happened in a row.
    yielded: u32,
    yields: u32,
    /// Bytes of `local` that were written, where that is checked.
    pub written: WrittenBytes,
    /// The lanes that have written each register, where that is checked.
    defined: Vec<u32>,
    /// Registers that a thread has.
    pub registers: u32,
    /// The second return address, which code uses as a register pair: lower and upper half.
    pub return_pc: [[u32; 32]; 2],
    /// Result of the last reducing block barrier: the count of true predicates.
    pub bar_count: u32,
    /// ... and its AND or OR.
    pub bar_bool: bool,
}

impl Warp {
    /// Begins a warp of `threads` lanes at op 0. Its general registers hold `fresh`.
    pub fn start(&mut self, index: u32, threads: u32, layout: FileLayout, fresh: Lanes) {
        let live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        // Slots that the program does not name stay as they are: zero.
        self.file.resize(layout.len(), Lanes::ZERO);
        let (general, others) = self.file.split_at_mut(usize::from(layout.registers));
        general.fill(fresh);
        others[..layout.named() - usize::from(layout.registers)].fill(Lanes::ZERO);
        self.preds = [0; PREDICATES];
        self.preds[7] = u32::MAX;
        self.preds[usize::from(UNIFORM_PREDICATES) + 7] = u32::MAX;
        self.barriers = [0; 16];
        self.live = live;
        self.threads = live;
        self.index = index;
        self.paths.clear();
        self.paths.push(Path { pc: 0, mask: live });
        self.resting = 0;
        self.waiting.clear();
        self.local.clear();
        self.written.clear();
        self.defined.clear();
        self.return_pc = [[0; 32]; 2];
        self.bar_count = 0;
        self.bar_bool = false;
        (self.yielded, self.yields) = (0, 0);
    }

    /// Lanes give way. Those that do so again and again may be spinning on something that a waiter holds: a
    /// convergence barrier then no longer waits for them. Hopper does so (`tests/kernels/barriers.ptx`):
    /// lanes at a BSYNC went on while the barrier's others were in a loop with a YIELD. It keeps spin
    /// locks alive whose critical section follows a BSYNC.
    pub fn give_way(&mut self, lanes: u32) {
        if self.waiting.is_empty() {
            return;
        }
        self.yielded |= lanes;
        self.yields += 1;
        if self.yields < SPINS {
            return;
        }
        for n in 0..16u8 {
            let here = self.waiting.iter().filter(|w| w.on == Wait::Converge(n)).fold(0, |m, w| m | w.mask);
            let barrier = &mut self.barriers[usize::from(n)];
            if here != 0 && *barrier & self.live & !here & !self.yielded == 0 {
                *barrier &= !here;
                self.release(|w| w.on == Wait::Converge(n));
            }
        }
        (self.yielded, self.yields) = (0, 0);
    }

    /// Lanes write `count` registers from `first` on.
    #[inline]
    pub fn defines(&mut self, first: u8, count: u8, lanes: u32) {
        let (first, end) = (usize::from(first), usize::from(first) + usize::from(count));
        if self.defined.len() < end {
            self.defined.resize(end, 0);
        }
        self.defined[first..end].iter_mut().for_each(|defined| *defined |= lanes);
    }

    /// The lanes that have written a register.
    pub fn defined(&self, register: u16) -> u32 {
        self.defined.get(usize::from(register)).copied().unwrap_or(0)
    }

    /// Whether every lane has exited.
    pub fn is_done(&self) -> bool {
        self.live == 0
    }

    /// Whether some lanes can go on.
    pub fn is_runnable(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Makes lanes runnable, joining those that are at the same op and were released together.
    pub fn resume(&mut self, released: &[Waiting]) {
        for (i, w) in released.iter().enumerate() {
            if released[..i].iter().any(|e| e.pc == w.pc) {
                continue;
            }
            let mask = released[i..].iter().filter(|e| e.pc == w.pc).fold(0, |m, e| m | e.mask);
            self.paths.push(Path { pc: w.pc, mask });
        }
    }

    /// Releases the waiters of convergence barrier `n` if all lanes have come; returns whether it did.
    pub fn try_converge(&mut self, n: u8) -> bool {
        let here = self.waiting.iter().filter(|w| w.on == Wait::Converge(n)).fold(0, |m, w| m | w.mask);
        if here == 0 || self.barriers[usize::from(n)] & self.live & !here != 0 {
            return false;
        }
        self.barriers[usize::from(n)] = 0;
        self.release(|w| w.on == Wait::Converge(n));
        true
    }

    /// Releases the waiters of the WARPSYNC that resumes at `pc` whose mask has come in full; returns whether
    /// it did.
    pub fn try_warpsync(&mut self, pc: u32) -> bool {
        let at = |w: &Waiting| w.pc == pc && matches!(w.on, Wait::WarpSync(_));
        let here = self.waiting.iter().filter(|w| at(w)).fold(0, |m, w| m | w.mask);
        let live = self.live;
        let complete = |w: &Waiting| at(w) && matches!(w.on, Wait::WarpSync(m) if m & live & !here == 0);
        if !self.waiting.iter().any(&complete) {
            return false;
        }
        self.release(complete);
        true
    }

    /// Moves the waiters that `pick` names to the runnable paths.
    pub fn release(&mut self, pick: impl Fn(&Waiting) -> bool) {
        let released: Vec<Waiting> = self.waiting.iter().copied().filter(|w| pick(w)).collect();
        self.waiting.retain(|w| !pick(w));
        self.resume(&released);
    }

    /// Ends lanes: they leave every convergence barrier, which may let others go.
    pub fn exit(&mut self, lanes: u32) {
        self.live &= !lanes;
        for n in 0..16u8 {
            self.barriers[usize::from(n)] &= !lanes;
        }
        if self.waiting.is_empty() {
            return;
        }
        for n in 0..16u8 {
            self.try_converge(n);
        }
        let pcs: Vec<u32> =
            self.waiting.iter().filter(|w| matches!(w.on, Wait::WarpSync(_))).map(|w| w.pc).collect();
        for pc in pcs {
            self.try_warpsync(pc);
        }
    }
}
