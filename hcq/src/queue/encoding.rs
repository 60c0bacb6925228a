//! A graph's commands, descriptors and banks in GPU memory.

use std::sync::Arc;

use crate::address::GpuVa;
use crate::backend::MemoryKind;
use crate::device::shared::Shared;
use crate::error::Error;
use crate::launch::qmd_cache::{Encoded, Launch, Template};
use crate::launch::shape::LaunchConfig;
use crate::memory::buffer::Buffer;
use crate::memory::manager::Piece;
use crate::program::kernel::Kernel;
use crate::submission::gpfifo::{MAX_DWORDS, Segment};
use crate::submission::limbo::Keep;
use crate::submission::recorder::Recorder;
use crate::submission::timeline::Slot;
use crate::submission::uses::Submission;

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
    /// It is a copy, and follows earlier copies.
    pub copies: bool,
}

/// What a node does.
pub(crate) enum Action {
    Launch(LaunchNode),
    Barrier,
    Copy { from: GpuVa, to: GpuVa, len: u64 },
    Timestamp(Arc<Slot>),
}

/// A node of a graph.
pub(crate) struct Node {
    pub action: Action,
    /// What it reads or writes.
    pub buffers: Vec<Buffer>,
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
    /// Where those in memory lie.
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

/// One encoding of a graph. Nothing in its commands depends on the replay.
pub(crate) struct Encoding {
    /// QMDs and constant banks.
    memory: Option<Arc<Piece>>,
    /// Of each launch: offset of its parameters in `memory`.
    parameters_at: Vec<u64>,
    pub commands: Commands,
    /// The last replay that used it.
    pub last: Option<Submission>,
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
        recorder.words().plain_launches = shared.core.options.is_conservative();
        let mut sink = |va: GpuVa, qmd: &qmd::Qmd| match &memory {
            Some(memory) => memory.write(va.raw() - memory.va().raw(), qmd.as_bytes()),
            None => Ok(()),
        };
        let (mut offset, mut parameters_at) = (0, Vec::new());
        for (grid_id, node) in nodes.iter().enumerate() {
            match (&node.action, &memory) {
                (Action::Launch(launch), Some(memory)) => {
                    let template = &mut templates[launch.template];
                    let parameters = &parameters[launch.number];
                    let made = Launch { kernel: &launch.kernel, config: launch.config, parameters };
                    let Encoded { va, qmd, parameters_at: at } =
                        template.encode(&made, grid_id as u64, memory, offset)?;
                    match launch.copies {
                        true => recorder.copy_by_kernel(va, qmd, &mut sink)?,
                        false => recorder.launch(va, qmd, &mut sink)?,
                    }
                    parameters_at.push(at);
                    offset += template.len();
                }
                // A launch takes memory: without any there is none.
                (Action::Launch(_), None) => {}
                (Action::Barrier, _) => recorder.barrier(),
                (Action::Copy { from, to, len }, _) => recorder.copy(*from, *to, *len),
                (Action::Timestamp(slot), _) => recorder.timestamp(slot.va()),
            }
        }
        recorder.finish(&mut sink)?;
        let commands = Commands::new(shared, recorder.words().words())?;
        let (memory, stale) = (memory.map(Arc::new), Vec::new());
        Ok(Self { memory, parameters_at, commands, last: None, stale })
    }

    /// Whether its last replay has ended.
    pub fn is_idle(&self) -> bool {
        self.last.as_ref().is_none_or(|(timeline, value)| timeline.has_ended(*value))
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
