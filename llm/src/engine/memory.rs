//! A model in device memory: weights, rotation steps, caches and decode state.

use std::time::{Duration, Instant};

use hcq::{BackendKind, Buffer, Device, Info};

use crate::cache::CacheType;
use crate::engine::cache::CacheShape;
use crate::engine::layers::{
    Experts, HeadNormMemory, LayerMemory, NormMemory, Product, Source, Step, Target,
};
use crate::engine::matrix::{Loader, Matrix, Rows, fits};
use crate::engine::order::{HeadOrder, Tail};
use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::kernels::format::Format;
use crate::kernels::heads::LONGEST_HEAD;
use crate::kernels::prompt::tile::Chip;
use crate::kernels::repack::stored_as;
use crate::kernels::rotation::turns;
use crate::model::Model;
use crate::model::architecture::{HeadNorms, Rotation};
use crate::model::config::Config;
use crate::model::tensors::{Affine, FeedForward, Layer, POSITIONS};

/// A model on a device: the memory that all engines work with.
#[derive(Debug)]
pub struct DeviceModel {
    /// The device.
    pub device: Device,
    /// Shape and constants.
    pub config: Config,
    /// Most positions of a sequence.
    pub context: usize,
    /// Type and size of the caches.
    pub cache: CacheShape,
    /// The token embedding.
    pub embedding: Matrix,
    /// The vectors of learned positions, if the model has them.
    pub positions: Option<Buffer>,
    /// Weights and caches of each layer.
    pub layers: Vec<LayerMemory>,
    /// The last norm.
    pub output_norm: NormMemory,
    /// The output matrix; the embedding if the model has no other.
    pub output: Matrix,
    /// Time that copying the matrices took.
    pub loading: Duration,
    /// The longest that a step may take.
    pub patience: Duration,
}

impl From<&Info> for Chip {
    fn from(info: &Info) -> Self {
        Self { sm: info.sm_number(), sm_count: info.sm_count }
    }
}

/// Refuses a model without kernels, or without some for a cache in `kv`: what a file alone says, before there is a
/// device.
///
/// # Errors
/// [`Error::UnsupportedType`], [`Error::PartialBlock`], [`Error::KeyValue`].
pub fn check(model: &Model, kv: CacheType) -> Result<()> {
    let c = &model.config;
    let normed = c.padded_head() > c.head_dim && c.architecture.head_norms != HeadNorms::None;
    if !c.head_dim.is_multiple_of(4) || normed || c.head_dim > LONGEST_HEAD as usize {
        let [given, width, heads] = ["attention.key_length", "embedding_length", "attention.head_count"]
            .map(|key| c.architecture.key(key));
        let key = if model.gguf.value(&given).is_some() { given } else { format!("{width} / {heads}") };
        let rule = "the length of a head: there are kernels for multiples of 4 up to 256, of 8 where heads are normalized";
        return Err(Error::KeyValue { key, value: c.head_dim.to_string(), rule });
    }
    kv.check(c)?;
    for tensor in model.gguf.tensors().iter().filter_map(|info| model.tensor(&info.name)) {
        let is_vector = tensor.rows() == 1 || tensor.name == POSITIONS;
        if is_vector {
            tensor.check_supported()?;
        } else if Matrix::format_of(&tensor)?.has_codebook() && tensor.name.ends_with(".ffn_gate_inp.weight")
        {
            return Err(Error::UnsupportedType { name: tensor.name.to_owned(), ty: tensor.ty });
        }
    }
    (0..c.layers).try_for_each(|index| check_experts(c, &model.layer(index).ff))
}

/// Refuses experts that cannot be one matrix: of several types, or with rows that share tiles.
fn check_experts(c: &Config, ff: &FeedForward<'_>) -> Result<()> {
    let FeedForward::Experts { gate, up, down, .. } = ff else { return Ok(()) };
    let length = c.architecture.ff_length(true);
    for (tensors, key, rows) in
        [(gate, length, c.ff), (up, length, c.ff), (down, "embedding_length", c.hidden)]
    {
        let first = tensors[0].ty;
        if let Some(other) = tensors.iter().find(|tensor| tensor.ty != first) {
            return Err(Error::ExpertTypes { name: other.name.into(), ty: other.ty, first });
        }
        if !rows.is_multiple_of(Matrix::format_of(&tensors[0])?.rows_together() as usize) {
            let key = c.architecture.key(key);
            let rule =
                "the rows of an expert: there are kernels for multiples of 16 where they are quantized";
            return Err(Error::KeyValue { key, value: rows.to_string(), rule });
        }
    }
    Ok(())
}

