//! The launches of one decode step, in order: what the graph records and what the profiler times.

use std::time::{Duration, Instant};

use hcq::{Args, Buffer, Device, Graph, Kernel, LaunchConfig};

use super::cache_bytes_per_layer;
use super::matrix::{Loader, Matrix, fits};
use super::programs::Programs;
use crate::error::{Error, Result};
use crate::gguf::TensorView;
use crate::kernels::{
    ARGMAX_BLOCKS, ATTENTION_THREADS, CacheType, Choices, Epilogue, HEAD_DIMS, NORM_THREADS, Product,
    ROPE_THREADS, SILU_THREADS, STATE_THREADS, TOKENS_AT, embed_blocks, even_shares, partial_words, turns,
};
use crate::model::{Config, Model};
use crate::tuning::Tuning;

/// One launch of a step.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What it is for, in a word or two.
    pub role: &'static str,
    pub kernel: Kernel,
    pub config: LaunchConfig,
    pub args: Args,
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
    /// Bytes of keys and values that it reads per position so far.
    pub cache_bytes: u64,
    /// Whether it may start before the stage before it has ended.
    pub overlaps: bool,
}

/// All stages of a step, and the buffers that the host reads or writes.
#[derive(Debug)]
pub struct Plan {
    pub stages: Vec<Stage>,
    /// The stages that multiply a matrix with a vector.
    pub products: Vec<ProductStage>,
    /// Where the last layer begins.
    pub last_layer: usize,
    /// Where the output matrix begins; without what follows a step only fills the cache.
    pub head: usize,
    /// The stage that ends a step without the output matrix.
    pub advance: Stage,
    pub state: Buffer,
    pub logits: Buffer,
    /// The residual stream.
    pub x: Buffer,
    /// Time that bringing the matrices to the device took.
    pub loading: Duration,
}

/// A stage that multiplies a matrix with a vector.
#[derive(Debug)]
pub struct ProductStage {
    /// Which stage.
    pub stage: usize,
    pub product: Product,
    /// What it multiplies with.
    pub x: Buffer,
    /// Where its results are, from `out_at` bytes on.
    pub out: Buffer,
    pub out_at: u64,
}

/// The model in device memory.
#[derive(Debug)]
pub struct ModelMemory {
    pub embedding: Matrix,
    pub layers: Vec<LayerMemory>,
    /// Rotation of each pair per position.
    pub turns: Buffer,
    pub output_norm: Buffer,
    /// The embedding itself if the model has no other.
    pub output: Matrix,
}

impl ModelMemory {
    /// All matrices.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let all = [&self.embedding, &self.output].into_iter();
        all.chain(self.layers.iter().flat_map(LayerMemory::matrices))
    }
}

/// A layer's weights, keys and values in device memory.
#[derive(Debug)]
pub struct LayerMemory {
    pub attn_norm: Buffer,
    /// Queries, keys and values, those of equal type in one matrix.
    pub qkv: Vec<Matrix>,
    pub keys: Buffer,
    pub values: Buffer,
    pub o: Matrix,
    pub ffn_norm: Buffer,
    /// Gate above up; one matrix if both are of one type.
    pub gate_up: Vec<Matrix>,
    pub down: Matrix,
}

impl LayerMemory {
    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.qkv.iter().chain([&self.o]).chain(&self.gate_up).chain([&self.down])
    }
}

/// Positions that one share of attention takes at least before another is worth its launch.
const POSITIONS_PER_SHARE: usize = 1024;

/// Gathers stages while the model is brought to the device.
struct Planner<'a> {
    device: &'a Device,
    programs: Programs,
    config: &'a Config,
    context: u32,
    kv: CacheType,
    stages: Vec<Stage>,
    products: Vec<ProductStage>,
    choices: &'a Choices,
    loader: Loader<'a>,
    progress: &'a mut (dyn FnMut(u64) + Send),
}

