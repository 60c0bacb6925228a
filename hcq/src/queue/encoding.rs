//! A graph's commands, descriptors and banks in GPU memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::address::GpuVa;
use crate::backend::MemoryKind;
use crate::error::Error;
use crate::launch::qmd_cache::{Encoded, Launch, Template};
use crate::memory::manager::Piece;
use crate::objects::shared::Shared;
use crate::program::kernel::Kernel;
use crate::shape::LaunchConfig;
use crate::submission::gpfifo::{MAX_DWORDS, Segment};
use crate::submission::limbo::Keep;
use crate::submission::recorder::net::{Item, Links, Member, plan};
use crate::submission::recorder::{QmdSink, Recorder};
use crate::submission::timeline::Slot;
use crate::submission::uses::Uses;

/// Commands up to this many dwords go into the queue's own with each replay: one ring entry less for the GPU
/// to fetch.
const INLINE_DWORDS: usize = 512;

/// A launch of a graph.
pub(crate) struct LaunchNode {
    pub kernel: Kernel,
    pub config: LaunchConfig,
    /// Number of its template.
    pub template: usize,
    /// Its number among the launches: where its parameters are.
    pub number: usize,
    /// Where its arguments are among its parameters.
    pub places: Vec<Range<usize>>,
    /// It is a copy, and follows earlier copies.
    pub copies: bool,
}

/// The action of a node.
pub(crate) enum Action {
    Launch(LaunchNode),
    Barrier,
    Copy { from: GpuVa, to: GpuVa, len: u64 },
    Timestamp(Arc<Slot>),
}

/// A node of a graph.
pub(crate) struct Node {
    pub action: Action,
    /// Numbers of the nodes that it follows, besides those before the last barrier.
    pub after: Vec<usize>,
    /// It may begin while the only one that it follows still runs.
    pub early: bool,
}

impl Node {
    /// The launch that it is.
    pub fn launch(&self) -> Option<&LaunchNode> {
        match &self.action {
            Action::Launch(launch) => Some(launch),
            Action::Barrier | Action::Copy { .. } | Action::Timestamp(_) => None,
        }
    }
}

/// The commands of a graph: in memory of their own, or few enough to be repeated with each replay.
pub(crate) struct Commands {
    memory: Option<Arc<Piece>>,
    /// Segments of those in memory.
    pub segments: Vec<Segment>,
    /// Those to repeat.
    pub words: Vec<u32>,
}

impl Commands {
    fn new(shared: &Shared, words: &[u32]) -> Result<Self, Error> {
        if words.len() <= INLINE_DWORDS {
            return Ok(Self { memory: None, segments: Vec::new(), words: words.to_vec() });
        }
        let memory = shared.alloc(4 * words.len() as u64, MemoryKind::Command, "graph")?;
        memory.write_words(0, words)?;
        let segment = |start: usize| {
            let dwords = (words.len() - start).min(MAX_DWORDS) as u32;
            Segment { va: memory.at(4 * start as u64), dwords }
        };
        let segments = (0..words.len()).step_by(MAX_DWORDS).map(segment).collect();
        Ok(Self { memory: Some(Arc::new(memory)), segments, words: Vec::new() })
    }
}

/// A number that no other latch of the process has: grids of several graphs and queues run side by side.
fn fresh_latch() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Records launches and barriers, the nodes `range`, of which `members` are the launches.
fn record_net(
    recorder: &mut Recorder,
    nodes: &[Node],
    range: Range<usize>,
    members: Vec<Member<'_>>,
    links: Links,
    sink: &mut QmdSink<'_>,
) -> Result<(), Error> {
    let (mut items, mut numbers, mut last_copy) = (Vec::new(), HashMap::new(), None);
    for (at, node) in range.clone().zip(&nodes[range.clone()]) {
        let Some(launch) = node.launch() else {
            items.push(Item::Barrier);
            continue;
        };
        if node.after.iter().any(|before| *before < range.start) {
            recorder.barrier();
        }
        let mut after: Vec<usize> =
            node.after.iter().filter_map(|before| numbers.get(before).copied()).collect();
        let number = numbers.len();
        if launch.copies {
            // Copies follow each other in any case.
            match last_copy.replace(number) {
                Some(copy) => after.push(copy),
                None => recorder.copies_by_kernel(),
            }
        }
        items.push(Item::Launch { after, early: node.early });
        numbers.insert(at, number);
    }
    if items.first() == Some(&Item::Barrier) {
        recorder.barrier();
    }
    if !members.is_empty() {
        recorder.net(members, &plan(&items, links), &mut fresh_latch, sink)?;
    }
    if items.last() == Some(&Item::Barrier) {
        recorder.barrier();
    }
    Ok(())
}

