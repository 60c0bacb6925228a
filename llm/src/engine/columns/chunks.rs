//! Memory that the batch engine reserves for chunks of prompts.

use hcq::Buffer;

use crate::engine::cache::PAGE;
use crate::engine::columns::options::ColumnsOptions;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::{Launched, Programs};
use crate::engine::prompt::activations::{Activations, Extent};
use crate::engine::prompt::chunks::{Chunks, refuses};
use crate::error::Result;
use crate::kernels::choices::{Choices, Kernels};
use crate::kernels::prompt::tile::Chip;
use crate::model::config::Config;

/// A chunk has the positions of a page at most.
fn extent(options: &ColumnsOptions) -> Extent {
    Extent { longest: PAGE, context: options.context, keeps: options.expanded, kv: options.kv }
}

/// Whether there are chunks.
fn wanted(c: &Config, options: &ColumnsOptions) -> bool {
    options.chunks && refuses(c).is_none()
}

/// The chunks of sequences with these `tables`.
pub fn chunks(m: &DeviceModel, options: &ColumnsOptions, tables: &Buffer) -> Result<Option<Chunks>> {
    if !wanted(&m.config, options) {
        return Ok(None);
    }
    let programs = Programs::new(&m.device, Kernels::new())?;
    Chunks::new(m, programs, Choices::default(), extent(options), tables.clone()).map(Some)
}

/// Bytes of device memory that chunks take.
pub fn chunk_bytes(c: &Config, options: &ColumnsOptions, chip: Chip) -> Result<u64> {
    match wanted(c, options) {
        true => Activations::bytes(c, extent(options), &Choices::default(), chip),
        false => Ok(0),
    }
}

/// The engine whose kernels are launched.
pub fn launched(options: &ColumnsOptions) -> Launched {
    match options.stream {
        true => Launched::ByEngine,
        false => Launched::ByColumns { chunks: options.chunks },
    }
}
