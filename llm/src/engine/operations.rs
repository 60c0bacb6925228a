//! Lowers a model to one launch per operation.

use hcq::{Args, Buffer, Kernel, LaunchConfig};

use crate::cache::CacheType;
use crate::engine::launch::Launch;
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::{DeviceModel, LayerMemory};
use crate::engine::programs::Programs;
use crate::error::Result;
use crate::kernels::choices::{Choices, Product};
use crate::kernels::heads::{even_shares, kernel_dims};
use crate::kernels::operations::matvec::Epilogue;
use crate::kernels::operations::{attention, norm, rope, token};
use crate::model::config::Config;

/// The launches of a step.
#[derive(Debug)]
pub struct Operations {
    /// All launches.
    pub launches: Vec<Launch>,
    /// The launches that multiply a matrix with a vector.
    pub products: Vec<ProductLaunch>,
    /// The residual stream.
    pub x: Buffer,
    /// The first launch of the last layer.
    last_layer: usize,
    /// The first launch of the head: norm, output matrix, choice of the token.
    head: usize,
    /// The launch that ends a step without the head.
    advance: Launch,
}

/// A launch that multiplies a matrix with a vector.
#[derive(Debug)]
pub struct ProductLaunch {
    /// Number of the launch.
    pub launch: usize,
    /// What is multiplied.
    pub product: Product,
    /// The vector.
    pub x: Buffer,
    /// The results start `out_at` bytes into this buffer.
    pub out: Buffer,
    /// See [`ProductLaunch::out`].
    pub out_at: u64,
}

/// Positions of a share of attention, at least: fewer are not worth another launch.
const POSITIONS_PER_SHARE: usize = 1024;

/// Activation vectors, all `f32`.
struct Vectors {
    /// The residual stream.
    x: Buffer,
    /// Normalized, striped.
    normed: Buffer,
    /// Queries, keys and values.
    qkv: Buffer,
    /// Result of attention, striped.
    attended: Buffer,
    /// Input of the down projection, striped.
    ff: Buffer,
    /// Scratch of attention in shares.
    partials: Buffer,
}

/// Collects the launches of a model.
struct Planner<'a> {
    m: &'a DeviceModel,
    programs: &'a mut Programs,
    choices: &'a Choices,
    v: Vectors,
    /// Shares of the positions in attention.
    shares: u32,
    launches: Vec<Launch>,
    products: Vec<ProductLaunch>,
}

impl Operations {
    /// Lowers the model `m`.
    pub fn new(m: &DeviceModel, programs: &mut Programs, choices: &Choices) -> Result<Self> {
        let c = &m.config;
        let floats = |n: usize| m.device.alloc(4 * n as u64);
        let shares = shares(c, m.cache.context as usize, m.device.info().sm_count as usize)?;
        let partials = c.heads * shares as usize * attention::partial_words(fits(c.head_dim)?) as usize;
        let v = Vectors {
            x: floats(c.hidden)?,
            normed: floats(c.hidden)?,
            qkv: floats(c.q_dim() + 2 * c.kv_dim())?,
            attended: floats(c.q_dim())?,
            ff: floats(c.ff)?,
            partials: floats(partials)?,
        };
        let (launches, products) = (Vec::new(), Vec::new());
        let mut p = Planner { m, programs, choices, v, shares, launches, products };
        p.embed()?;
        let mut last_layer = 0;
        for layer in &m.layers {
            last_layer = p.launches.len();
            p.layer(layer)?;
        }
        let head = p.launches.len();
        p.rmsnorm("final norm", &m.output_norm)?;
        let normed = p.v.normed.clone();
        p.matvec("output", &m.output, Epilogue::Store, &normed, &m.state.logits, 0)?;
        p.argmax()?;
        let kernel = p.vector("advance")?;
        let args = Args::new().buffer(&m.state.words);
        let advance = Launch::new("advance", kernel, LaunchConfig::new(1, 32), args);
        let Planner { launches, products, v, .. } = p;
        Ok(Self { launches, products, last_layer, head, advance, x: v.x })
    }

