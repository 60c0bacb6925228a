//! Lowers a model to one launch per operation.

use hcq::{Args, Buffer, Kernel, LaunchConfig};

use crate::cache::CacheType;
use crate::engine::launch::Launch;
use crate::engine::layers::{
    Experts, HeadNormMemory, LayerMemory, NormMemory, Product, Source, Step, Target,
};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::error::{Error, Result};
use crate::kernels::choices::{self, Choices};
use crate::kernels::heads::{even_shares, kernel_dims};
use crate::kernels::layers::{self, cap, experts, gelu, heads, layer_norm, post_norm, rows};
use crate::kernels::limits::{NO_WINDOW, infix};
use crate::kernels::operations::matvec::Epilogue;
use crate::kernels::operations::{attention, norm, rope, token};
use crate::model::architecture::Activation;
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
    /// The shape and type of the product.
    pub product: choices::Product,
    /// The vector.
    pub x: Buffer,
    /// The results start `out_at` bytes into this buffer.
    pub out: Buffer,
    /// See [`ProductLaunch::out`].
    pub out_at: u64,
}

/// Least positions of a split-K part of attention: fewer are not worth another launch.
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
    /// Scratch of attention in split-K parts.
    partials: Buffer,
}

/// Collects the launches of a model.
struct Planner<'a> {
    m: &'a DeviceModel,
    programs: &'a mut Programs,
    choices: &'a Choices,
    v: Vectors,
    /// Split-K parts of the positions in attention.
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
        p.norm(&m.output_norm)?;
        let normed = p.v.normed.clone();
        p.matvec("output", &m.output, Epilogue::Store, &normed, &m.state.logits, 0)?;
        p.cap_logits()?;
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

/// The arguments of `prepare_heads` for `qkv` in `shares` parts that are `pitch` tokens apart, and the blocks
/// of a token; `None` if there is nothing to prepare.
pub fn heads_args(
    c: &Config,
    p: &Product,
    norms: Option<&HeadNormMemory>,
    qkv: &Buffer,
    (shares, pitch): (u32, u32),
) -> Result<Option<(Args, u32)>> {
    if p.bias.is_none() && norms.is_none() {
        return Ok(None);
    }
    let biased = p.bias.as_ref().map_or(0, |_| heads::BIASED);
    let normed = norms.map_or(0, |_| heads::NORMED);
    let (q_dim, kv_dim) = (fits(c.q_dim())?, fits(c.kv_dim())?);
    let [q_len, k_len] = norms.map_or([q_dim, kv_dim], |norms| norms.lengths);
    // Inputs that a flag leaves out are not read.
    let [q_norm, k_norm] = norms.map_or([qkv, qkv], |norms| norms.weights.each_ref());
    let args = Args::new().buffer(qkv).buffer(p.bias.as_ref().unwrap_or(qkv)).buffer(q_norm).buffer(k_norm);
    let args = args.u32(q_dim).u32(kv_dim).u32(q_len).u32(k_len).u32(shares).u32(pitch);
    Ok(Some((args.f32(c.norm_eps).u32(biased | normed), q_dim / q_len + kv_dim / k_len + 1)))
}

/// The arguments of `post_norm` for a product in `shares` parts that are `pitch` tokens apart, times
/// `factor`.
pub fn post_norm_args(
    c: &Config,
    norm: &NormMemory,
    (sums, x): (&Buffer, &Buffer),
    (shares, pitch, factor): (u32, u32, f32),
) -> Result<Args> {
    let args = Args::new().buffer(sums).buffer(&norm.weight).buffer(x).u32(fits(c.hidden)?).f32(c.norm_eps);
    Ok(args.u32(shares).u32(pitch).f32(factor))
}

/// The window and the cap of the scores of a layer, as kernels with limits take them; `None` without either.
pub fn limits(c: &Config, layer: &LayerMemory) -> Option<(u32, f32)> {
    let limited = layer.window.is_some() || c.score_cap.is_some();
    limited.then(|| (layer.window.unwrap_or(NO_WINDOW), c.score_cap.unwrap_or(0.0)))
}

