//! The occupancy of an SM by the launches of an engine.

use hcq::Occupancy;

use crate::engine::decode::Engine;
use crate::engine::launch::Launch;
use crate::engine::options::Mode;
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
    /// Thread blocks of the largest launch.
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
    /// Every kernel of a step, of a step with one launch per operation, and of a full chunk of a prompt, in the shapes in which
    /// it is launched.
    ///
    /// # Errors
    /// What loading the kernels reports.
    pub fn kernels(&mut self) -> Result<Vec<KernelUse>> {
        let mut uses = Vec::new();
        match &self.step_plan {
            Some(plan) if self.mode == Mode::Persistent => add(&mut uses, "step", [&plan.whole]),
            Some(plan) => add(&mut uses, "step", &plan.phases),
            None => {}
        }
        add(&mut uses, Mode::Operations.name(), &self.operations.launches);
        if let Some(prompt) = &mut self.prompt {
            add(&mut uses, "prompt", &prompt.full_chunk(&self.model)?);
        }
        Ok(uses)
    }
}

fn add<'a>(uses: &mut Vec<KernelUse>, path: &'static str, launches: impl IntoIterator<Item = &'a Launch>) {
    for Launch { kernel, config, .. } in launches {
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
