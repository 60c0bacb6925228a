//! Lowers a model to one launch per operation.

use hcq::{Args, Buffer, Kernel, LaunchConfig};
use ptxgen::Params;

use crate::cache::CacheType;
use crate::engine::launch::Launch;
use crate::engine::layers::{Experts, LayerMemory, NormMemory, Product, Source, Step, Target};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::per_token::{PerToken, limits};
use crate::engine::programs::Programs;
use crate::error::{Error, Result};
use crate::kernels::choices::{self, Choices};
use crate::kernels::heads::{even_shares, kernel_dims};
use crate::kernels::layers::{self, experts, gelu, layer_norm};
use crate::kernels::limits::infix;
use crate::kernels::operations::matvec::Epilogue;
use crate::kernels::operations::{attention, matvec, norm, quantized_attention, rope, token};
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
        let cap = p.per_token().cap(p.programs, &m.state.logits)?;
        p.launches.extend(cap);
        p.argmax()?;
        let kernel = p.vector("advance")?;
        let args = token::Advance { state: &m.state.words }.args();
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

/// The number of split-K parts into which attention splits the positions.
fn shares(c: &Config, context: usize, sm_count: usize) -> Result<u32> {
    // Four small blocks per SM.
    let least = (4 * sm_count / c.heads).clamp(1, 64);
    let most = even_shares(fits(c.heads)?, fits(sm_count)?, fits(least)?);
    Ok(fits(context.div_ceil(POSITIONS_PER_SHARE))?.clamp(1, most))
}

