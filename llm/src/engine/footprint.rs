//! The device memory that an engine takes, known before anything is copied.

use hcq::{Device, Info};

use crate::engine::alone::Alone;
use crate::engine::batch::Steps;
use crate::engine::cache::{CacheShape, pages_for};
use crate::engine::columns::{Columns, ColumnsOptions, launched};
use crate::engine::options::EngineOptions;
use crate::engine::programs::{Launched, Programs};
use crate::engine::prompt::activations::{Activations, Extent};
use crate::engine::prompt::chunks::refuses;
use crate::engine::prompt::kept::Kept;
use crate::error::Result;
use crate::gguf::TensorInfo;
use crate::kernels::choices::Kernels;
use crate::kernels::repack::stored_as;
use crate::model::Model;

/// Bytes not counted one by one: kernels, rings and the vectors of a step.
const REST: u64 = 16 << 20;
/// The same of each layer: norms, launch descriptors, and what buffers are rounded up to.
const REST_OF_LAYER: u64 = 1 << 20;

/// Bytes of device memory that an engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// Weights, which stay as they are in the file unless there are no kernels for their type.
    pub weights: u64,
    /// Expanded weights that are kept for prompts.
    pub expanded: u64,
    /// Keys and values of the whole context.
    pub cache: u64,
    /// Everything else: activations of a prompt, expanded weights, stacks of kernels, kernels, rings.
    pub scratch: u64,
}

/// Bytes that the stacks of the engine's kernels take on a device, whatever the model.
fn stacks(options: &EngineOptions, device: &Device) -> Result<u64> {
    let stack = Programs::largest_stack(device, Launched::ByEngine, &options.tuning.kernels)?;
    Ok(device.stack_memory(stack))
}

/// Bytes of the weights. Some types take more on the device than in the file.
fn weights(model: &Model) -> u64 {
    let on_device = |t: &TensorInfo| stored_as(t.ty).bytes_for(t.dims.iter().product()).unwrap_or(t.bytes);
    model.gguf.tensors().iter().map(on_device).sum()
}

/// Bytes of expanded weights, if they are to be kept and there are chunks.
fn expanded(model: &Model, keeps: bool) -> u64 {
    if keeps && refuses(&model.config).is_none() { Kept::bytes(model) } else { 0 }
}

impl Footprint {
    /// Of an engine for `model` with `options` on `device`, with its prompts and steps.
    ///
    /// # Errors
    /// [`Error::KeyValue`](crate::Error::KeyValue) for a cache type that the model cannot have,
    /// [`Error::TooLarge`](crate::Error::TooLarge), [`Error::NoKernels`](crate::Error::NoKernels).
    pub fn of(model: &Model, options: &EngineOptions, device: &Device) -> Result<Self> {
        Self::with_stacks(model, options, device.info(), stacks(options, device)?)
    }

    fn with_stacks(model: &Model, options: &EngineOptions, info: &Info, stacks: u64) -> Result<Self> {
        let (c, context) = (&model.config, options.context.max(1));
        let cache = CacheShape::new(c, options.kv, pages_for(context))?.bytes() * 2 * c.layers as u64;
        let extent = Extent::longest(c, context, options.kv);
        let activations = match refuses(c).is_none() {
            true => Activations::bytes(c, extent, &options.tuning.choices, info.into())?,
            false => 0,
        };
        let alone = Alone::bytes(c, context, info.sm_count);
        let rest = REST + c.layers as u64 * REST_OF_LAYER;
        let steps = Steps::bytes(c, (1, pages_for(context)), info.sm_count)?;
        let scratch = activations + alone + steps + stacks + rest;
        let expanded = expanded(model, options.expanded);
        Ok(Self { weights: weights(model), expanded, cache, scratch })
    }

    /// Of [`Columns`] of `model` with `options` on `device`.
    ///
    /// # Errors
    /// As [`Footprint::of`].
    pub fn of_columns(model: &Model, options: &ColumnsOptions, device: &Device) -> Result<Self> {
        let (cache, buffers) = Columns::bytes(model, options, device)?;
        let stack = Programs::largest_stack(device, launched(options), &Kernels::new())?;
        let rest = REST + model.config.layers as u64 * REST_OF_LAYER;
        let scratch = buffers + device.stack_memory(stack) + rest;
        let expanded = expanded(model, options.expanded && options.chunks);
        Ok(Self { weights: weights(model), expanded, cache, scratch })
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.expanded).saturating_add(self.cache).saturating_add(self.scratch)
    }

    /// The most positions, up to `options.context`, with which it fits `free` bytes of `device`; `None` if
    /// not even one does.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn longest_context(
        model: &Model,
        options: &EngineOptions,
        device: &Device,
        free: u64,
    ) -> Result<Option<usize>> {
        let stacks = stacks(options, device)?;
        let fits = |context: usize| -> Result<bool> {
            let options = EngineOptions { context, ..options.clone() };
            Ok(Self::with_stacks(model, &options, device.info(), stacks)?.total() <= free)
        };
        let (mut fitting, mut above) = (0, options.context.max(1) + 1);
        while above - fitting > 1 {
            let middle = fitting + (above - fitting) / 2;
            if fits(middle)? { fitting = middle } else { above = middle }
        }
        Ok((fitting > 0).then_some(fitting))
    }
}
