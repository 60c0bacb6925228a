//! Lowers a model to the persistent step: its list of phases, and its launches.

use hcq::{Buffer, LaunchConfig};
use ptxgen::Params;

use crate::engine::launch::Launch;
use crate::engine::layers::{HeadNormMemory, LayerMemory, NormMemory, Product, Source, Step, Target};
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::DeviceModel;
use crate::engine::plan::StepPlan;
use crate::engine::programs::Programs;
use crate::engine::state::State;
use crate::error::Result;
use crate::kernels::format::TILE_COLS;
use crate::kernels::stream::kernel::{NAME, Step as Parameters};
use crate::kernels::stream::layout::{CONSUMERS, GROUP_SLOTS, MAX_SLOTS, Needs, THREADS};
use crate::kernels::stream::sync::{
    FIRST_PHASE_AT, MARKS, MAX_BLOCKS, PACKET_BYTES, PACKET_VALUES, PHASES_PER_STEP, SYNC_WORDS,
};
use crate::kernels::stream::task::{
    Attention, Division, HeadNorms, Heads, Input, Packets, Results, Segment, Task,
};
use crate::kernels::stream::variant::{Style, Variant};
use crate::model::architecture::{Activation, Architecture, Biases, Norm};
use crate::model::config::Config;

/// Slots that keep memory busy, whatever their size.
const BUSY_SLOTS: u32 = 8;
/// Bytes of a slot of numbers beside quantized types: smaller ones take the producer too long.
const NUMBERS_SLOT: u32 = 8192;

/// Slots without which a consumer waits for ever: it holds two tiles of a quantized type, or one slot.
fn least_slots(quantized: bool) -> u32 {
    if quantized { 2 * GROUP_SLOTS } else { GROUP_SLOTS }
}

/// The ring: bytes of a slot, slots.
struct Ring {
    slot: u32,
    slots: u32,
}

impl Ring {
    /// The ring in `bytes` bytes for slots of at least `least`, for matrices of quantized types, of others,
    /// or of both. Numbers stream in larger slots while there are enough of them.
    fn of(bytes: u32, least: u32, quantized: bool, numbers: bool) -> Self {
        let of = |slot: u32| Self { slot, slots: (bytes / slot).min(MAX_SLOTS) / GROUP_SLOTS * GROUP_SLOTS };
        let larger = match (quantized, numbers) {
            (false, _) => vec![4 * least, 2 * least],
            (true, true) => vec![least.max(NUMBERS_SLOT)],
            (true, false) => vec![],
        };
        larger.into_iter().map(of).find(|ring| ring.slots >= BUSY_SLOTS).unwrap_or_else(|| of(least))
    }
}

/// A phase: its record and the bytes that it reads.
struct Phase {
    role: &'static str,
    task: Task,
    weight_bytes: u64,
    cache_bytes: u64,
}

/// Addresses of the vectors that a layer's phases exchange.
#[derive(Clone, Copy, Default)]
struct Vectors {
    qkv: u64,
    attended: u64,
    /// The residual stream after attention.
    between: u64,
    gated: u64,
    /// The residual stream after the layer.
    after: u64,
}

/// Collects the phases of a model.
struct Planner<'a> {
    m: &'a DeviceModel,
    state: &'a State,
    division: Division,
    phases: Vec<Phase>,
    /// Of layers with an even number and with an odd one.
    vectors: [Vectors; 2],
    partials: u64,
    counters: u64,
    heads: Heads,
    style: Style,
    kept: Vec<Buffer>,
}

/// The style of an architecture's layers.
pub fn style(a: &Architecture) -> Style {
    let plain = a.norm == Norm::Layer && a.activation == Activation::Gelu;
    match plain && a.biases == Biases::All && a.learned_positions {
        true => Style::Plain,
        false => Style::Gated,
    }
}

/// The features of a model's layers in `context` positions that the kernel does not compute; `None` if it
/// computes all.
pub fn lacks(c: &Config, context: usize) -> Option<&'static str> {
    let a = c.architecture;
    let long = (c.padded_head() > LONGEST_HEAD, "heads of more than 128 values");
    if style(a) == Style::Plain {
        let all = [(c.experts > 0, "mixtures of experts"), long];
        return all.into_iter().find_map(|(needed, what)| needed.then_some(what));
    }
    [
        (a.scaled_embedding, "scaled embeddings"),
        (a.post_norms, "norms of results"),
        ((0..c.layers).any(|layer| c.window_of(layer, context).is_some()), "windows of positions"),
        (c.score_cap.is_some(), "capped scores"),
        (c.logit_cap.is_some(), "capped logits"),
        (a.norm == Norm::Layer, "layer norms"),
        (a.learned_positions, "learned positions"),
        (a.activation == Activation::Gelu, "feed-forward blocks without a gate"),
        (a.activation == Activation::GeluGate, "gates by GELU"),
        (a.biases == Biases::All, "biases of all projections"),
        (c.output_biases, "biases of attention's results"),
        (c.experts > 0, "mixtures of experts"),
        long,
    ]
    .into_iter()
    .find_map(|(needed, what)| needed.then_some(what))
}