    /// A step without the head.
    pub fn without_head(&self) -> impl Iterator<Item = &Launch> {
        self.launches[..self.head].iter().chain([&self.advance])
    }

    /// The last layer and the head.
    pub fn last_layer_on(&self) -> &[Launch] {
        &self.launches[self.last_layer..]
    }
}

/// Into how many shares attention splits the positions.
fn shares(c: &Config, context: usize, sm_count: usize) -> Result<u32> {
    // Four small blocks per SM.
    let least = (4 * sm_count / c.heads).clamp(1, 64);
    let most = even_shares(fits(c.heads)?, fits(sm_count)?, fits(least)?);
    Ok(fits(context.div_ceil(POSITIONS_PER_SHARE))?.clamp(1, most))
}

impl Planner<'_> {
    /// A kernel of the `vector` module.
    fn vector(&mut self, name: &str) -> Result<Kernel> {
        self.programs.kernel("vector", name)
    }

    fn push(
        &mut self,
        role: &'static str,
        kernel: Kernel,
        grid: impl Into<hcq::Extent3>,
        threads: u32,
        args: Args,
    ) {
        self.launches.push(Launch::new(role, kernel, LaunchConfig::new(grid, threads), args));
    }

    fn embed(&mut self) -> Result<()> {
        let embedding = &self.m.embedding;
        let (format, cols) = (embedding.format, embedding.cols);
        let args =
            embedding.args().buffer(&self.m.state.words).buffer(&self.v.x).u32(embedding.rows).u32(cols);
        let kernel = self.programs.kernel(format.suffix(), &format!("embed_{}", format.suffix()))?;
        let config = LaunchConfig::new(token::embed_blocks(format, cols), token::THREADS);
        let launch = Launch::new("embedding", kernel, config, args).with_weights(embedding.row_bytes());
        self.launches.push(launch);
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
        self.products.push(ProductLaunch { launch: self.launches.len(), product, x, out, out_at });
        let kernel = self.programs.matvec(matrix.format, epilogue, shape)?;
        let config = LaunchConfig::new(shape.blocks(epilogue, rows), shape.threads());
        self.launches.push(Launch::new(role, kernel, config, args).with_weights(matrix.bytes()));
        Ok(())
    }

    /// Lets the last launch overlap the previous one.
    fn overlap_previous(&mut self) {
        if let Some(launch) = self.launches.last_mut() {
            launch.overlaps = true;
        }
    }

    fn rmsnorm(&mut self, role: &'static str, weight: &Buffer) -> Result<()> {
        let c = &self.m.config;
        let args = Args::new().buffer(&self.v.x).buffer(weight).buffer(&self.v.normed);
        let args = args.u32(fits(c.hidden)?).f32(c.rms_eps);
        let config = LaunchConfig::new(1, norm::THREADS);
        let launch = Launch::new(role, self.vector("rmsnorm")?, config, args);
        self.launches.push(launch.with_weights(4 * c.hidden as u64));
        Ok(())
    }

    fn layer(&mut self, layer: &LayerMemory) -> Result<()> {
        let (v, c) = (&self.v, &self.m.config);
        let [x, normed, qkv, attended, ff] = [&v.x, &v.normed, &v.qkv, &v.attended, &v.ff].map(Buffer::clone);
        self.rmsnorm("attention norm", &layer.attn_norm)?;
        let mut at = 0;
        for (i, matrix) in layer.qkv.iter().enumerate() {
            self.matvec("q k v", matrix, Epilogue::Store, &normed, &qkv, at)?;
            if i > 0 {
                self.overlap_previous();
            }
            at += matrix.rows as usize;
        }
        self.rope(layer)?;
        self.attend(layer)?;
        self.matvec("attention output", &layer.o, Epilogue::Add, &attended, &x, 0)?;

        self.rmsnorm("ff norm", &layer.ffn_norm)?;
        match &layer.gate_up[..] {
            [gate, up] => {
                let apart = self.m.device.alloc(8 * c.ff as u64)?;
                self.matvec("gate up", gate, Epilogue::Store, &normed, &apart, 0)?;
                self.matvec("gate up", up, Epilogue::Store, &normed, &apart, c.ff)?;
                self.overlap_previous();
                let args = Args::new().buffer(&apart).buffer_at(&apart, 4 * c.ff as u64);
                let args = args.buffer(&ff).u32(fits(c.ff)?);
                let kernel = self.vector("silu_mul")?;
                let blocks = fits(c.ff)?.div_ceil(norm::SILU_THREADS);
                self.push("gate up", kernel, blocks, norm::SILU_THREADS, args);
            }
            both => self.matvec("gate up", &both[0], Epilogue::Gate, &normed, &ff, 0)?,
        }
        self.matvec("down", &layer.down, Epilogue::Add, &ff, &x, 0)
    }

    fn rope(&mut self, layer: &LayerMemory) -> Result<()> {
        let (m, c) = (self.m, &self.m.config);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = Args::new().buffer(&self.v.qkv).buffer(&m.turns).buffer(&m.state.words);
        let args = args.buffer(&layer.keys).buffer(&layer.values).u32(fits(c.heads)?).u32(fits(c.kv_heads)?);
        let args = args.u32(fits(c.head_dim / 2)?).u32(m.cache.context);
        let (kernel, args) = match m.cache.scales_at {
            None => ("rope_cache", args),
            Some(at) => ("rope_cache_q8_0", args.u32(at)),
        };
        let kernel = self.vector(kernel)?;
        self.push("rotate, cache", kernel, pairs.div_ceil(rope::THREADS), rope::THREADS, args);
        Ok(())
    }

    fn attend(&mut self, layer: &LayerMemory) -> Result<()> {
        let (m, c, v) = (self.m, &self.m.config, &self.v);
        let (heads, head_dim) = (fits(c.heads)?, fits(c.head_dim)?);
        let dims = kernel_dims(head_dim);
        let split = self.shares > 1 || m.cache.kv == CacheType::Q8_0;
        let name = match m.cache.kv {
            CacheType::F16 => format!("attention_{}{dims}", if split { "split_" } else { "" }),
            CacheType::Q8_0 => format!("attention_q8_0_{dims}"),
        };
        let out = if split { &v.partials } else { &v.attended };
        let args = Args::new().buffer(&v.qkv).buffer(&layer.keys).buffer(&layer.values);
        let args = args.buffer(&m.state.words).buffer(out).u32(m.cache.context).u32(head_dim);
        let args = args.u32(fits(c.heads / c.kv_heads)?).f32(1.0 / (c.head_dim as f32).sqrt());
        let args = m.cache.scales_at.into_iter().fold(args, Args::u32);
        let combine = Args::new().buffer(&v.partials).buffer(&v.attended).u32(head_dim).u32(self.shares);
        let config = LaunchConfig::new((heads, self.shares), attention::THREADS);
        let launch = Launch::new("attention", self.programs.kernel("attention", &name)?, config, args);
        self.launches.push(launch.with_cache(m.cache.bytes_per_position()));
        if split {
            let kernel = self.programs.kernel("attention", "attention_combine")?;
            self.push("attention", kernel, heads, attention::THREADS, combine);
        }
        Ok(())
    }

    fn argmax(&mut self) -> Result<()> {
        let (m, blocks) = (self.m, token::ARGMAX_BLOCKS);
        let candidates = || m.device.alloc(4 * u64::from(blocks));
        let (values, indices) = (candidates()?, candidates()?);
        let args = Args::new().buffer(&m.state.logits).buffer(&values).buffer(&indices);
        let kernel = self.vector("argmax")?;
        self.push("argmax", kernel, blocks, token::THREADS, args.u32(fits(m.config.vocab)?));
        let args = Args::new().buffer(&values).buffer(&indices).buffer(&m.state.words).u32(blocks);
        let kernel = self.vector("argmax_finish")?;
        self.push("argmax", kernel, 1, 32, args);
        Ok(())
    }
}
