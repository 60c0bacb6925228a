//! Loads of shared memory whose value no lane has used yet.
//!
//! ptxas moves loads ahead of the branch that decides which lanes need them, so lanes load words that the
//! program does not have them read. Such a load races with nothing: it counts when a lane uses its value. One
//! whose value is overwritten before, or never used, does not count.

use std::collections::HashMap;

use crate::findings::Finding;
use crate::gpu::sm::check::order::Clocks;
use crate::gpu::sm::check::registers::{Group, Registers};
use crate::gpu::sm::check::shadow::{Mark, Shadow};

/// A load of a warp.
#[derive(Debug)]
pub(super) struct EarlyLoad {
    serial: u64,
    first: u8,
    /// The lanes that hold the value, for each register.
    holds: [u32; 4],
    marks: Vec<(u64, Mark)>,
    /// The race reported if the value is used.
    race: Option<Finding>,
}

impl EarlyLoad {
    /// A load to `registers` by `lanes`.
    pub fn new(registers: Group, lanes: u32) -> Self {
        let holds = std::array::from_fn(|n| if n < usize::from(registers.count) { lanes } else { 0 });
        EarlyLoad { serial: 0, first: registers.first, holds, marks: Vec::new(), race: None }
    }

    /// It reads a word.
    pub fn reads(&mut self, word: u64, mark: Mark) {
        let known = |(at, old): &(u64, Mark)| *at == word && mark.bytes & !old.bytes == 0;
        if !self.marks.iter().any(known) {
            self.marks.push((word, mark));
        }
    }

    /// Whether any lane reads shared memory.
    pub fn is_of_shared(&self) -> bool {
        !self.marks.is_empty()
    }

    /// It races with an access.
    pub fn race(&mut self, finding: impl FnOnce() -> Finding) {
        self.race.get_or_insert_with(finding);
    }

    /// Whether the lanes of `mask` use a value that they loaded.
    fn is_used(&self, mask: u32, reads: &[Group]) -> bool {
        (0..4u8).any(|n| {
            let register = self.first.wrapping_add(n);
            self.holds[usize::from(n)] & mask != 0 && reads.iter().any(|group| group.contains(register))
        })
    }

    fn overwrite(&mut self, mask: u32, written: Group) {
        for n in (0..4u8).filter(|n| written.contains(self.first.wrapping_add(*n))) {
            self.holds[usize::from(n)] &= !mask;
        }
    }
}

/// The loads of a block.
#[derive(Debug, Default)]
pub(super) struct EarlyLoads {
    next: u64,
    of_warp: HashMap<u32, Vec<EarlyLoad>>,
    /// The loads that read a word: number of each.
    at: HashMap<u64, Vec<(u64, Mark)>>,
}

impl EarlyLoads {
    pub fn add(&mut self, warp: u32, mut load: EarlyLoad) {
        load.serial = self.next;
        self.next += 1;
        for &(word, mark) in &load.marks {
            self.at.entry(word).or_default().push((load.serial, mark));
        }
        self.of_warp.entry(warp).or_default().push(load);
    }

    /// Whether a warp has any.
    pub fn any(&self, warp: u32) -> bool {
        self.of_warp.get(&warp).is_some_and(|loads| !loads.is_empty())
    }

    /// A warp writes a word: `finding` gives the report for the case that the value of a load is used that
    /// nothing orders with the write.
    pub fn written(&mut self, clocks: &Clocks, word: u64, mark: Mark, finding: impl Fn(Mark) -> Finding) {
        let Some(readers) = self.at.get(&word) else { return };
        for (serial, old) in readers.iter().filter(|(_, old)| old.conflicts(&mark, clocks)) {
            let loads = self.of_warp.get_mut(&old.id).into_iter().flatten();
            for load in loads.filter(|load| load.serial == *serial) {
                load.race(|| finding(*old));
            }
        }
    }

    /// The lanes of `mask` of a warp execute an instruction. Loads that it uses count in `shadow`; gives the
    /// races of these.
    pub fn execute(
        &mut self,
        warp: u32,
        mask: u32,
        registers: &Registers,
        shadow: &mut Shadow,
    ) -> Vec<Finding> {
        let EarlyLoads { of_warp, at, .. } = self;
        let mut races = Vec::new();
        let Some(loads) = of_warp.get_mut(&warp) else { return races };
        loads.retain_mut(|load| {
            let used = load.is_used(mask, &registers.reads);
            load.overwrite(mask, registers.written);
            let ends = used || load.holds == [0; 4];
            if ends {
                for &(word, mark) in &load.marks {
                    if let Some(readers) = at.get_mut(&word) {
                        readers.retain(|(serial, _)| *serial != load.serial);
                    }
                    if used {
                        shadow.note_read(word, mark);
                    }
                }
            }
            if used {
                races.extend(load.race.take());
            }
            !ends
        });
        races
    }
}
