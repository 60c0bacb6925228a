//! Order of the accesses of a warp's lanes: they run independently between the places that bring them
//! together.

use crate::gpu::sm::check::access::lanes;

/// Lanes that wait for others at one WARPSYNC.
#[derive(Debug)]
struct Arrived {
    pc: u32,
    lanes: u32,
    known: [u32; 32],
}

/// Knowledge of the lanes of a warp of each other, in steps of the warp's clock.
#[derive(Debug, Default)]
pub(super) struct LaneOrder {
    /// All lanes know what all did up to here.
    all: u32,
    /// Beyond that: of each lane, the step up to which it knows each other one.
    each: Option<Box<[[u32; 32]; 32]>>,
    arrived: Vec<Arrived>,
}

/// Adds knowledge.
fn join(own: &mut [u32; 32], other: &[u32; 32]) {
    own.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

impl LaneOrder {
    /// Whether `lane` knows what `other` did at a step.
    pub fn knows(&self, lane: u8, other: u8, step: u32) -> bool {
        lane == other
            || step <= self.all
            || self.each.as_ref().is_some_and(|each| each[usize::from(lane)][usize::from(other)] >= step)
    }

    /// Whether all lanes know what was done at a step.
    #[inline]
    pub fn all_know(&self, step: u32) -> bool {
        step <= self.all
    }

    /// All lanes know of each other.
    pub fn join_all(&mut self, step: u32) {
        self.all = step;
        self.each = None;
        self.arrived.clear();
    }

    /// All lanes know of each other up to a step.
    pub fn join_until(&mut self, step: u32) {
        self.all = self.all.max(step);
    }

    /// The lanes of one range gain the knowledge that those of another had at a step.
    pub fn hand_over(&mut self, from: (u8, u8), to: (u8, u8), step: u32) {
        if step <= self.all || from == to {
            return;
        }
        if from.0 == from.1 && to.0 == to.1 {
            let each = self.each.get_or_insert_with(|| Box::new([[0; 32]; 32]));
            let mut known = each[usize::from(from.0)];
            known[usize::from(from.0)] = step;
            join(&mut each[usize::from(to.0)], &known);
            return;
        }
        let range =
            |(first, last): (u8, u8)| (u32::MAX >> (31 - last.saturating_sub(first).min(31))) << first;
        let known = self.of(range(from), step);
        self.learn(range(to), &known);
    }

    /// The knowledge of some lanes together, at a step.
    fn of(&self, mask: u32, step: u32) -> [u32; 32] {
        let mut known = [0; 32];
        for lane in lanes(mask).map(|lane| lane as usize) {
            if let Some(each) = &self.each {
                join(&mut known, &each[lane]);
            }
            known[lane] = step;
        }
        known
    }

    /// Lanes gain knowledge.
    fn learn(&mut self, mask: u32, known: &[u32; 32]) {
        let each = self.each.get_or_insert_with(|| Box::new([[0; 32]; 32]));
        lanes(mask).for_each(|lane| join(&mut each[lane as usize], known));
    }

    /// The lanes of `from` pass their knowledge to those of `to`; `live` are those of the warp.
    pub fn pass(&mut self, from: u32, to: u32, live: u32, step: u32) {
        if from & live == live {
            self.join_all(step);
        } else {
            let known = self.of(from, step);
            self.learn(to, &known);
        }
    }

    /// Lanes come to a WARPSYNC at `pc`: those that are there already continue no earlier.
    pub fn arrive(&mut self, pc: u32, mask: u32, step: u32) {
        let known = self.of(mask, step);
        match self.arrived.iter_mut().find(|group| group.pc == pc && group.lanes & mask == 0) {
            Some(group) => {
                group.lanes |= mask;
                join(&mut group.known, &known);
            }
            None => self.arrived.push(Arrived { pc, lanes: mask, known }),
        }
    }

    /// The lanes of `mask` run: those of them that came to a WARPSYNC have met there.
    #[inline]
    pub fn run(&mut self, mask: u32, live: u32, step: u32) {
        while let Some(at) = self.arrived.iter().position(|group| group.lanes & mask != 0) {
            let group = self.arrived.swap_remove(at);
            // All were there, and none has gone on.
            if group.lanes & live == live && group.known.iter().max() == Some(&step) {
                self.join_all(step);
                return;
            }
            self.learn(group.lanes, &group.known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = u32::MAX;

    #[test]
    fn lanes_know_each_other_after_they_have_met() {
        let mut order = LaneOrder::default();
        assert!(order.knows(3, 3, 9) && !order.knows(3, 4, 1));
        order.pass(0xff, 0xff, ALL, 5);
        assert!(order.knows(3, 4, 5) && !order.knows(3, 4, 6));
        assert!(!order.knows(3, 8, 5) && !order.knows(8, 3, 5));
        // Knowledge is passed on.
        order.pass(0x180, 0x180, ALL, 7);
        assert!(order.knows(8, 3, 5) && !order.knows(8, 3, 7) && order.knows(8, 7, 7));
        order.pass(ALL, ALL, ALL, 8);
        assert!(order.all_know(8) && order.knows(31, 0, 8) && !order.knows(31, 0, 9));
    }

    #[test]
    fn lanes_that_wait_know_of_each_other_when_they_run_again() {
        let mut order = LaneOrder::default();
        order.arrive(7, 0xffff, 3);
        assert!(!order.knows(20, 1, 3));
        // The others come to the same place, later.
        order.run(0xffff_0000, ALL, 4);
        assert!(!order.knows(20, 1, 3), "they have not been there");
        order.arrive(7, 0xffff_0000, 4);
        order.run(0xffff_0000, ALL, 4);
        assert!(order.knows(20, 1, 3) && order.knows(1, 20, 4) && !order.knows(1, 20, 5));
    }
}