/// The number of split-K parts into which attention splits the positions.
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
        let blocks = cols.div_ceil(rows::THREADS);
        if let Some(factor) = self.m.config.embedding_scale() {
            let args = Args::new().buffer(&self.v.x).u32(cols).f32(factor);
            let kernel = self.of_layers("scale")?;
            self.push("embedding", kernel, blocks, rows::THREADS, args);
        }
        let Some(positions) = &self.m.positions else { return Ok(()) };
        let args = Args::new().buffer(&self.v.x).buffer(positions).buffer(&self.m.state.words);
        let args = args.u32(cols).u32(fits(self.m.config.context)?);
        let kernel = self.of_layers("add_position")?;
        self.push("embedding", kernel, blocks, rows::THREADS, args);
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
        let product = choices::Product { format: matrix.format, epilogue, rows, cols: matrix.cols };
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

    /// A kernel that only some architectures need.
    fn of_layers(&mut self, name: &str) -> Result<Kernel> {
        self.programs.kernel(layers::NAME, name)
    }

    fn norm(&mut self, norm: &NormMemory) -> Result<()> {
        let c = &self.m.config;
        let args = Args::new().buffer(&self.v.x).buffer(&norm.weight);
        let args = norm.bias.iter().fold(args, Args::buffer).buffer(&self.v.normed);
        let args = args.u32(fits(c.hidden)?).f32(c.norm_eps);
        let (kernel, threads, vectors) = match norm.bias {
            None => (self.vector("rmsnorm")?, norm::THREADS, 1),
            Some(_) => (self.of_layers("layer_norm")?, layer_norm::THREADS, 2),
        };
        let launch = Launch::new(norm.role, kernel, LaunchConfig::new(1, threads), args);
        self.launches.push(launch.with_weights(4 * vectors * c.hidden as u64));
        Ok(())
    }

    fn layer(&mut self, layer: &LayerMemory) -> Result<()> {
        for step in &layer.steps {
            match step {
                Step::Product(product) => self.product(product)?,
                Step::Experts(experts) => self.experts(experts)?,
                Step::Attend => {
                    self.rope(layer)?;
                    self.attend(layer)?;
                }
            }
        }
        Ok(())
    }

    fn product(&mut self, p: &Product) -> Result<()> {
        if let Source::Residual(norm) = &p.from {
            self.norm(norm)?;
        }
        let from = match &p.from {
            Source::Residual(_) => self.v.normed.clone(),
            Source::Attended => self.v.attended.clone(),
            Source::Activated => self.v.ff.clone(),
        };
        match &p.to {
            Target::Heads(norms) => {
                let qkv = self.v.qkv.clone();
                self.stacked(p, &from, &qkv)?;
                self.prepare_heads(p, norms.as_ref())
            }
            Target::Activated(activation) => self.activated(p, *activation, &from),
            Target::Residual(None) => {
                let x = self.v.x.clone();
                self.matvec(p.role, &p.matrices[0], Epilogue::Add, &from, &x, 0)?;
                p.bias.iter().try_for_each(|bias| self.add_bias(p.role, bias))
            }
            Target::Residual(Some(norm)) => {
                let apart = self.m.device.alloc(4 * self.m.config.hidden as u64)?;
                self.matvec(p.role, &p.matrices[0], Epilogue::Store, &from, &apart, 0)?;
                let args = post_norm_args(&self.m.config, norm, (&apart, &self.v.x), (1, 1, 1.0))?;
                let kernel = self.of_layers("post_norm")?;
                self.push(norm.role, kernel, 1, post_norm::THREADS, args);
                Ok(())
            }
        }
    }

    /// The products of stacked matrices with `from`, one after the other in `out`.
    fn stacked(&mut self, p: &Product, from: &Buffer, out: &Buffer) -> Result<()> {
        let mut at = 0;
        for (i, matrix) in p.matrices.iter().enumerate() {
            self.matvec(p.role, matrix, Epilogue::Store, from, out, at)?;
            if i > 0 {
                self.overlap_previous();
            }
            at += matrix.rows as usize;
        }
        Ok(())
    }

    fn activated(&mut self, p: &Product, activation: Activation, from: &Buffer) -> Result<()> {
        let (c, ff) = (&self.m.config, self.v.ff.clone());
        let (kernel, threads, gated) = match (activation, &p.matrices[..]) {
            (Activation::SiluGate, [both]) => return self.matvec(p.role, both, Epilogue::Gate, from, &ff, 0),
            (Activation::SiluGate, _) => (self.vector("silu_mul")?, norm::SILU_THREADS, true),
            (Activation::GeluGate, _) => (self.of_layers("gelu_gate")?, gelu::THREADS, true),
            (Activation::Gelu, _) => (self.of_layers("gelu")?, gelu::THREADS, false),
        };
        let apart = self.m.device.alloc(if gated { 8 } else { 4 } * c.ff as u64)?;
        self.stacked(p, from, &apart)?;
        let args = Args::new().buffer(&apart);
        let args = if gated { args.buffer_at(&apart, 4 * c.ff as u64) } else { args };
        let args = p.bias.iter().fold(args, Args::buffer);
        let len = fits(c.ff)?;
        self.push(p.role, kernel, len.div_ceil(threads), threads, args.buffer(&ff).u32(len));
        Ok(())
    }

    /// Adds biases to queries, keys and values, and normalizes queries and keys, where the model does.
    fn prepare_heads(&mut self, p: &Product, norms: Option<&HeadNormMemory>) -> Result<()> {
        let qkv = self.v.qkv.clone();
        let Some((args, pieces)) = heads_args(&self.m.config, p, norms, &qkv, (1, 1))? else { return Ok(()) };
        let kernel = self.of_layers("prepare_heads")?;
        self.push(p.role, kernel, pieces, heads::THREADS, args);
        Ok(())
    }

    /// A mixture of experts: the choice stays on the device, so the products read it there.
    fn experts(&mut self, e: &Experts) -> Result<()> {
        let c = &self.m.config;
        let (ff, hidden, used) = (fits(c.ff)?, fits(c.hidden)?, fits(c.experts_used)?);
        let words = |count: usize| self.m.device.alloc(4 * count as u64);
        let (scores, chosen, shares) = (words(c.experts)?, words(c.experts_used)?, words(c.experts_used)?);
        let vectors = |len: usize| words(len * c.experts_used);
        let [gate, up, activated] = [vectors(c.ff)?, vectors(c.ff)?, vectors(c.ff)?];
        let parts = vectors(c.hidden)?;
        chosen.write(0, &vec![0; chosen.len() as usize])?;
        self.norm(&e.norm)?;
        let (normed, x) = (self.v.normed.clone(), self.v.x.clone());
        self.matvec("route", &e.router, Epilogue::Store, &normed, &scores, 0)?;
        let args = Args::new().buffer(&scores).buffer(&chosen).buffer(&shares);
        let kernel = self.of_layers("route")?;
        self.push("route", kernel, 1, 32, args.u32(fits(c.experts)?).u32(used));
        let product = |p: &mut Self, role, matrix: &Matrix, x: &Buffer, out: &Buffer, (rows, pitch)| {
            let args =
                matrix.args().buffer(x).buffer(&chosen).buffer(out).u32(rows).u32(matrix.cols).u32(pitch);
            let kernel = p.programs.kernel(experts::PRODUCTS, &experts::product_name(matrix.format))?;
            let config = LaunchConfig::new((rows.div_ceil(experts::THREADS / 32), used), experts::THREADS);
            let read = matrix.row_bytes() * u64::from(rows) * u64::from(used);
            p.launches.push(Launch::new(role, kernel, config, args).with_weights(read));
            Ok::<(), Error>(())
        };
        product(self, "gate up", &e.gate, &normed, &gate, (ff, 0))?;
        product(self, "gate up", &e.up, &normed, &up, (ff, 0))?;
        self.overlap_previous();
        let args = Args::new().buffer(&gate).buffer(&up).buffer(&shares).buffer(&activated).u32(ff);
        let kernel = self.of_layers("expert_silu")?;
        self.push("gate up", kernel, (ff.div_ceil(experts::THREADS), used), experts::THREADS, args);
        product(self, "down", &e.down, &activated, &parts, (hidden, ff))?;
        let args = Args::new().buffer(&parts).buffer(&x).u32(hidden).u32(used);
        let kernel = self.of_layers("expert_sum")?;
        self.push("down", kernel, hidden.div_ceil(experts::THREADS), experts::THREADS, args);
        Ok(())
    }

    fn add_bias(&mut self, role: &'static str, bias: &Buffer) -> Result<()> {
        let hidden = fits(self.m.config.hidden)?;
        let args = Args::new().buffer(&self.v.x).buffer(bias).u32(hidden);
        let kernel = self.of_layers("add_bias")?;
        self.push(role, kernel, hidden.div_ceil(rows::THREADS), rows::THREADS, args);
        Ok(())
    }

    fn rope(&mut self, layer: &LayerMemory) -> Result<()> {
        let (m, c) = (self.m, &self.m.config);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = Args::new().buffer(&self.v.qkv).buffer(&layer.turns).buffer(&m.state.words);
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
        let limits = limits(c, layer);
        let infix = infix(limits.is_some());
        let name = match m.cache.kv {
            CacheType::F16 => format!("attention_{infix}{}{dims}", if split { "split_" } else { "" }),
            CacheType::Q8_0 => format!("attention_{infix}q8_0_{dims}"),
        };
        let out = if split { &v.partials } else { &v.attended };
        let args = Args::new().buffer(&v.qkv).buffer(&layer.keys).buffer(&layer.values);
        let args = args.buffer(&m.state.words).buffer(out).u32(m.cache.context).u32(head_dim);
        let args = args.u32(fits(c.heads / c.kv_heads)?).f32(c.score_scale());
        let args = m.cache.scales_at.into_iter().fold(args, Args::u32);
        let args = limits.into_iter().fold(args, |args, (window, cap)| args.u32(window).f32(cap));
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

    /// Caps the logits, where the model does.
    fn cap_logits(&mut self) -> Result<()> {
        let (m, Some(cap)) = (self.m, self.m.config.logit_cap) else { return Ok(()) };
        let vocab = fits(m.config.vocab)?;
        let args = Args::new().buffer(&m.state.logits).u32(vocab).f32(cap);
        let kernel = self.of_layers("cap")?;
        self.push("output", kernel, vocab.div_ceil(cap::THREADS), cap::THREADS, args);
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
