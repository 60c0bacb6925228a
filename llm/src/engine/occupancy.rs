//! The occupancy of an SM by the launches of an engine.

use serde::Serialize;

use crate::engine::decode::Engine;
use crate::engine::launch::Launch;
use crate::engine::options::Mode;
use crate::error::Result;

/// A kernel as an engine launches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelUse {
    /// Its user: a step in one launch, a batch step, or prompts.
    pub path: &'static str,
    /// The kernel.
    pub kernel: String,
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
    /// Blocks and warps that an SM holds; `None` for an SM whose limits are not known.
    #[serde(flatten)]
    pub residency: Option<Residency>,
}

/// The blocks and warps of a kernel that an SM holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// Blocks that an SM holds.
    pub blocks_per_sm: u32,
    /// Warps that an SM holds.
    pub warps_per_sm: u32,
    /// Warps that an SM holds of small kernels.
    pub max_warps_per_sm: u32,
    /// The resource that limits the blocks.
    pub limit: &'static str,
    /// Most of those warps that the largest launch fills on all SMs.
    pub warps_per_sm_launched: u32,
}

impl Engine {
    /// Every kernel of a step in one launch, of a batch step of one column, and of a full chunk of a prompt, in
    /// the shapes in which it is launched.
    ///
    /// # Errors
    /// Errors of loading the kernels.
    pub fn kernels(&mut self) -> Result<Vec<KernelUse>> {
        let mut uses = Vec::new();
        if let Some(stream) = &self.alone.stream {
            add(&mut uses, Mode::Stream.name(), [&stream.plan.whole]);
        }
        add(&mut uses, Mode::Batch.name(), &self.alone.launches);
        if let Some(prompt) = &mut self.prompt {
            add(&mut uses, "prompt", &prompt.chunks.full_chunk(&self.model)?);
        }
        let sms = u64::from(self.model.device.info().sm_count);
        for kernel in &mut uses {
            if let Some(r) = &mut kernel.residency {
                let launched = kernel.blocks.div_ceil(sms).min(u64::from(r.blocks_per_sm)) as u32;
                r.warps_per_sm_launched = launched * kernel.threads.div_ceil(32);
            }
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
            (u.path, u.kernel.as_str(), u.threads, u.shared_bytes)
                == (path, kernel.name(), threads, shared_bytes)
        };
        if let Some(known) = uses.iter_mut().find(same) {
            known.launches += 1;
            known.blocks = known.blocks.max(blocks);
            continue;
        }
        let residency = kernel.occupancy(threads, shared).map(|o| Residency {
            blocks_per_sm: o.blocks_per_sm,
            warps_per_sm: o.warps_per_sm,
            max_warps_per_sm: o.max_warps_per_sm,
            limit: o.limit.name(),
            warps_per_sm_launched: 0,
        });
        let (kernel, registers) = (kernel.name().to_owned(), kernel.registers());
        uses.push(KernelUse {
            path,
            kernel,
            launches: 1,
            blocks,
            threads,
            registers,
            shared_bytes,
            residency,
        });
    }
}
