//! How full the launches of an engine make an SM.

use hcq::Occupancy;

use super::plan::Stage;
use super::{Engine, Mode};
use crate::error::Result;

/// A kernel as an engine launches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelUse {
    /// What launches it: the step in use, one launch per operation, or prompts.
    pub path: &'static str,
    /// The kernel.
    pub name: String,
    /// Launches of this kernel in this shape.
    pub launches: usize,
    /// Thread blocks of the largest of them.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u32,
    /// Blocks and warps that an SM holds, and what limits them; `None` for an SM whose limits are not known.
    pub occupancy: Option<Occupancy>,
}

impl Engine {
    /// Every kernel of a step, of a step with one launch per operation, and of a prompt's full chunk, in the shapes it is launched in.
    ///
    /// # Errors
    /// What loading the kernels reports.
    pub fn kernels(&mut self) -> Result<Vec<KernelUse>> {
        let mut uses = Vec::new();
        match &self.steps {
            Some(steps) if self.mode == Mode::Persistent => add(&mut uses, "step", [&steps.whole]),
            Some(steps) => add(&mut uses, "step", &steps.phases),
            None => {}
        }
        add(&mut uses, Mode::Operations.name(), &self.plan.stages);
        if let Some(prefill) = &mut self.prefill {
            add(&mut uses, "prompt", &prefill.full_chunk()?);
        }
        Ok(uses)
    }
}

fn add<'a>(uses: &mut Vec<KernelUse>, path: &'static str, stages: impl IntoIterator<Item = &'a Stage>) {
    for Stage { kernel, config, .. } in stages {
        let (threads, shared) = (config.block.iter().product(), config.dynamic_shared);
        let shared_bytes = kernel.static_shared() + shared;
        let blocks = config.grid.iter().map(|n| u64::from(*n)).product();
        let same = |u: &&mut KernelUse| {
            (u.path, u.name.as_str(), u.threads, u.shared_bytes)
                == (path, kernel.name(), threads, shared_bytes)
        };
        if let Some(known) = uses.iter_mut().find(same) {
            known.launches += 1;
            known.blocks = known.blocks.max(blocks);
            continue;
        }
        uses.push(KernelUse {
            path,
            name: kernel.name().to_owned(),
            launches: 1,
            blocks,
            threads,
            registers: kernel.registers(),
            shared_bytes,
            occupancy: kernel.occupancy(threads, shared),
        });
    }
}
