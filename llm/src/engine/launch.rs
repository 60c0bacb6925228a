//! Kernel launches, and their recording into graphs.

use hcq::{Args, Device, Graph, Kernel, LaunchConfig, NodeId};

use crate::error::Result;

/// One launch of a step or of a prompt.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its role, in a word or two.
    pub role: &'static str,
    /// The kernel.
    pub kernel: Kernel,
    /// Grid, block and shared memory.
    pub config: LaunchConfig,
    /// Arguments of the kernel.
    pub args: Args,
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
    /// Bytes of keys and values that it reads per position so far.
    pub cache_bytes: u64,
    /// Whether it may start before the previous launch has completed.
    pub overlaps: bool,
}

impl Launch {
    /// A launch that reads neither weights nor cache, after the previous one.
    pub fn new(role: &'static str, kernel: Kernel, config: LaunchConfig, args: Args) -> Self {
        Self { role, kernel, config, args, weight_bytes: 0, cache_bytes: 0, overlaps: false }
    }

    /// Sets the bytes of weights that it reads.
    pub fn with_weights(self, weight_bytes: u64) -> Self {
        Self { weight_bytes, ..self }
    }

    /// Sets the bytes of keys and values that it reads per position.
    pub fn with_cache(self, cache_bytes: u64) -> Self {
        Self { cache_bytes, ..self }
    }

    /// Lets it start before the previous launch has completed.
    pub fn overlapping(self) -> Self {
        Self { overlaps: true, ..self }
    }
}

/// `config` with a carve-out of shared memory for all blocks of `kernel` that the rest of an SM has room for,
/// and for smaller ones beside a block that fills it. By itself a launch takes what its own grid has for an
/// SM.
pub fn filled(kernel: &Kernel, config: LaunchConfig) -> LaunchConfig {
    let blocks = kernel.blocks_per_sm(config.block.iter().product(), config.dynamic_shared);
    config.with_blocks_per_sm(blocks.max(2))
}

/// Records launches, each after the previous ones unless it overlaps.
///
/// A launch whose kernel waits for grids is linked early: where the GPU has such links, it begins while the
/// launch before still runs. Its kernel keeps the rule of `kernels::links`. Launches that overlap others, and
/// those around them, begin when all before have ended.
pub fn record<'a>(device: &Device, launches: impl IntoIterator<Item = &'a Launch>) -> Result<Graph> {
    let (mut graph, mut launches) = (device.graph(), launches.into_iter().peekable());
    // The last launch, if no other runs beside it.
    let mut previous: Option<NodeId> = None;
    let mut first = true;
    while let Some(Launch { kernel, config, args, overlaps, .. }) = launches.next() {
        let alone = !overlaps && launches.peek().is_none_or(|next| !next.overlaps);
        let node = match previous.filter(|_| alone && kernel.waits_for_grids()) {
            // SAFETY: as below, and every kernel that waits for grids keeps the rule of `kernels::links`:
            // before its wait it touches nothing that a launch writes, and all its threads wait.
            Some(after) => unsafe { graph.launch_early(kernel, *config, args, after) }?,
            None => {
                if !first && !overlaps {
                    graph.barrier();
                }
                // SAFETY: every buffer is sized by the model's checked configuration, and the kernels stay
                // within the sizes that they are passed; positions and tokens are checked before they are
                // written, and bounded by the embedding kernels.
                unsafe { graph.launch(kernel, *config, args) }?
            }
        };
        previous = alone.then_some(node);
        first = false;
    }
    Ok(graph.build()?)
}
