//! Launches whose order is a graph: which of them the scheduler starts by links between their descriptors,
//! and which follow a wait in the pushbuffer.
//!
//! A launch that follows others is linked to each of them: scheduled by the only one, or started by a counter
//! that all of several lower. A descriptor names one launch that follows it, or two, as its layout has room;
//! a launch that cannot be linked waits in the pushbuffer for everything recorded, and begins a new stage.
//!
//! A counter is set when the pushbuffer hands the descriptor over, which happens before the launches of its
//! stage that nothing precedes are started.

use crate::address::GpuVa;
use crate::error::Error;
use crate::submission::recorder::{Group, QmdSink, Recorder};

/// The parts of a net, in the order of recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Items added later follow everything before.
    Barrier,
    /// A launch.
    Launch {
        /// Numbers of earlier launches of the net that it follows, besides those before the last barrier.
        after: Vec<usize>,
        /// It may begin while the only one that it follows still runs.
        early: bool,
    },
}

/// The links that launches can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// Launches that a descriptor can name as the next ones; 0 for no links.
    pub dependents: usize,
    /// Whether grids can begin before the one before them has ended.
    pub latches: bool,
}

impl Links {
    /// Those of a layout, or none.
    pub fn of(version: qmd::Version, chain: bool) -> Self {
        let qmd = qmd::Qmd::new(version);
        Self { dependents: if chain { qmd.dependents() } else { 0 }, latches: chain && qmd.has_latches() }
    }
}

/// The start of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// It begins a stage: the pushbuffer waits for everything recorded before it.
    pub waits: bool,
    /// Numbers of the launches that start it; none if the pushbuffer does.
    pub linked_to: Vec<usize>,
    /// It begins before the only one of these has ended.
    pub early: bool,
}

/// The starts of the launches of a net, one for each.
pub(crate) fn plan(items: &[Item], links: Links) -> Vec<Start> {
    let mut planner = Planner { links, starts: Vec::new(), used: Vec::new(), stage: 0, section: 0 };
    let mut ends = Vec::new();
    for section in items.split(|item| *item == Item::Barrier).filter(|section| !section.is_empty()) {
        ends = planner.section(section, &ends);
    }
    planner.starts
}

struct Planner {
    links: Links,
    starts: Vec<Start>,
    /// Of each launch, how many are linked to it.
    used: Vec<usize>,
    /// Number of the stage's first launch.
    stage: usize,
    /// Number of the first launch after the last barrier.
    section: usize,
}

impl Planner {
    /// Plans the launches between two barriers, which follow the launches `before`; gives those that nothing
    /// follows yet.
    fn section(&mut self, items: &[Item], before: &[usize]) -> Vec<usize> {
        self.section = self.starts.len();
        let firsts = items
            .iter()
            .filter(|item| matches!(item, Item::Launch { after, .. } if self.inside(after).is_empty()));
        let mut linked_to_before = !before.is_empty();
        if linked_to_before && firsts.count() > self.links.dependents {
            self.begin_stage();
            linked_to_before = false;
        }
        for item in items {
            let Item::Launch { after, early } = item else { continue };
            let number = self.starts.len();
            let mut wanted = self.inside(after);
            if wanted.is_empty() && linked_to_before && self.stage < self.section {
                wanted = before.to_vec();
            }
            let stage = self.stage;
            wanted.retain(|at| *at >= stage);
            self.drop_implied(&mut wanted);
            let early = *early
                && self.links.latches
                && matches!(wanted[..], [one] if one >= self.section && self.used[one] == 0);
            let countable = wanted.len() <= usize::from(u16::MAX);
            if !countable || wanted.iter().any(|at| self.used[*at] >= self.links.dependents) {
                self.begin_stage();
                wanted.clear();
            }
            for at in &wanted {
                // An early launch is linked to no other: its dependents would start as early.
                self.used[*at] = if early { self.links.dependents } else { self.used[*at] + 1 };
            }
            let waits = self.stage == number && number > 0;
            self.starts.push(Start { waits, early: early && !wanted.is_empty(), linked_to: wanted });
            self.used.push(0);
        }
        (self.section.max(self.stage)..self.starts.len()).filter(|at| self.used[*at] == 0).collect()
    }

    /// The launch that comes next waits in the pushbuffer.
    fn begin_stage(&mut self) {
        self.stage = self.starts.len();
    }

    /// Those of `after` that no barrier orders.
    fn inside(&self, after: &[usize]) -> Vec<usize> {
        let mut inside: Vec<usize> = after.iter().copied().filter(|at| *at >= self.section).collect();
        inside.sort_unstable();
        inside.dedup();
        inside
    }