/// The kernel for the layers and the types of a model.
fn variant(m: &DeviceModel) -> Option<&'static Variant> {
    let formats: Vec<_> = m.matrices().map(|m| m.format).collect();
    Variant::of(style(m.config.architecture), &formats)
}

/// The longest head that the kernel attends with.
const LONGEST_HEAD: usize = 128;

/// Whether the kernel takes a model: it computes its layers, a consumer has a single column of an input behind
/// a layer norm, there is code for its types, gate and up share no tile, and phases have numbers enough.
pub fn takes(m: &DeviceModel) -> bool {
    let phases = 5 * m.config.layers + 2;
    let widest = (CONSUMERS * TILE_COLS) as usize;
    let narrow = style(m.config.architecture) == Style::Gated || m.config.hidden <= widest;
    let divided = |p: &Product| match (&p.to, &p.matrices[..]) {
        (Target::Activated(activation), [both]) if activation.is_gated() => {
            (both.rows / 2).is_multiple_of(both.format.rows_together())
        }
        _ => true,
    };
    lacks(&m.config, m.context).is_none()
        && variant(m).is_some()
        && narrow
        && m.layers.iter().flat_map(LayerMemory::products).all(divided)
        && phases < PHASES_PER_STEP as usize - 1
}

/// Lowers the model `m` to steps of the sequence in `state`, whose pages are listed in `pages`. `None` if the kernel
/// does not take it or does not fit the device.
///
/// # Errors
/// The device's errors.
pub fn plan(
    m: &DeviceModel,
    (state, pages): (&State, &Buffer),
    programs: &mut Programs,
    timed: bool,
) -> Result<Option<StepPlan>> {
    let info = m.device.info();
    let blocks = info.sm_count;
    if !takes(m) || blocks > MAX_BLOCKS {
        return Ok(None);
    }
    let Planner { phases, kept, .. } = Planner::new(m, state, blocks)?.lowered()?;
    let needs = phases.iter().fold(Needs::default(), |most, p| most.max(p.task.needs()));
    let Some(variant) = variant(m) else { return Ok(None) };
    let kernel = programs.kernel(variant.module, NAME)?;
    let most = fits(usize::try_from(info.max_shared_per_block).unwrap_or(usize::MAX))?;
    let free = most.saturating_sub(kernel.static_shared() + needs.fixed());
    let quantized = m.matrices().any(|m| m.format.is_quantized());
    let numbers = m.matrices().any(|m| !m.format.is_quantized());
    let Ring { slot, slots } = Ring::of(free, needs.slot, quantized, numbers);
    let shared = slots * slot + needs.fixed();
    if slots < least_slots(quantized) || kernel.blocks_per_sm(THREADS, shared) == 0 {
        return Ok(None);
    }
    let config = LaunchConfig::new(blocks, THREADS).with_dynamic_shared(shared).with_blocks_per_sm(1);
    let upload = |tasks: &mut dyn Iterator<Item = Task>| -> Result<Buffer> {
        let words: Vec<u32> = tasks.flat_map(|t| t.words().to_vec()).collect();
        let buffer = m.device.alloc(4 * words.len() as u64)?;
        buffer.write_slice(0, &words)?;
        Ok(buffer)
    };
    // The last phase is the output matrix.
    let head = phases.len() - 1;
    let all = upload(&mut phases.iter().map(|p| p.task.clone()))?;
    let resident = match state.is_apart() {
        true => {
            let moved = |(i, p): (usize, &Phase)| match i == head {
                true => p.task.clone().with_logits(state.resident.va().raw()),
                false => p.task.clone(),
            };
            Some(upload(&mut phases.iter().enumerate().map(moved))?)
        }
        false => None,
    };
    let sync = m.device.alloc(4 * u64::from(SYNC_WORDS))?;
    sync.write(0, &vec![0; 4 * SYNC_WORDS as usize])?;
    sync.write_slice(4 * u64::from(FIRST_PHASE_AT), &[PHASES_PER_STEP])?;
    let times = m.device.alloc(4 * u64::from(MARKS) * phases.len() as u64)?;
    let inputs = slots * slot;
    let ragged = m.matrices().any(|m| !m.cols.is_multiple_of(CONSUMERS * TILE_COLS));
    let launch = |role, tasks: &Buffer, range: std::ops::Range<usize>, timed: bool| -> Result<Launch> {
        let held = inputs + needs.inputs;
        let args = Parameters {
            tasks,
            state: &state.words,
            sync: &sync,
            pages,
            times: timed.then_some(&times),
            first: fits(range.start)?,
            last: fits(range.end)?,
            slots,
            slot_bytes: slot,
            ragged: ragged.into(),
            inputs,
            held,
            scratch: held + needs.held,
        }
        .args();
        let phases = &phases[range];
        Ok(Launch::new(role, kernel.clone(), config, args)
            .with_weights(phases.iter().map(|p| p.weight_bytes).sum())
            .with_cache(phases.iter().map(|p| p.cache_bytes).sum()))
    };
    let whole = launch("step", &all, 0..phases.len(), timed)?;
    let resident = resident.map(|tasks| launch("step", &tasks, 0..phases.len(), false)).transpose()?;
    let parts = phases.iter().enumerate().map(|(i, p)| launch(p.role, &all, i..i + 1, false));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(Some(StepPlan { whole, resident, phases: parts, times, timed, sync, kept }))
}

