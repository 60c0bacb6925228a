//! Launches whose order is a graph: which of them the scheduler starts by links between their descriptors, and
//! which follow a wait in the pushbuffer.
//!
//! A launch that follows others is linked to each of them: scheduled by the only one, or started by a counter
//! that all of several lower. A descriptor names one launch that follows it, or two, as its layout has room; a
//! launch that cannot be linked waits in the pushbuffer for everything recorded, and begins a new stage.
//!
//! A counter is set when the pushbuffer hands the descriptor over, which happens before the launches of its
//! stage that nothing precedes are started.

use crate::address::GpuVa;
use crate::error::Error;
use crate::submission::recorder::{Group, QmdSink, Recorder};

/// What a net is made of, in the order of recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// What is added later follows everything before.
    Barrier,
    /// A launch.
    Launch {
        /// Numbers of earlier launches of the net that it follows, besides those before the last barrier.
        after: Vec<usize>,
        /// It may begin while the only one that it follows still runs.
        early: bool,
    },
}

/// How launches can be linked.
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

/// How a launch starts.
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
                // What starts early leaves room for no other: its dependents would start as early.
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