    /// Removes from `wanted`, in ascending order, what another of them follows.
    fn drop_implied(&self, wanted: &mut Vec<usize>) {
        let Some(&first) = wanted.first() else { return };
        if wanted.len() == 1 {
            return;
        }
        let mut implied = vec![false; self.starts.len() - first];
        for at in (first..self.starts.len()).rev() {
            if implied[at - first] || wanted.contains(&at) {
                for earlier in self.starts[at].linked_to.iter().filter(|earlier| **earlier >= first) {
                    implied[earlier - first] = true;
                }
            }
        }
        wanted.retain(|at| !implied[at - first]);
    }
}

/// A launch of a net, and where its descriptor lies.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    pub kernel: &'a str,
    pub va: GpuVa,
    pub qmd: qmd::Qmd,
}

impl Recorder {
    /// Records the launches of a net, each with its start; `latch` gives numbers of latches that nothing else
    /// uses.
    pub fn net(
        &mut self,
        mut members: Vec<Member<'_>>,
        starts: &[Start],
        latch: &mut dyn FnMut() -> u32,
        sink: &mut QmdSink<'_>,
    ) -> Result<(), Error> {
        self.finish(sink)?;
        link(&mut members, starts, latch)?;
        members.iter().try_for_each(|member| sink(member.va, &member.qmd))?;
        if std::mem::take(&mut self.barrier) || self.group == Group::Line {
            self.settle();
        }
        self.launches += members.len();
        let mut stage = 0;
        while stage < members.len() {
            let is_next = |start: &Start| start.waits;
            let end = starts[stage + 1..].iter().position(is_next).map_or(members.len(), |n| stage + 1 + n);
            if stage > 0 {
                self.group = Group::Many;
                self.settle();
            }
            let of_stage = || starts[stage..end].iter().zip(&members[stage..end]);
            // Handed over before anything lowers their counters.
            for (_, member) in of_stage().filter(|(start, _)| start.linked_to.len() > 1) {
                self.words.launch(member.va);
            }
            for (_, member) in of_stage().filter(|(start, _)| start.linked_to.is_empty()) {
                self.words.launch(member.va);
            }
            stage = end;
        }
        self.group = Group::Many;
        (self.last, self.before, self.unwritten) = (None, None, false);
        // A later one has to follow what a barrier of the net orders.
        self.barrier = starts.iter().any(|start| start.waits || !start.linked_to.is_empty());
        Ok(())
    }
}