impl<'a> Planner<'a> {
    fn new(m: &'a DeviceModel, state: &'a State, blocks: u32) -> Result<Self> {
        let c = &m.config;
        let heads = Heads {
            turns: 0,
            keys: 0,
            values: 0,
            heads: fits(c.heads)?,
            kv_heads: fits(c.kv_heads)?,
            head_dim: fits(c.padded_head())?,
            head_values: fits(c.head_dim)?,
            context: m.cache.positions,
            kv: m.cache.kv,
            score_factor: c.score_factor,
            bias: 0,
            norms: None,
        };
        let State { words, logits, resident, .. } = state;
        let mut kept = Vec::from([&m.output_norm.weight, words, logits, resident].map(Buffer::clone));
        kept.extend(m.matrices().map(|m| m.buffer().clone()));
        kept.extend(m.positions.iter().chain(&m.output_norm.bias).cloned());
        for layer in &m.layers {
            kept.extend([&layer.turns, &layer.keys, &layer.values].map(Buffer::clone));
            kept.extend(layer.norms().flat_map(|norm| norm.bias.iter().chain([&norm.weight])).cloned());
            kept.extend(layer.products().flat_map(|p| p.bias.clone()));
            kept.extend(layer.products().flat_map(|p| head_norms(p).map(|n| n.weights.clone())).flatten());
        }
        let mut zeros = |bytes: usize| -> Result<u64> {
            let buffer = m.device.alloc(bytes as u64)?;
            buffer.write(0, &vec![0; bytes])?;
            kept.push(buffer.clone());
            Ok(buffer.va().raw())
        };
        let mut vectors = [Vectors::default(); 2];
        for v in &mut vectors {
            let mut packets = |values: usize| zeros(values / PACKET_VALUES as usize * PACKET_BYTES as usize);
            *v = Vectors {
                qkv: packets(c.padded_q_dim() + 2 * c.padded_kv_dim())?,
                attended: packets(c.q_dim())?,
                between: packets(c.hidden)?,
                gated: packets(c.ff)?,
                after: packets(c.hidden)?,
            };
        }
        let partials = zeros(4 * Attention::partial_words(&heads, blocks) as usize)?;
        let counters = zeros(4 * Attention::units(&heads) as usize)?;
        let division = Division::new(blocks);
        let style = style(c.architecture);
        Ok(Self { m, state, division, phases: Vec::new(), vectors, partials, counters, heads, style, kept })
    }

    /// All phases.
    fn lowered(mut self) -> Result<Self> {
        let m = self.m;
        // As if a layer before the first had written it.
        let out = self.packets(self.vectors[1].after);
        let embedding = Task::embed(&whole(&m.embedding), out);
        let (embedding, bytes) = match &m.positions {
            Some(positions) => (embedding.with_positions(positions.va().raw()), 4 * m.config.hidden as u64),
            None => (embedding, 0),
        };
        self.push("embedding", embedding, m.embedding.row_bytes() + bytes, 0);
        let mut x = out;
        for (i, layer) in m.layers.iter().enumerate() {
            x = self.layer(layer, self.vectors[i % 2], x);
        }
        let input = Input { x, norm: Some((m.output_norm.weight.va().raw(), m.config.norm_eps)) };
        let results = Results::Logits(self.state.logits.va().raw());
        let task = Task::matvec(input, &[whole(&m.output)], results, &mut self.division);
        let (task, norm_bytes) = self.normed(task, &m.output_norm);
        self.push("output", task.last(), m.output.bytes() + norm_bytes, 0);
        Ok(self)
    }