/// Activation vectors, all `f32`.
struct Vectors {
    /// The residual stream.
    x: Buffer,
    /// Normalized, striped.
    normed: Buffer,
    /// Queries, keys and values.
    qkv: Buffer,
    /// What attention gives, striped.
    attended: Buffer,
    /// Input of the down projection, striped.
    ff: Buffer,
    /// Rotation of each pair per position.
    turns: Buffer,
    /// Scratch of attention in shares.
    partials: Buffer,
}

impl Plan {
    /// Brings the model to the device and lays out its step. Returns also where the model is, and the kernels loaded so far.
    ///
    /// # Errors
    /// [`Error::UnsupportedType`], [`Error::PartialBlock`], [`Error::KeyValue`] for a model that the kernels cannot do; what
    /// the device reports.
    pub fn new(
        device: &Device,
        model: &Model,
        (context, kv): (usize, CacheType),
        tuning: &Tuning,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(Self, ModelMemory, Programs)> {
        let c = &model.config;
        check(c, context, kv)?;
        let floats = |n: usize| device.alloc(4 * n as u64);
        let shares = shares(c, context, device.info().sm_count as usize)?;
        let vectors = Vectors {
            x: floats(c.hidden)?,
            normed: floats(c.hidden)?,
            qkv: floats(c.q_dim() + 2 * c.kv_dim())?,
            attended: floats(c.q_dim())?,
            ff: floats(c.ff)?,
            turns: rotation(device, c)?,
            partials: floats(c.heads * shares as usize * partial_words(fits(c.head_dim)?) as usize)?,
        };
        let state = device.alloc(4 * (u64::from(TOKENS_AT) + context as u64 + 1))?;
        let logits = floats(c.vocab)?;
        let programs = Programs::new(device, tuning.kernels.clone())?;
        let context = fits(context)?;
        let (stages, products, choices) = (Vec::new(), Vec::new(), &tuning.choices);
        let loader = Loader::default();
        let mut p =
            Planner { device, programs, config: c, context, kv, stages, products, choices, loader, progress };

        let embedding = p.upload(&[model.embedding()])?;
        p.embed(&embedding, &state, &vectors.x)?;
        let (mut layers, mut last_layer) = (Vec::new(), 0);
        for index in 0..c.layers {
            last_layer = p.stages.len();
            layers.push(p.layer(model, index, shares, &vectors, &state)?);
        }
        let output = if model.is_tied() { embedding.clone() } else { p.upload(&[model.output()])? };
        let head = p.stages.len();
        let output_norm = p.rmsnorm("final norm", model.output_norm(), &vectors)?;
        p.matvec("output", &output, Epilogue::Store, &vectors.normed, &logits, 0)?;
        p.argmax(&logits, &state)?;
        let advance = p.stage("advance", "advance", 1, 32, Args::new().buffer(&state))?;
        let model = ModelMemory { embedding, layers, turns: vectors.turns, output_norm, output };
        let x = vectors.x;
        let Planner { stages, products, programs, loader, progress, .. } = p;
        let begin = Instant::now();
        loader.load(progress)?;
        let loading = begin.elapsed();
        Ok((Self { stages, products, last_layer, head, advance, state, logits, x, loading }, model, programs))
    }

    /// The stages of a step that leaves the logits out.
    pub fn without_head(&self) -> impl Iterator<Item = &Stage> {
        self.stages[..self.head].iter().chain([&self.advance])
    }
}

/// Records stages, each after the ones before it unless it says that it overlaps.
///
/// # Errors
/// What the device reports.
pub fn record<'a>(device: &Device, stages: impl Iterator<Item = &'a Stage>) -> Result<Graph> {
    let mut graph = device.graph();
    for (i, stage) in stages.enumerate() {
        if i > 0 && !stage.overlaps {
            graph.barrier();
        }
        // SAFETY: the plans size every buffer by the model's checked configuration, and the kernels stay within the sizes they
        // are passed; positions and tokens are checked before they are written, and bounded by the embedding kernels.
        unsafe { graph.launch(&stage.kernel, stage.config, &stage.args) }?;
    }
    Ok(graph.build()?)
}