/// Writes the links into the descriptors.
fn link(members: &mut [Member<'_>], starts: &[Start], latch: &mut dyn FnMut() -> u32) -> Result<(), Error> {
    let mut used = vec![0; members.len()];
    for (number, start) in starts.iter().enumerate() {
        let va = members[number].va.raw();
        let counted = start.linked_to.len() > 1;
        if counted {
            // The plan counts no further than that.
            members[number].qmd.set_dependence_counter(start.linked_to.len() as u16);
        }
        let dependent =
            if counted { qmd::Dependent::decrement(va) } else { qmd::Dependent::schedule(va) }.prefetched();
        let latch = if start.early { Some(latch()) } else { None };
        for &before in &start.linked_to {
            let Member { kernel, qmd, .. } = &mut members[before];
            let named = |source| Error::qmd(kernel, source);
            qmd.set_dependent(used[before], &dependent).map_err(named)?;
            used[before] += 1;
            qmd.set_membar(qmd::Membar::Device);
            qmd.set_task_chasing(true);
            if latch.is_some() {
                qmd.set_latch_arrival(latch).map_err(named)?;
            }
        }
        if latch.is_some() {
            let Member { kernel, qmd, .. } = &mut members[number];
            qmd.set_latch_wait(latch).map_err(|source| Error::qmd(kernel, source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn launch(after: &[usize]) -> Item {
        Item::Launch { after: after.to_vec(), early: false }
    }

    fn early(after: usize) -> Item {
        Item::Launch { after: vec![after], early: true }
    }

    const V03: Links = Links { dependents: 1, latches: false };
    const V04: Links = Links { dependents: 2, latches: true };

    fn linked(starts: &[Start]) -> Vec<(bool, Vec<usize>)> {
        starts.iter().map(|start| (start.waits, start.linked_to.clone())).collect()
    }

    #[test]
    fn the_links_of_a_layout() {
        let of = |version, chain| {
            let Links { dependents, latches } = Links::of(version, chain);
            (dependents, latches)
        };
        assert_eq!(of(qmd::Version::V03, true), (1, false));
        assert_eq!(of(qmd::Version::V04, true), (2, true));
        assert_eq!(of(qmd::Version::V04, false), (0, false));
    }

    #[test]
    fn a_diamond_is_linked_where_a_descriptor_names_two() {
        let diamond = [launch(&[]), launch(&[0]), launch(&[0]), launch(&[1, 2, 0])];
        let wanted = [(false, vec![]), (false, vec![0]), (false, vec![0]), (false, vec![1, 2])];
        assert_eq!(linked(&plan(&diamond, V04)), wanted);
        // The second to follow the first waits; what it waits for has ended for the last one too.
        let wanted = [(false, vec![]), (false, vec![0]), (true, vec![]), (false, vec![2])];
        assert_eq!(linked(&plan(&diamond, V03)), wanted);
    }

    #[test]
    fn barriers_link_two_to_two_and_wait_for_more() {
        let items = |before: usize, after: usize| {
            let mut items = vec![launch(&[]); before];
            items.push(Item::Barrier);
            items.resize(before + 1 + after, launch(&[]));
            items
        };
        let two = vec![(false, vec![]), (false, vec![]), (false, vec![0, 1]), (false, vec![0, 1])];
        assert_eq!(linked(&plan(&items(2, 2), V04)), two);
        let three = [(true, vec![]), (false, vec![]), (false, vec![])];
        assert_eq!(linked(&plan(&items(2, 3), V04))[2..], three);
        assert_eq!(linked(&plan(&items(5, 1), V03))[5], (false, vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn what_starts_early_is_the_only_one_to_follow() {
        let starts = plan(&[launch(&[]), early(0), early(1)], V04);
        assert_eq!(starts.iter().map(|start| start.early).collect::<Vec<_>>(), [false, true, true]);
        let starts = plan(&[launch(&[]), early(0), launch(&[0])], V04);
        assert_eq!((starts[1].early, starts[2].waits), (true, true));
        let starts = plan(&[launch(&[]), launch(&[0]), early(0)], V04);
        assert_eq!((starts[2].early, starts[2].linked_to.clone()), (false, vec![0]));
        assert!(plan(&[launch(&[]), early(0)], V03).iter().all(|start| !start.early));
    }

    /// Of each launch, what has ended before it starts, by the plan; for one that begins early, before it
    /// goes on from its wait.
    fn ended_before(starts: &[Start]) -> Vec<Vec<bool>> {
        let mut ended: Vec<Vec<bool>> = Vec::new();
        let mut stage = 0;
        for (number, start) in starts.iter().enumerate() {
            if start.waits {
                stage = number;
            }
            let mut known: Vec<bool> = (0..number).map(|at| at < stage).collect();
            for &at in &start.linked_to {
                known[at] = true;
                for earlier in 0..at {
                    known[earlier] |= ended[at][earlier];
                }
            }
            ended.push(known);
        }
        ended
    }

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let item = (0..8_u8, proptest::collection::vec(1..6_usize, 0..4), any::<bool>());
        proptest::collection::vec(item, 1..40).prop_map(|drawn| {
            let mut launches = 0_usize;
            let made = drawn.into_iter().map(|(kind, back, early)| {
                if kind == 0 {
                    return Item::Barrier;
                }
                let after = back.into_iter().filter_map(|back| launches.checked_sub(back)).collect();
                launches += 1;
                Item::Launch { after, early }
            });
            made.collect()
        })
    }

    proptest! {
        #[test]
        fn every_order_that_was_asked_for_is_kept(items in items(), links in prop_oneof![
            Just(V03), Just(V04), Just(Links { dependents: 0, latches: false })
        ]) {
            let starts = plan(&items, links);
            let ended = ended_before(&starts);
            let (mut number, mut before_barrier) = (0, 0);
            for item in &items {
                match item {
                    Item::Barrier => before_barrier = number,
                    Item::Launch { after, .. } => {
                        for at in (0..before_barrier).chain(after.iter().copied()) {
                            prop_assert!(ended[number][at], "{number} may start before {at} has ended: {starts:?}");
                        }
                        number += 1;
                    }
                }
            }
            // What the descriptors have room for, and no link from one stage into another.
            let (mut used, mut stage) = (vec![0; number], 0);
            for (at, start) in starts.iter().enumerate() {
                if start.waits {
                    prop_assert!(start.linked_to.is_empty());
                    stage = at;
                }
                for &before in &start.linked_to {
                    prop_assert!((stage..at).contains(&before));
                    used[before] += 1;
                }
                prop_assert!(!start.early || start.linked_to.len() == 1);
            }
            prop_assert!(used.iter().all(|used| *used <= links.dependents));
            for start in starts.iter().filter(|start| start.early) {
                prop_assert_eq!(used[start.linked_to[0]], 1, "another would begin as early");
            }
        }
    }
}