impl<'a> Planner<'a> {
    fn per_token(&self) -> PerToken<'a> {
        PerToken { model: self.m, tokens: 1 }
    }

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
        let (format, rows, cols) = (embedding.format, embedding.rows, embedding.cols);
        let (state, x) = (&self.m.state.words, &self.v.x);
        let args = token::Embed { weights: embedding.buffer(), state, out: x, rows, cols }.args();
        let kernel = self.programs.kernel(format.suffix(), &format!("embed_{}", format.suffix()))?;
        let config = LaunchConfig::new(token::embed_blocks(format, cols), token::THREADS);
        let launch = Launch::new("embedding", kernel, config, args).with_weights(embedding.row_bytes());
        self.launches.push(launch);
        let (per_token, m) = (self.per_token(), self.m);
        self.launches.extend(per_token.scale(self.programs, &self.v.x)?);
        self.launches.extend(per_token.positions(self.programs, &self.v.x, &m.state.words)?);
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
        let cols = matrix.cols;
        let args =
            matvec::Matvec { weights: matrix.at_row(0), x: x.at(0), out: out.at(out_at), rows, cols }.args();
        let product = choices::Product { format: matrix.format, epilogue, rows, cols };
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
        let (len, eps) = (fits(c.hidden)?, c.norm_eps);
        let (x, weight, out) = (&self.v.x, &norm.weight, &self.v.normed);
        let (args, kernel, threads, vectors) = match &norm.bias {
            None => {
                let args = norm::RmsNorm { x, weight, out, len, eps }.args();
                (args, self.vector("rmsnorm")?, norm::THREADS, 1)
            }
            Some(bias) => {
                let args = layer_norm::LayerNorm { x, weight, bias, out, len, eps }.args();
                (args, self.of_layers("layer_norm")?, layer_norm::THREADS, 2)
            }
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
                let per_token = self.per_token();
                self.launches.extend(per_token.heads(self.programs, p, norms.as_ref(), (&qkv, 1))?);
                Ok(())
            }
            Target::Activated(activation) => self.activated(p, *activation, &from),
            Target::Residual(None) => {
                let x = self.v.x.clone();
                self.matvec(p.role, &p.matrices[0], Epilogue::Add, &from, &x, 0)?;
                if let Some(bias) = &p.bias {
                    let launch = self.per_token().add_bias(self.programs, p.role, &x, bias)?;
                    self.launches.push(launch);
                }
                Ok(())
            }
            Target::Residual(Some(norm)) => {
                let apart = self.m.device.alloc(4 * self.m.config.hidden as u64)?;
                self.matvec(p.role, &p.matrices[0], Epilogue::Store, &from, &apart, 0)?;
                let per_token = self.per_token();
                let launch = per_token.post_norm(self.programs, norm, (&self.v.x, &apart), (1, 1.0))?;
                self.launches.push(launch);
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
        if let (Activation::SiluGate, [both]) = (activation, &p.matrices[..]) {
            return self.matvec(p.role, both, Epilogue::Gate, from, &ff, 0);
        }
        let (half, len) = (4 * c.ff as u64, fits(c.ff)?);
        let apart = self.m.device.alloc(if activation.is_gated() { 2 * half } else { half })?;
        self.stacked(p, from, &apart)?;
        let (gate, up, out) = (apart.at(0), apart.at(half), ff.at(0));
        let (kernel, threads, args) = match activation {
            Activation::SiluGate => {
                let args = norm::SiluMul { gate, up, out, len }.args();
                (self.vector("silu_mul")?, norm::SILU_THREADS, args)
            }
            Activation::GeluGate => {
                (self.of_layers("gelu_gate")?, gelu::THREADS, gelu::GeluGate { gate, up, out, len }.args())
            }
            Activation::Gelu => {
                let args = gelu::Gelu { up: &apart, bias: p.gelu_bias()?, out: &ff, len }.args();
                (self.of_layers("gelu")?, gelu::THREADS, args)
            }
        };
        self.push(p.role, kernel, len.div_ceil(threads), threads, args);
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
        let experts = fits(c.experts)?;
        let args = experts::Route { scores: &scores, chosen: &chosen, shares: &shares, experts, used }.args();
        let kernel = self.of_layers("route")?;
        self.push("route", kernel, 1, 32, args);
        let product = |p: &mut Self, role, matrix: &Matrix, x: &Buffer, out: &Buffer, (rows, pitch)| {
            let (weights, chosen, cols) = (matrix.buffer(), &chosen, matrix.cols);
            let args = experts::ExpertProduct { weights, x, chosen, out, rows, cols, pitch }.args();
            let kernel = p.programs.kernel(experts::PRODUCTS, &experts::product_name(matrix.format))?;
            let config = LaunchConfig::new((rows.div_ceil(experts::THREADS / 32), used), experts::THREADS);
            let read = matrix.row_bytes() * u64::from(rows) * u64::from(used);
            p.launches.push(Launch::new(role, kernel, config, args).with_weights(read));
            Ok::<(), Error>(())
        };
        product(self, "gate up", &e.gate, &normed, &gate, (ff, 0))?;
        product(self, "gate up", &e.up, &normed, &up, (ff, 0))?;
        self.overlap_previous();
        let (gate, up, shares, out) = (&gate, &up, &shares, &activated);
        let args = experts::ExpertSilu { gate, up, shares, out, len: ff }.args();
        let kernel = self.of_layers("expert_silu")?;
        self.push("gate up", kernel, (ff.div_ceil(experts::THREADS), used), experts::THREADS, args);
        product(self, "down", &e.down, &activated, &parts, (hidden, ff))?;
        let args = experts::ExpertSum { parts: &parts, x: &x, len: hidden, used }.args();
        let kernel = self.of_layers("expert_sum")?;
        self.push("down", kernel, hidden.div_ceil(experts::THREADS), experts::THREADS, args);
        Ok(())
    }

    fn rope(&mut self, layer: &LayerMemory) -> Result<()> {
        let (m, c) = (self.m, &self.m.config);
        let pairs = fits((c.heads + 2 * c.kv_heads) * c.head_dim / 2)?;
        let args = rope::RopeCache {
            qkv: &self.v.qkv,
            turns: &layer.turns,
            state: &m.state.words,
            keys: &layer.keys,
            values: &layer.values,
            heads: fits(c.heads)?,
            kv_heads: fits(c.kv_heads)?,
            half_dim: fits(c.head_dim / 2)?,
            context: m.cache.context,
            scales_at: m.cache.scales_at,
        }
        .args();
        let kernel = self.vector(&format!("rope_cache{}", m.cache.kv.suffix()))?;
        self.push("rotate, cache", kernel, pairs.div_ceil(rope::THREADS), rope::THREADS, args);
        Ok(())
    }

    fn attend(&mut self, layer: &LayerMemory) -> Result<()> {
        let (m, c, v) = (self.m, &self.m.config, &self.v);
        let (heads, head_dim) = (fits(c.heads)?, fits(c.head_dim)?);
        let dims = kernel_dims(head_dim);
        let split = self.shares > 1 || m.cache.kv == CacheType::Q8_0;
        let (window, cap) = limits(c, layer);
        let infix = infix(window.is_some());
        let name = match m.cache.kv {
            CacheType::F16 => format!("attention_{infix}{}{dims}", if split { "split_" } else { "" }),
            CacheType::Q8_0 => format!("attention_{infix}q8_0_{dims}"),
        };
        let out = if split { &v.partials } else { &v.attended };
        let (q, keys, values, state) = (&v.qkv, &layer.keys, &layer.values, &m.state.words);
        let (context, group, scale) = (m.cache.context, fits(c.heads / c.kv_heads)?, c.score_scale());
        let args = match m.cache.scales_at {
            None => attention::Attention {
                q,
                keys,
                values,
                state,
                out,
                context,
                head_dim,
                group,
                scale,
                window,
                cap,
            }
            .args(),
            Some(scales_at) => quantized_attention::QuantizedAttention {
                q,
                keys,
                values,
                state,
                out,
                context,
                head_dim,
                group,
                scale,
                scales_at,
                window,
                cap,
            }
            .args(),
        };
        let (partials, out, shares) = (&v.partials, &v.attended, self.shares);
        let combine = attention::Combine { partials, out, head_dim, shares }.args();
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
        let (best_values, best_indices, count) = (&values, &indices, fits(m.config.vocab)?);
        let args = token::Argmax { logits: &m.state.logits, best_values, best_indices, count }.args();
        let kernel = self.vector("argmax")?;
        self.push("argmax", kernel, blocks, token::THREADS, args);
        let state = &m.state.words;
        let args = token::ArgmaxFinish { best_values, best_indices, state, candidates: blocks }.args();
        let kernel = self.vector("argmax_finish")?;
        self.push("argmax", kernel, 1, 32, args);
        Ok(())
    }
}
