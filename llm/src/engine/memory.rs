//! A model in device memory: weights, rotation steps, caches and decode state.

use std::time::{Duration, Instant};

use hcq::{BackendKind, Buffer, Device};

use crate::cache::CacheType;
use crate::engine::cache::CacheShape;
use crate::engine::matrix::{Loader, Matrix};
use crate::engine::state::State;
use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::kernels::format::Format;
use crate::kernels::heads::LONGEST_HEAD;
use crate::kernels::rotation::turns;
use crate::model::Model;
use crate::model::config::Config;

/// A model on a device: what every way of launching it works with.
#[derive(Debug)]
pub struct DeviceModel {
    /// The device.
    pub device: Device,
    /// Shape and constants.
    pub config: Config,
    /// Type and size of the caches.
    pub cache: CacheShape,
    /// Position, tokens, logits.
    pub state: State,
    /// The token embedding.
    pub embedding: Matrix,
    /// Weights and caches of each layer.
    pub layers: Vec<LayerMemory>,
    /// Rotation of each pair per position.
    pub turns: Buffer,
    /// Weights of the last norm.
    pub output_norm: Buffer,
    /// The output matrix; the embedding if the model has no other.
    pub output: Matrix,
    /// How long copying the matrices took.
    pub loading: Duration,
    /// The longest that a step may take.
    pub patience: Duration,
}

/// Weights, keys and values of a layer.
#[derive(Debug)]
pub struct LayerMemory {
    /// Weights of the norm before attention.
    pub attn_norm: Buffer,
    /// Query, key and value projections; neighbours of equal type are one matrix.
    pub qkv: Vec<Matrix>,
    /// Cached keys.
    pub keys: Buffer,
    /// Cached values.
    pub values: Buffer,
    /// Attention output projection.
    pub o: Matrix,
    /// Weights of the norm before the feed-forward block.
    pub ffn_norm: Buffer,
    /// Gate above up; one matrix if both have one type.
    pub gate_up: Vec<Matrix>,
    /// Down projection.
    pub down: Matrix,
}

impl DeviceModel {
    /// Copies `model` to `device`. `progress` is called with the bytes of tensors copied.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], [`Error::PartialBlock`], [`Error::KeyValue`] for a model that has no
    /// kernels; what the device reports.
    pub fn load(
        device: &Device,
        model: &Model,
        (context, kv): (usize, CacheType),
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Self> {
        let c = &model.config;
        if !c.head_dim.is_multiple_of(8) || c.head_dim > LONGEST_HEAD as usize {
            return Err(Error::KeyValue {
                key: "llama.attention.key_length".into(),
                value: c.head_dim.to_string(),
                rule: "the kernels take multiples of 8 up to 256",
            });
        }
        let cache = CacheShape::new(c, kv, context)?;
        let state = State::new(device, c.vocab, cache.context)?;
        let turns = rotation(device, c)?;
        let mut loader = Loader::default();
        let mut norm = |weight: TensorView<'_>| -> Result<Buffer> {
            let values = weight.to_f32()?;
            let buffer = device.alloc(4 * values.len() as u64)?;
            buffer.set_name(weight.name);
            buffer.write(0, &values.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>())?;
            progress(weight.data.len() as u64);
            Ok(buffer)
        };
        let embedding = loader.add(device, &[model.embedding()])?;
        let mut layers = Vec::new();
        for index in 0..c.layers {
            let layer = model.layer(index);
            // In the order of the file.
            let cached = |what: &str| -> Result<Buffer> {
                let buffer = device.alloc(cache.bytes())?;
                buffer.set_name(&format!("{what} of layer {index}"));
                Ok(buffer)
            };
            layers.push(LayerMemory {
                keys: cached("keys")?,
                values: cached("values")?,
                attn_norm: norm(layer.attn_norm)?,
                qkv: stacked(device, &mut loader, &[layer.q, layer.k, layer.v])?,
                o: loader.add(device, &[layer.o])?,
                ffn_norm: norm(layer.ffn_norm)?,
                gate_up: stacked(device, &mut loader, &[layer.gate, layer.up])?,
                down: loader.add(device, &[layer.down])?,
            });
        }
        let output =
            if model.is_tied() { embedding.clone() } else { loader.add(device, &[model.output()])? };
        let output_norm = norm(model.output_norm())?;
        let begin = Instant::now();
        loader.load(progress)?;
        let patience = match device.info().backend {
            // A software device takes about a nanosecond per weight and core, and with its checks a minute.
            BackendKind::Sim => Duration::from_secs(300 + model.tensor_bytes() / 10_000_000),
            _ => Duration::from_secs(30),
        };
        Ok(Self {
            device: device.clone(),
            config: c.clone(),
            cache,
            state,
            embedding,
            layers,
            turns,
            output_norm,
            output,
            loading: begin.elapsed(),
            patience,
        })
    }

    /// All matrices.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let all = [&self.embedding, &self.output].into_iter();
        all.chain(self.layers.iter().flat_map(LayerMemory::matrices))
    }
}

impl LayerMemory {
    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.qkv.iter().chain([&self.o]).chain(&self.gate_up).chain([&self.down])
    }
}

/// Reserves memory for matrices below each other; neighbours of equal type become one if they share no tile.
fn stacked<'a>(device: &Device, loader: &mut Loader<'a>, tensors: &[TensorView<'a>]) -> Result<Vec<Matrix>> {
    let together = |a: &TensorView<'_>| Format::of(a.ty).map_or(1, Format::rows_together) as usize;
    let joined =
        |a: &TensorView<'_>, b: &TensorView<'_>| a.ty == b.ty && a.rows().is_multiple_of(together(a));
    tensors.chunk_by(joined).map(|group| loader.add(device, group)).collect()
}

/// The rotation of each pair of a head per position; zero for pairs that do not rotate.
fn rotation(device: &Device, c: &Config) -> Result<Buffer> {
    let mut steps: Vec<u64> = c.rope_frequencies().into_iter().map(turns).collect();
    steps.resize(c.head_dim / 2, 0);
    let buffer = device.alloc(8 * steps.len() as u64)?;
    buffer.write(0, &steps.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>())?;
    Ok(buffer)
}
