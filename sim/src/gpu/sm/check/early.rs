//! Loads of shared memory whose value no lane has used yet.
//!
//! ptxas moves loads ahead of the branch that decides which lanes need them, so lanes load words that the
//! program does not have them read. Such a load races with nothing: it counts when a lane uses its value. One
//! whose value is overwritten before, or never used, does not count.

use crate::findings::Finding;
use crate::gpu::sm::check::registers::{Group, Registers};
use crate::gpu::sm::check::shadow::Shadow;

/// A load of a warp.
#[derive(Debug)]
pub(super) struct EarlyLoad {
    serial: u32,
    registers: Group,
    /// The lanes that hold the value, for each register.
    holds: [u32; 4],
    /// The lines that it reads.
    lines: Vec<u64>,
    /// The race that is reported if one of these lanes uses the value.
    race: Option<(u32, Finding)>,
}

impl EarlyLoad {
    /// It reads words of a line; returns its number in the shadow.
    #[inline]
    pub fn reads(&mut self, line: u64) -> u32 {
        if self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
        self.serial
    }

    /// The lanes that use a value that they loaded, among those of `mask`.
    fn users(&self, mask: u32, reads: &[Group]) -> u32 {
        let Group { first, count } = self.registers;
        (0..count.min(4))
            .filter(|n| reads.iter().any(|group| group.contains(first.wrapping_add(*n))))
            .fold(0, |users, n| users | self.holds[usize::from(n)] & mask)
    }

    fn overwrite(&mut self, mask: u32, written: Group) {
        for n in (0..4u8).filter(|n| written.contains(self.registers.first.wrapping_add(*n))) {
            self.holds[usize::from(n)] &= !mask;
        }
    }

    /// It races with an access if one of `lanes` uses its value.
    pub fn race(&mut self, lanes: u32, finding: impl FnOnce() -> Finding) {
        self.race.get_or_insert_with(|| (lanes, finding()));
    }
}

/// The loads of a warp.
#[derive(Debug, Default)]
struct WarpLoads {
    loads: Vec<EarlyLoad>,
    /// At least the registers that hold their values.
    held: [u64; 4],
}

/// The loads of a block.
#[derive(Debug, Default)]
pub(super) struct EarlyLoads {
    last: u32,
    of_warp: Vec<WarpLoads>,
    /// Loads that have ended, for their room.
    ended: Vec<EarlyLoad>,
}

impl EarlyLoads {
    /// A load to `registers` by `lanes`, which is not among the others yet.
    pub fn begin(&mut self, registers: Group, lanes: u32) -> EarlyLoad {
        self.last += 1;
        let mut lines = self.ended.pop().map(|load| load.lines).unwrap_or_default();
        lines.clear();
        let holds = std::array::from_fn(|n| if n < usize::from(registers.count) { lanes } else { 0 });
        EarlyLoad { serial: self.last, registers, holds, lines, race: None }
    }

    pub fn add(&mut self, warp: u32, load: EarlyLoad) {
        if load.lines.is_empty() {
            return;
        }
        let warp = warp as usize;
        if self.of_warp.len() <= warp {
            self.of_warp.resize_with(warp + 1, WarpLoads::default);
        }
        let WarpLoads { loads, held } = &mut self.of_warp[warp];
        for n in 0..load.registers.count {
            let register = load.registers.first.wrapping_add(n);
            held[usize::from(register / 64)] |= 1 << (register % 64);
        }
        loads.push(load);
    }

    /// Whether any of these registers of a warp may hold a value of one.
    #[inline]
    pub fn touches(&self, warp: u32, registers: &[u64; 4]) -> bool {
        let Some(WarpLoads { held: [a, b, c, d], .. }) = self.of_warp.get(warp as usize) else {
            return false;
        };
        let [e, f, g, h] = registers;
        a & e | b & f | c & g | d & h != 0
    }

    /// A load of a warp, if its value has not been used.
    pub fn unused(&mut self, warp: u32, serial: u32) -> Option<&mut EarlyLoad> {
        self.of_warp.get_mut(warp as usize)?.loads.iter_mut().find(|load| load.serial == serial)
    }

    /// The lanes of `mask` of a warp execute an instruction. Loads that it uses count; those that it
    /// overwrites are none. Gives the races of the first to `found`.
    pub fn execute(
        &mut self,
        warp: u32,
        mask: u32,
        registers: &Registers,
        shadow: &mut Shadow,
        mut found: impl FnMut(Finding),
    ) {
        let EarlyLoads { of_warp, ended, .. } = self;
        let WarpLoads { loads, held } = &mut of_warp[warp as usize];
        let mut at = 0;
        while let Some(load) = loads.get_mut(at) {
            let users = load.users(mask, &registers.reads);
            load.overwrite(mask, registers.written);
            if let Some((_, race)) = load.race.take_if(|(lanes, _)| *lanes & users != 0) {
                found(race);
            }
            if users == 0 && load.holds == [0; 4] {
                load.lines.iter().for_each(|line| shadow.forget(*line, load.serial));
            } else if users == 0 || load.race.is_some() && load.holds != [0; 4] {
                // A race of some lanes alone waits for them.
                at += 1;
                continue;
            }
            ended.push(loads.swap_remove(at));
        }
        if loads.is_empty() {
            *held = [0; 4];
        }
    }
}