/// Refuses what the kernels cannot do.
fn check(c: &Config, context: usize, kv: CacheType) -> Result<()> {
    let longest = *HEAD_DIMS.last().unwrap_or(&0) as usize;
    if !c.head_dim.is_multiple_of(8) || c.head_dim > longest {
        return Err(Error::KeyValue {
            key: "llama.attention.key_length".into(),
            value: c.head_dim.to_string(),
            rule: "the kernels take multiples of 8 up to 256",
        });
    }
    kv.check(c)?;
    if kv == CacheType::Q8_0 {
        scales_at(c, fits(context)?)?;
    }
    Ok(())
}

/// Where the scales of a cache in q8_0 are, in bytes from its start.
///
/// # Errors
/// [`Error::TooLarge`].
pub(super) fn scales_at(c: &Config, context: u32) -> Result<u32> {
    fits(c.kv_dim() * context as usize)
}

/// Into how many shares attention splits the positions.
fn shares(c: &Config, context: usize, sm_count: usize) -> Result<u32> {
    // Four small blocks per SM.
    let least = (4 * sm_count / c.heads).clamp(1, 64);
    let most = even_shares(fits(c.heads)?, fits(sm_count)?, fits(least)?);
    Ok(fits(context.div_ceil(POSITIONS_PER_SHARE))?.clamp(1, most))
}

/// The rotation table of `rope_cache`.
fn rotation(device: &Device, c: &Config) -> Result<Buffer> {
    let mut steps: Vec<u64> = c.rope_frequencies().into_iter().map(turns).collect();
    steps.resize(c.head_dim / 2, 0);
    let buffer = device.alloc(8 * steps.len() as u64)?;
    let bytes: Vec<u8> = steps.iter().flat_map(|s| s.to_le_bytes()).collect();
    buffer.write(0, &bytes)?;
    Ok(buffer)
}