/// One encoding of a graph. Nothing in its commands depends on the replay.
pub(crate) struct Encoding {
    /// QMDs and constant banks.
    memory: Option<Arc<Piece>>,
    /// Of each launch: offset of its parameters in `memory`.
    parameters_at: Vec<u64>,
    pub commands: Commands,
    /// The replays that use it.
    pub replays: Uses,
    /// Launches whose parameters have changed since they were written.
    pub stale: Vec<usize>,
}

impl Encoding {
    /// Encodes `nodes` with the `parameters` of each launch.
    pub fn new(
        shared: &Shared,
        nodes: &[Node],
        templates: &mut [Template],
        parameters: &[Vec<u8>],
    ) -> Result<Self, Error> {
        let len = nodes.iter().filter_map(Node::launch).map(|l| templates[l.template].len()).sum();
        let memory = match len {
            0 => None,
            len => Some(shared.alloc(len, MemoryKind::Command, "graph")?),
        };
        let mut recorder = Recorder::new(shared.core.options.chain_launches);
        recorder.words().plain_launches = shared.core.options.has_conservative_descriptors();
        let mut sink = |va: GpuVa, qmd: &qmd::Qmd| match &memory {
            Some(memory) => memory.write(va.raw() - memory.va().raw(), qmd.as_bytes()),
            None => Ok(()),
        };
        let links = Links::of(shared.target.qmd.version(), shared.core.options.chain_launches);
        let (mut offset, mut parameters_at, mut at) = (0, Vec::new(), 0);
        while at < nodes.len() {
            let is_net = |node: &Node| matches!(node.action, Action::Launch(_) | Action::Barrier);
            let end = nodes[at..].iter().position(|node| !is_net(node)).map_or(nodes.len(), |n| at + n);
            if let (true, Some(memory)) = (end > at, &memory) {
                let mut members = Vec::new();
                for (grid_id, node) in (at..end).zip(&nodes[at..end]) {
                    let Some(launch) = node.launch() else { continue };
                    let template = &mut templates[launch.template];
                    let parameters = &parameters[launch.number];
                    let made = Launch { kernel: &launch.kernel, config: launch.config, parameters };
                    let encoded = template.encode(&made, grid_id as u64, memory, offset)?;
                    let Encoded { va, qmd, parameters_at: at } = encoded;
                    members.push(Member { kernel: launch.kernel.name(), va, qmd });
                    parameters_at.push(at);
                    offset += template.len();
                }
                record_net(&mut recorder, nodes, at..end, members, links, &mut sink)?;
            }
            match nodes.get(end).map(|node| &node.action) {
                Some(Action::Copy { from, to, len }) => recorder.copy(*from, *to, *len),
                Some(Action::Timestamp(slot)) => recorder.timestamp(slot.va()),
                Some(Action::Launch(_) | Action::Barrier) | None => {}
            }
            at = end + 1;
        }
        recorder.finish(&mut sink)?;
        let commands = Commands::new(shared, recorder.words().words())?;
        let (memory, stale) = (memory.map(Arc::new), Vec::new());
        Ok(Self { memory, parameters_at, commands, replays: Uses::default(), stale })
    }