impl DeviceModel {
    /// The chip, on which shapes of kernels depend.
    pub fn chip(&self) -> Chip {
        self.device.info().into()
    }

    /// Copies `model` to `device`, for texts of up to `context` tokens and a cache of `pages` pages.
    /// `progress` is called with the bytes of tensors copied.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], [`Error::PartialBlock`], [`Error::KeyValue`] for a model that has no
    /// kernels; what the device reports.
    pub fn load(
        device: &Device,
        model: &Model,
        (context, pages, kv): (usize, usize, CacheType),
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Self> {
        let c = &model.config;
        check(model, kv)?;
        c.check_positions(context)?;
        let cache = CacheShape::new(c, kv, pages)?;
        let rotations = Rotations::new(device, c, context)?;
        let mut upload = Upload { device, c, loader: Loader::default(), progress };
        let embedding = upload.loader.add(device, &[model.embedding().into()])?;
        let positions = model.positions();
        let positions = positions.map(|t| upload.floats(t.name, &t.to_f32()?, t.data.len())).transpose()?;
        let mut layers = Vec::new();
        for index in 0..c.layers {
            // In the order of the file.
            let cached = |what: &str| -> Result<Buffer> {
                let buffer = device.alloc(cache.bytes())?;
                buffer.set_name(&format!("{what} of layer {index}"));
                Ok(buffer)
            };
            let (keys, values) = (cached("keys")?, cached("values")?);
            let turns = rotations.of(c, index);
            let window = c.window_of(index, context).map(fits).transpose()?;
            let steps = upload.steps(model.layer(index))?;
            layers.push(LayerMemory { keys, values, turns, window, steps });
        }
        let output = if model.is_tied() {
            embedding.clone()
        } else {
            upload.loader.add(device, &[model.output().into()])?
        };
        let output_norm = upload.norm("final norm", &model.output_norm())?;
        let Upload { loader, progress, .. } = upload;
        let begin = Instant::now();
        loader.load(&model.gguf, progress)?;
        let patience = match device.info().backend {
            // A software device takes about a nanosecond per weight and core, and with its checks a minute.
            BackendKind::Sim => Duration::from_secs(300 + model.tensor_bytes() / 10_000_000),
            _ => Duration::from_secs(30),
        };
        Ok(Self {
            device: device.clone(),
            config: c.clone(),
            context,
            cache,
            embedding,
            positions,
            layers,
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

/// Copies vectors to the device, and collects matrices to copy.
struct Upload<'a, 'p> {
    device: &'a Device,
    c: &'a Config,
    loader: Loader<'a>,
    progress: &'p mut (dyn FnMut(u64) + Send),
}

impl<'a> Upload<'a, '_> {
    /// The steps of a layer, whatever its architecture.
    fn steps(&mut self, layer: Layer<'a>) -> Result<Vec<Step>> {
        let device = self.device;
        let (order, padded, tail) = (self.order(), self.padded(), self.tail());
        let qkv = [(layer.q, order, tail), (layer.k, order, None), (layer.v, padded, None)];
        let rows = qkv.map(|(affine, order, tail)| Rows { tensor: affine.weight, order, tail });
        let heads = Product {
            role: "q k v",
            from: Source::Residual(self.norm("attention norm", &layer.attn_norm)?),
            matrices: stacked(device, &mut self.loader, &rows)?,
            bias: self.biases(&qkv)?,
            to: Target::Heads(layer.head_norms.map(|norms| self.head_norms(norms)).transpose()?),
        };
        let [of_attention, of_ff] = match layer.post_norms {
            Some([attention, ff]) => [("attention norm of results", attention), ("ff norm of results", ff)]
                .map(|(role, weight)| Some((role, Affine { weight, bias: None }))),
            None => [None, None],
        };
        let mut result = |norm: Option<(&'static str, Affine<'_>)>| {
            norm.map(|(role, norm)| self.norm(role, &norm)).transpose().map(Target::Residual)
        };
        let (of_attention, of_ff) = (result(of_attention)?, result(of_ff)?);
        let output = Product {
            role: "attention output",
            from: Source::Attended,
            matrices: vec![self.loader.add(device, &[layer.o.weight.into()])?],
            bias: self.biases(&[(layer.o, None, None)])?,
            to: of_attention,
        };
        let mut steps = vec![Step::Product(heads), Step::Attend, Step::Product(output)];
        let norm = self.norm("ff norm", &layer.ffn_norm)?;
        match layer.ff {
            FeedForward::Dense { gate, up, down } => {
                steps.extend(self.dense(norm, (gate, up, down), of_ff)?)
            }
            FeedForward::Experts { router, gate, up, down } => {
                let mut add = |tensors: Vec<TensorView<'a>>| {
                    self.loader.add(device, &tensors.into_iter().map(Rows::from).collect::<Vec<_>>())
                };
                let (router, gate, up, down) = (add(vec![router])?, add(gate)?, add(up)?, add(down)?);
                steps.push(Step::Experts(Experts { norm, router, gate, up, down }));
            }
        }
        Ok(steps)
    }

    /// A feed-forward block that all tokens take.
    fn dense(
        &mut self,
        norm: NormMemory,
        (gate, up, down): (Option<TensorView<'a>>, Affine<'a>, Affine<'a>),
        to: Target,
    ) -> Result<[Step; 2]> {
        let gate_up: Vec<Rows<'a>> = gate.into_iter().chain([up.weight]).map(Rows::from).collect();
        let up = Product {
            role: "gate up",
            from: Source::Residual(norm),
            matrices: stacked(self.device, &mut self.loader, &gate_up)?,
            bias: self.biases(&[(up, None, None)])?,
            to: Target::Activated(self.c.architecture.activation),
        };
        let down = Product {
            role: "down",
            from: Source::Activated,
            matrices: vec![self.loader.add(self.device, &[down.weight.into()])?],
            bias: self.biases(&[(down, None, None)])?,
            to,
        };
        Ok([Step::Product(up), Step::Product(down)])
    }

    /// The order of queries and keys on the device, unless it is that of the file.
    fn order(&self) -> Option<HeadOrder> {
        let c = self.c;
        let halves = c.architecture.rotation == Rotation::Halves;
        let order = HeadOrder { head_dim: c.head_dim, padded: c.padded_head(), halves: c.rope_dim };
        if halves { Some(order) } else { self.padded() }
    }

    /// That of values: heads that are no multiple of 8 are padded.
    fn padded(&self) -> Option<HeadOrder> {
        let (head_dim, padded) = (self.c.head_dim, self.c.padded_head());
        (padded > head_dim).then_some(HeadOrder { head_dim, padded, halves: 0 })
    }

    /// The part of queries that does not rotate, where scores have a factor that is not its own.
    fn tail(&self) -> Option<Tail> {
        let Config { head_dim, rope_dim, score_factor, .. } = *self.c;
        (rope_dim < head_dim && score_factor != 1.0).then(|| Tail {
            head_dim: self.c.padded_head(),
            rope_dim,
            factor: 1.0 / score_factor,
        })
    }

    fn floats(&mut self, name: &str, values: &[f32], file_bytes: usize) -> Result<Buffer> {
        let buffer = self.device.alloc(4 * values.len() as u64)?;
        buffer.set_name(name);
        buffer.write_slice(0, values)?;
        (self.progress)(file_bytes as u64);
        Ok(buffer)
    }

    fn norm(&mut self, role: &'static str, norm: &Affine<'_>) -> Result<NormMemory> {
        let mut load = |t: TensorView<'_>| self.floats(t.name, &t.to_f32()?, t.data.len());
        let weight = load(norm.weight)?;
        let Some(added) = norm.bias else {
            return Ok(NormMemory { role, reach: weight.clone(), weight, bias: None });
        };
        let bias = load(added)?;
        // |Σ v (n w + b)| is at most √Σn² · √Σ(v w)² + √n · √Σ(v b)², and √x + √y at most √(2 (x + y)).
        let pairs = norm.weight.to_f32()?.into_iter().zip(added.to_f32()?);
        let reach: Vec<f32> = pairs.map(|(w, b)| (2.0 * (w * w + b * b)).sqrt()).collect();
        let reach = self.floats("reach of a norm", &reach, 0)?;
        Ok(NormMemory { role, weight, bias: Some(bias), reach })
    }

    /// Biases one after the other, zeros for those that a product lacks; `None` if all lack them.
    fn biases(&mut self, parts: &[(Affine<'_>, Option<HeadOrder>, Option<Tail>)]) -> Result<Option<Buffer>> {
        let (mut values, mut names, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (affine, order, tail) in parts {
            let Some(tensor) = affine.bias else {
                let rows = affine.weight.rows();
                values.resize(values.len() + order.map_or(rows, |order| order.count(rows)), 0.0);
                continue;
            };
            let part = tensor.to_f32()?;
            let first = values.len();
            values.extend(order.map_or_else(|| part.clone(), |order| order.apply(&part)));
            if let Some(tail) = tail {
                tail.apply(&mut values[first..]);
            }
            names.push(tensor.name);
            bytes += tensor.data.len();
        }
        (!names.is_empty()).then(|| self.floats(&names.join(", "), &values, bytes)).transpose()
    }

    fn head_norms(&mut self, norms: [TensorView<'_>; 2]) -> Result<HeadNormMemory> {
        let c = self.c;
        let lengths = match c.architecture.head_norms {
            HeadNorms::All => [c.q_dim(), c.kv_dim()],
            HeadNorms::Each | HeadNorms::None => [c.head_dim; 2],
        };
        let [q, k] = norms;
        let mut load = |t: TensorView<'_>| -> Result<Buffer> {
            let values = t.to_f32()?;
            let values = self.order().map_or_else(|| values.clone(), |order| order.apply(&values));
            self.floats(t.name, &values, t.data.len())
        };
        let weights = [load(q)?, load(k)?];
        Ok(HeadNormMemory { weights, lengths: [fits(lengths[0])?, fits(lengths[1])?] })
    }
}

/// Reserves memory for matrices below each other; neighbours of equal type become one if they share no tile.
fn stacked<'a>(device: &Device, loader: &mut Loader<'a>, rows: &[Rows<'a>]) -> Result<Vec<Matrix>> {
    let together = |a: &TensorView<'_>| Format::of(stored_as(a.ty)).map_or(1, Format::rows_together) as usize;
    let joined = |a: &Rows<'_>, b: &Rows<'_>| {
        stored_as(a.tensor.ty) == stored_as(b.tensor.ty) && a.count().is_multiple_of(together(&a.tensor))
    };
    rows.chunk_by(joined).map(|group| loader.add(device, group)).collect()
}

/// The rotation of each pair of a head per position; zero for pairs that do not rotate.
struct Rotations {
    all: Buffer,
    /// Of layers with a window, and of layers that do not rotate, where they are others.
    windowed: Buffer,
    still: Buffer,
}

impl Rotations {
    /// Those of texts of at most `context` positions.
    fn new(device: &Device, c: &Config, context: usize) -> Result<Self> {
        let buffer = |frequencies: Vec<f64>| -> Result<Buffer> {
            let mut steps: Vec<u64> = frequencies.into_iter().map(turns).collect();
            steps.resize(c.padded_head() / 2, 0);
            let buffer = device.alloc(8 * steps.len() as u64)?;
            buffer.write_slice(0, &steps)?;
            Ok(buffer)
        };
        let all = buffer(c.rope_frequencies(false, context))?;
        let of_windows = c.window.and_then(|window| window.rope_base);
        let windowed = of_windows.map_or(Ok(all.clone()), |_| buffer(c.rope_frequencies(true, context)))?;
        let still = c.architecture.unrotated.map_or(Ok(all.clone()), |_| buffer(Vec::new()))?;
        Ok(Self { all, windowed, still })
    }

    /// Those of layer `layer`.
    fn of(&self, c: &Config, layer: usize) -> Buffer {
        let has_window = c.window.is_some_and(|window| window.is_of(layer));
        match (c.rotates(layer), has_window) {
            (false, _) => self.still.clone(),
            (true, false) => self.all.clone(),
            (true, true) => self.windowed.clone(),
        }
    }
}