impl<'a> Planner<'a> {
    /// A matrix whose values come when the whole model is loaded.
    fn upload(&mut self, tensors: &[TensorView<'a>]) -> Result<Matrix> {
        self.loader.add(self.device, tensors)
    }

    /// A stage with a kernel of the `vector` module.
    fn stage(
        &mut self,
        role: &'static str,
        kernel: &str,
        blocks: u32,
        threads: u32,
        args: Args,
    ) -> Result<Stage> {
        let kernel = self.programs.vector(kernel)?;
        Ok(Stage {
            role,
            kernel,
            config: LaunchConfig::new(blocks, threads),
            args,
            weight_bytes: 0,
            cache_bytes: 0,
            overlaps: false,
        })
    }

    fn embed(&mut self, embedding: &Matrix, state: &Buffer, x: &Buffer) -> Result<()> {
        let args = embedding.args().buffer(state).buffer(x).u32(embedding.rows).u32(embedding.cols);
        let config = LaunchConfig::new(embed_blocks(embedding.format, embedding.cols), STATE_THREADS);
        self.stages.push(Stage {
            role: "embedding",
            kernel: self.programs.embed(embedding.format)?,
            config,
            args,
            weight_bytes: embedding.row_bytes(),
            cache_bytes: 0,
            overlaps: false,
        });
        Ok(())
    }

    /// `out[offset..] = matrix · x`, or as `epilogue` says.
    fn matvec(
        &mut self,
        role: &'static str,
        matrix: &Matrix,
        epilogue: Epilogue,
        x: &Buffer,
        out: &Buffer,
        offset: usize,
    ) -> Result<()> {
        let rows = if epilogue == Epilogue::Gate { matrix.rows / 2 } else { matrix.rows };
        let out_at = 4 * offset as u64;
        let args = matrix.args().buffer(x).buffer_at(out, out_at).u32(rows).u32(matrix.cols);
        let product = Product { format: matrix.format, epilogue, rows, cols: matrix.cols };
        let shape = self.choices.matvec(&product);
        let (x, out) = (x.clone(), out.clone());
        self.products.push(ProductStage { stage: self.stages.len(), product, x, out, out_at });
        self.stages.push(Stage {
            role,
            kernel: self.programs.matvec(matrix.format, epilogue, shape)?,
            config: LaunchConfig::new(shape.blocks(epilogue, rows), shape.threads()),
            args,
            weight_bytes: matrix.bytes(),
            cache_bytes: 0,
            overlaps: false,
        });
        Ok(())
    }

    /// Lets the last stage run beside the one before it.
    fn beside_previous(&mut self) {
        if let Some(stage) = self.stages.last_mut() {
            stage.overlaps = true;
        }
    }

    fn rmsnorm(&mut self, role: &'static str, weight: TensorView<'_>, v: &Vectors) -> Result<Buffer> {
        let values = weight.to_f32()?;
        let buffer = self.device.alloc(4 * values.len() as u64)?;
        let bytes: Vec<u8> = values.iter().flat_map(|w| w.to_le_bytes()).collect();
        buffer.write(0, &bytes)?;
        (self.progress)(weight.data.len() as u64);
        let args = Args::new().buffer(&v.x).buffer(&buffer).buffer(&v.normed);
        let args = args.u32(fits(values.len())?).f32(self.config.rms_eps);
        let mut stage = self.stage(role, "rmsnorm", 1, NORM_THREADS, args)?;
        stage.weight_bytes = bytes.len() as u64;
        self.stages.push(stage);
        Ok(buffer)
    }

    fn layer(
        &mut self,
        model: &'a Model,
        index: usize,
        shares: u32,
        v: &Vectors,
        state: &Buffer,
    ) -> Result<LayerMemory> {
        let c = self.config;
        let layer = model.layer(index);
        let cache = || self.device.alloc(self.kv.bytes(c.kv_dim() as u64 * u64::from(self.context)));
        let (keys, values) = (cache()?, cache()?);

        let attn_norm = self.rmsnorm("attention norm", layer.attn_norm, v)?;
        let (mut at, mut qkv) = (0, Vec::new());
        for (i, group) in [layer.q, layer.k, layer.v].chunk_by(|a, b| a.ty == b.ty).enumerate() {
            let matrix = self.upload(group)?;
            self.matvec("q k v", &matrix, Epilogue::Store, &v.normed, &v.qkv, at)?;
            if i > 0 {
                self.beside_previous();
            }
            at += matrix.rows as usize;
            qkv.push(matrix);
        }
        self.rope(&keys, &values, v, state)?;
        self.attend(&keys, &values, shares, v, state)?;
        let o = self.upload(&[layer.o])?;
        self.matvec("attention output", &o, Epilogue::Add, &v.attended, &v.x, 0)?;

        let ffn_norm = self.rmsnorm("ff norm", layer.ffn_norm, v)?;
        let gate_up = if layer.gate.ty == layer.up.ty {
            let both = self.upload(&[layer.gate, layer.up])?;
            self.matvec("gate up", &both, Epilogue::Gate, &v.normed, &v.ff, 0)?;
            vec![both]
        } else {
            let (gate, up) = (self.upload(&[layer.gate])?, self.upload(&[layer.up])?);
            let apart = self.device.alloc(8 * c.ff as u64)?;
            self.matvec("gate up", &gate, Epilogue::Store, &v.normed, &apart, 0)?;
            self.matvec("gate up", &up, Epilogue::Store, &v.normed, &apart, c.ff)?;
            self.beside_previous();
            let args = Args::new().buffer(&apart).buffer_at(&apart, 4 * c.ff as u64);
            let args = args.buffer(&v.ff).u32(fits(c.ff)?);
            let blocks = fits(c.ff)?.div_ceil(SILU_THREADS);
            let stage = self.stage("gate up", "silu_mul", blocks, SILU_THREADS, args)?;
            self.stages.push(stage);
            vec![gate, up]
        };
        let down = self.upload(&[layer.down])?;
        self.matvec("down", &down, Epilogue::Add, &v.ff, &v.x, 0)?;
        Ok(LayerMemory { attn_norm, qkv, keys, values, o, ffn_norm, gate_up, down })
    }

    fn rope(&mut self, keys: &Buffer, values: &Buffer, v: &Vectors, state: &Buffer) -> Result<()> {
        let c = self.config;
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = Args::new().buffer(&v.qkv).buffer(&v.turns).buffer(state).buffer(keys).buffer(values);
        let args =
            args.u32(fits(c.heads)?).u32(fits(c.kv_heads)?).u32(fits(c.head_dim / 2)?).u32(self.context);
        let (kernel, args) = match self.kv {
            CacheType::F16 => ("rope_cache", args),
            CacheType::Q8_0 => ("rope_cache_q8_0", args.u32(scales_at(c, self.context)?)),
        };
        let stage = self.stage("rotate, cache", kernel, pairs.div_ceil(ROPE_THREADS), ROPE_THREADS, args)?;
        self.stages.push(stage);
        Ok(())
    }

    fn attend(
        &mut self,
        keys: &Buffer,
        values: &Buffer,
        shares: u32,
        v: &Vectors,
        state: &Buffer,
    ) -> Result<()> {
        let c = self.config;
        let (heads, head_dim) = (fits(c.heads)?, fits(c.head_dim)?);
        let longest = *HEAD_DIMS.last().unwrap_or(&0);
        let dims = HEAD_DIMS.into_iter().find(|d| *d >= head_dim).unwrap_or(longest);
        let split = shares > 1 || self.kv == CacheType::Q8_0;
        let name = match self.kv {
            CacheType::F16 => format!("attention_{}{dims}", if split { "split_" } else { "" }),
            CacheType::Q8_0 => format!("attention_q8_0_{dims}"),
        };
        let out = if split { &v.partials } else { &v.attended };
        let args = Args::new().buffer(&v.qkv).buffer(keys).buffer(values).buffer(state).buffer(out);
        let args = args.u32(self.context).u32(head_dim).u32(fits(c.heads / c.kv_heads)?);
        let args = args.f32(1.0 / (c.head_dim as f32).sqrt());
        let args = match self.kv {
            CacheType::F16 => args,
            CacheType::Q8_0 => args.u32(scales_at(c, self.context)?),
        };
        self.stages.push(Stage {
            role: "attention",
            kernel: self.programs.attention(&name)?,
            config: LaunchConfig::new((heads, shares), ATTENTION_THREADS),
            args,
            weight_bytes: 0,
            cache_bytes: cache_bytes_per_layer(c, self.kv),
            overlaps: false,
        });
        if split {
            let args = Args::new().buffer(&v.partials).buffer(&v.attended).u32(head_dim).u32(shares);
            self.stages.push(Stage {
                role: "attention",
                kernel: self.programs.attention("attention_combine")?,
                config: LaunchConfig::new(heads, ATTENTION_THREADS),
                args,
                weight_bytes: 0,
                cache_bytes: 0,
                overlaps: false,
            });
        }
        Ok(())
    }

    fn argmax(&mut self, logits: &Buffer, state: &Buffer) -> Result<()> {
        let candidates = |device: &Device| device.alloc(4 * u64::from(ARGMAX_BLOCKS));
        let (values, indices) = (candidates(self.device)?, candidates(self.device)?);
        let args = Args::new().buffer(logits).buffer(&values).buffer(&indices).u32(fits(self.config.vocab)?);
        let first = self.stage("argmax", "argmax", ARGMAX_BLOCKS, STATE_THREADS, args)?;
        let args = Args::new().buffer(&values).buffer(&indices).buffer(state).u32(ARGMAX_BLOCKS);
        let second = self.stage("argmax", "argmax_finish", 1, 32, args)?;
        self.stages.extend([first, second]);
        Ok(())
    }
}