    /// Writes the parameters that have changed; no replay that uses this encoding is in flight.
    pub fn refresh(&mut self, parameters: &[Vec<u8>]) -> Result<(), Error> {
        let Some(memory) = &self.memory else { return Ok(()) };
        self.stale.drain(..).try_for_each(|i| memory.write(self.parameters_at[i], &parameters[i]))
    }

    /// Its memory.
    pub fn into_memory(self) -> impl Iterator<Item = Keep> {
        self.memory.into_iter().chain(self.commands.memory).map(|piece| piece as Keep)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::backend::tests::Books;
    use crate::launch::qmd_cache::QmdCache;
    use crate::objects::program::Program;
    use crate::observer::Unobserved;
    use crate::options::DeviceOptions;

    const VECADD: &[u8] = include_bytes!("../../tests/data/01_vecadd.sm_87.cubin");

    fn shared() -> Arc<Shared> {
        Shared::new(Books::new(usize::MAX), Arc::new(Unobserved), DeviceOptions::default()).unwrap()
    }

    /// The commands of a graph of copies `c`, launches `l` and barriers `|`: those that start copies and
    /// launches, and waits for the engine `e` and for grids `g`.
    fn commands(graph: &str) -> String {
        let shared = shared();
        let kernel = Program::load(&shared, VECADD.into()).unwrap().kernel("vadd_f32").unwrap();
        let (mut cache, config) = (QmdCache::new(shared.target, 4), LaunchConfig::new(1, 32));
        let (mut nodes, mut parameters) = (Vec::new(), Vec::new());
        for action in graph.chars() {
            let action = match action {
                'c' => Action::Copy { from: GpuVa::inside(0x1000), to: GpuVa::inside(0x2000), len: 4 },
                'l' => {
                    let launch = Launch { kernel: &kernel, config, parameters: &[0; 28] };
                    let (template, number) = (cache.number(&shared.core, &launch).unwrap(), parameters.len());
                    parameters.push(vec![0; 28]);
                    let (kernel, places) = (kernel.clone(), Vec::new());
                    Action::Launch(LaunchNode { kernel, config, template, number, places, copies: false })
                }
                _ => Action::Barrier,
            };
            nodes.push(Node { action, after: Vec::new(), early: false });
        }
        let encoding = Encoding::new(&shared, &nodes, cache.templates(), &parameters).unwrap();
        let name = |word: &u32| match word {
            0x2001_80c0 => Some('c'),
            0x2001_20ad => Some('l'),
            0x2001_001e => Some('e'),
            0x8000_2044 => Some('g'),
            _ => None,
        };
        encoding.commands.words.iter().filter_map(name).collect()
    }

    #[test]
    fn a_barrier_of_a_graph_is_one_between_copies_and_launches_too() {
        for (graph, wanted) in [
            ("cl", "cl"),
            ("c|l", "cegl"),
            ("lc", "lc"),
            ("l|c", "lgec"),
            ("c|l|c", "ceglgec"),
            ("|l", "l"),
            ("l|l", "l"),
            ("lll|l", "llll"),
            ("c|c", "cc"),
        ] {
            assert_eq!(commands(graph), wanted, "{graph}");
        }
    }

    #[test]
    fn many_commands_are_in_memory_of_their_own() {
        let shared = shared();
        let few = Commands::new(&shared, &[7; INLINE_DWORDS]).unwrap();
        assert_eq!((few.words.len(), few.segments.len()), (INLINE_DWORDS, 0));
        let many = Commands::new(&shared, &[7; INLINE_DWORDS + 1]).unwrap();
        let memory = many.memory.expect("memory");
        let all = Segment { va: memory.va(), dwords: INLINE_DWORDS as u32 + 1 };
        assert_eq!((many.words.len(), many.segments), (0, vec![all]));
        let mut last = [0; 8];
        memory.read(4 * (INLINE_DWORDS as u64 - 1), &mut last).unwrap();
        assert_eq!(last, [7, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn no_two_grids_share_a_latch() {
        let latches: HashSet<u32> = (0..100).map(|_| fresh_latch()).collect();
        assert_eq!(latches.len(), 100);
    }
}
