//! Kernel launches, and their recording into graphs.

use hcq::{Args, Device, Graph, Kernel, LaunchConfig};

use crate::error::Result;

/// One launch of a step or of a prompt.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What it is for, in a word or two.
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
/// and for smaller ones beside a block that fills it. By itself a launch takes the smallest that holds one
/// block.
pub fn filled(kernel: &Kernel, config: LaunchConfig) -> LaunchConfig {
    let blocks = kernel.blocks_per_sm(config.block.iter().product(), config.dynamic_shared);
    config.with_blocks_per_sm(blocks.max(2))
}

/// Records launches, each after the previous ones unless it overlaps.
pub fn record<'a>(device: &Device, launches: impl IntoIterator<Item = &'a Launch>) -> Result<Graph> {
    let mut graph = device.graph();
    for (i, launch) in launches.into_iter().enumerate() {
        if i > 0 && !launch.overlaps {
            graph.barrier();
        }
        // SAFETY: every buffer is sized by the model's checked configuration, and the kernels stay within the
        // sizes that they are passed; positions and tokens are checked before they are written, and bounded
        // by the embedding kernels.
        unsafe { graph.launch(&launch.kernel, launch.config, &launch.args) }?;
    }
    Ok(graph.build()?)
}