    fn push(&mut self, role: &'static str, task: Task, weight_bytes: u64, cache_bytes: u64) {
        self.phases.push(Phase { role, task, weight_bytes, cache_bytes });
    }

    /// A phase with `norm` before it, and the bytes of the norm.
    fn normed(&self, task: Task, norm: &NormMemory) -> (Task, u64) {
        let bytes = 4 * self.m.config.hidden as u64;
        match &norm.bias {
            Some(bias) => (task.with_layer_norm(bias.va().raw()), 2 * bytes),
            None => (task, bytes),
        }
    }

    /// The packets that the next phase writes to `address`. Phases are numbered from 1.
    fn packets(&self, address: u64) -> Packets {
        Packets { address, phase: self.phases.len() as u32 + 1 }
    }

    /// The phases of a layer whose input is `x`. Returns its result.
    fn layer(&mut self, layer: &LayerMemory, v: Vectors, mut x: Packets) -> Packets {
        let (m, mut streams) = (self.m, [v.between, v.after].into_iter());
        let [mut qkv, mut attended, mut gated] = [Packets::default(); 3];
        let [turns, keys, values] =
            [&layer.turns, &layer.keys, &layer.values].map(|buffer| buffer.va().raw());
        let mut heads = Heads { turns, keys, values, ..self.heads };
        for step in &layer.steps {
            let Step::Product(p) = step else {
                // Experts are not taken, so this is attention.
                attended = self.packets(v.attended);
                let (partials, counters) = (self.partials, self.counters);
                let attention = Attention { qkv, out: attended, partials, counters, heads };
                let task = Task::attention(&attention, self.division.blocks());
                self.push("attention", task, 0, m.cache.bytes_per_position());
                continue;
            };
            let input = match &p.from {
                Source::Residual(norm) => {
                    Input { x, norm: Some((norm.weight.va().raw(), m.config.norm_eps)) }
                }
                Source::Attended => Input { x: attended, norm: None },
                Source::Activated => Input { x: gated, norm: None },
            };
            let (segments, results) = match &p.to {
                Target::Heads(norms) => {
                    qkv = self.packets(v.qkv);
                    heads.bias = p.bias.as_ref().map_or(0, |bias| bias.va().raw());
                    heads.norms = norms.as_ref().map(|norms| HeadNorms {
                        weights: norms.weights.each_ref().map(|weight| weight.va().raw()),
                        eps: m.config.norm_eps,
                    });
                    (all(&p.matrices), Results::Heads(qkv, heads))
                }
                Target::Activated(activation) => {
                    gated = self.packets(v.gated);
                    // Gates by GELU are not taken, so a gate is one by SiLU.
                    match (activation.is_gated(), &p.matrices[..]) {
                        (true, [both]) => (halves(both), Results::Gate(gated)),
                        (true, matrices) => (all(matrices), Results::Gate(gated)),
                        (false, matrices) => (all(matrices), Results::Gelu(gated)),
                    }
                }
                Target::Residual(_) => {
                    let out = self.packets(streams.next().unwrap_or_default());
                    let residual = std::mem::replace(&mut x, out);
                    (all(&p.matrices), Results::Add(residual, out))
                }
            };
            let task = Task::matvec(input, &segments, results, &mut self.division);
            let task = match &p.bias {
                Some(bias) if self.style == Style::Plain => task.with_biases(bias.va().raw()),
                _ => task,
            };
            let (task, norm_bytes) = match &p.from {
                Source::Residual(norm) => self.normed(task, norm),
                Source::Attended | Source::Activated => (task, 0),
            };
            self.push(p.role, task, p.bytes() + norm_bytes, 0);
        }
        x
    }
}

/// The norms of queries and keys of a product that has some.
fn head_norms(p: &Product) -> Option<&HeadNormMemory> {
    if let Target::Heads(norms) = &p.to { norms.as_ref() } else { None }
}

/// All rows of some matrices.
fn all(matrices: &[Matrix]) -> Vec<Segment> {
    matrices.iter().map(whole).collect()
}

/// All rows of a matrix.
fn whole(m: &Matrix) -> Segment {
    Segment { format: m.format, tiles: m.buffer().va().raw(), rows: m.rows, cols: m.cols }
}

/// The upper and the lower half of a matrix.
fn halves(m: &Matrix) -> Vec<Segment> {
    let rows = m.rows / 2;
    let half = |first| Segment { tiles: m.buffer().va().raw() + m.offset_of(first), rows, ..whole(m) };
    vec![half(0), half(rows)]
}
