//! The chunks of the engine's prompts, and the launches from the last one to its logits.
//!
//! A chunk ends with the keys and values of the last layer. Its last token goes on as the one column of a batch
//! step, from the last layer to the logits.

use hcq::Graph;

use crate::engine::batch::Steps;
use crate::engine::launch::{Launch, record};
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::engine::prompt::activations::Extent;
use crate::engine::prompt::chunks::Chunks;
use crate::error::Result;
use crate::kernels::choices::Choices;

/// The chunks of a single sequence, and what follows its last.
#[derive(Debug)]
pub struct Prompt {
    /// The chunks.
    pub chunks: Chunks,
    /// From the chunk's last token before the last layer to its logits. The step that is written has that token.
    pub finish: Graph,
    /// The launches of `finish`.
    pub launches: Vec<Launch>,
}

impl Prompt {
    /// Reserves the activations of chunks of the model `m`, and its expanded weights if it `keeps` them.
    pub fn new(
        m: &DeviceModel,
        programs: Programs,
        choices: Choices,
        steps: &mut Steps,
        keeps: bool,
    ) -> Result<Self> {
        let extent = Extent { keeps, ..Extent::longest(&m.config, m.context, m.cache.kv) };
        let mut chunks = Chunks::new(m, programs, choices, extent, steps.tables().clone())?;
        let last = chunks.last(m, &steps.buffers().x)?;
        let launches = steps.end(m, last)?;
        let finish = record(&m.device, &launches)?;
        Ok(Self { chunks, finish, launches })
    }
}
