//! The step kernel's list of phases for a model, and its launches: the whole step in one, or one per phase.

use hcq::{Args, Buffer, Device, LaunchConfig};

use super::cache_bytes_per_layer;
use super::matrix::{Matrix, fits};
use super::plan::{LayerMemory, ModelMemory, Stage};
use super::programs::Programs;
use crate::error::Result;
use crate::kernels::step::{
    Attention, FIRST_FLAG_AT, FLAGS_PER_STEP, Finish, Grid, Heads, Input, MARKS, MAX_BLOCKS, Results,
    SYNC_WORDS, Segment, Shape, Task, Variant,
};
use crate::kernels::{CacheType, Format};
use crate::model::Config;

/// Launches of the step kernel.
#[derive(Debug)]
pub struct StepPlan {
    /// The whole step as one launch.
    pub whole: Stage,
    /// A step without the output matrix.
    pub fill: Stage,
    /// One launch per phase.
    pub phases: Vec<Stage>,
    /// Counters that must be zero between steps.
    pub sync: Buffer,
    /// Clock readings of the first block, if they are wanted.
    pub times: Buffer,
    /// Whether they are.
    pub timed: bool,
    /// What the phases name by address.
    #[expect(dead_code, reason = "held, not used")]
    kept: Vec<Buffer>,
}

/// A phase: its record and what it reads.
struct Phase {
    role: &'static str,
    task: Task,
    weight_bytes: u64,
    cache_bytes: u64,
}

/// What the phases work on, as addresses.
struct Vectors {
    x: u64,
    q: u64,
    attended: u64,
    ff: u64,
    partials: u64,
    counters: u64,
}

impl StepPlan {
    /// Lays out the step of the model in `memory`. `None` if there is no step kernel for its mix of types, or if it does not fit
    /// the device.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(
        device: &Device,
        programs: &mut Programs,
        c: &Config,
        (context, kv): (u32, CacheType),
        memory: &ModelMemory,
        (state, logits): (&Buffer, &Buffer),
        (shape, timed): (Shape, bool),
    ) -> Result<Option<Self>> {
        let blocks = device.info().sm_count * shape.blocks_per_sm;
        let grid = Grid { shape, blocks };
        let short = 3 * c.layers + 2 < FLAGS_PER_STEP as usize;
        let Some(variant) = variant(memory).filter(|_| short && blocks <= MAX_BLOCKS) else {
            return Ok(None);
        };
        let heads = Heads {
            turns: memory.turns.va().raw(),
            keys: 0,
            values: 0,
            heads: fits(c.heads)?,
            kv_heads: fits(c.kv_heads)?,
            head_dim: fits(c.head_dim)?,
            context,
            kv,
        };
        let mut kept = vec![memory.turns.clone(), memory.output_norm.clone(), state.clone(), logits.clone()];
        let mut floats = |count: usize| -> Result<u64> {
            let buffer = device.alloc(4 * count as u64)?;
            buffer.write(0, &vec![0; 4 * count])?;
            kept.push(buffer.clone());
            Ok(buffer.va().raw())
        };
        let v = Vectors {
            // With a flag beside each value.
            x: floats(2 * c.hidden)?,
            q: floats(match kv {
                CacheType::F16 => c.q_dim(),
                CacheType::Q8_0 => c.q_dim() + 2 * c.kv_dim(),
            })?,
            attended: floats(2 * c.q_dim())?,
            ff: floats(c.ff)?,
            partials: floats(Attention::partial_words(&heads, blocks) as usize)?,
            counters: floats(Attention::units(&heads) as usize)?,
        };
        let mut phases = vec![Phase {
            role: "embedding",
            task: Task::embed(&segment(&memory.embedding, 0, false), v.x).flagging(1),
            weight_bytes: memory.embedding.row_bytes(),
            cache_bytes: 0,
        }];
        let mut flag = 1;
        for layer in &memory.layers {
            phases.extend(layer_phases(c, layer, heads, &v, &mut flag, grid));
            kept.extend([&layer.attn_norm, &layer.ffn_norm, &layer.keys, &layer.values].map(Buffer::clone));
        }
        kept.extend(memory.matrices().map(|m| m.buffer().clone()));
        let head = phases.len();
        let norm = (memory.output_norm.va().raw(), c.rms_eps);
        let input = Input { x: v.x, flag: Some(flag), norm: Some(norm) };
        let output = segment(&memory.output, 0, false);
        phases.push(Phase {
            role: "output",
            task: Task::matvec(input, &[output], Results::Logits, logits.va().raw(), grid)
                .ending(Finish::Choose),
            weight_bytes: memory.output.bytes() + 4 * c.hidden as u64,
            cache_bytes: 0,
        });

        let results = phases.iter().map(|p| p.task.shared().0).max().unwrap_or(0).next_multiple_of(16);
        let inputs = phases.iter().map(|p| p.task.shared().1).max().unwrap_or(0);
        let kernel = programs.step(&variant, shape)?;
        let shared = u64::from(results + inputs + kernel.static_shared());
        let resident = kernel.blocks_per_sm(shape.threads(), results + inputs) >= shape.blocks_per_sm;
        if !resident || shared > device.info().max_shared_per_block.count() {
            return Ok(None);
        }
        let config = LaunchConfig::new(blocks, shape.threads())
            .with_dynamic_shared(results + inputs)
            .with_blocks_per_sm(shape.blocks_per_sm);
        let upload = |tasks: &mut dyn Iterator<Item = Task>| -> Result<Buffer> {
            let bytes: Vec<u8> = tasks.flat_map(|t| t.words().to_vec()).flat_map(u32::to_le_bytes).collect();
            let buffer = device.alloc(bytes.len() as u64)?;
            buffer.write(0, &bytes)?;
            Ok(buffer)
        };
        let all = upload(&mut phases.iter().map(|p| p.task.clone()))?;
        let without_head = upload(&mut phases[..head].iter().enumerate().map(|(i, p)| {
            p.task.clone().ending(if i + 1 == head { Finish::Advance } else { Finish::Nothing })
        }))?;
        let sync = device.alloc(4 * u64::from(SYNC_WORDS))?;
        sync.write(0, &vec![0; 4 * SYNC_WORDS as usize])?;
        sync.write(4 * u64::from(FIRST_FLAG_AT), &FLAGS_PER_STEP.to_le_bytes())?;
        let times = device.alloc(4 * u64::from(MARKS) * phases.len() as u64)?;
        let stage = |role, tasks: &Buffer, first: usize, last: usize, timed: bool| -> Result<Stage> {
            let args = Args::new().buffer(tasks).buffer(state).buffer(&sync);
            let args = if timed { args.buffer(&times) } else { args.u64(0) };
            Ok(Stage {
                role,
                kernel: kernel.clone(),
                config,
                args: args.u32(fits(first)?).u32(fits(last)?).u32(results),
                weight_bytes: phases[first..last].iter().map(|p| p.weight_bytes).sum(),
                cache_bytes: phases[first..last].iter().map(|p| p.cache_bytes).sum(),
                overlaps: false,
            })
        };
        let whole = stage("step", &all, 0, phases.len(), timed)?;
        let fill = stage("fill", &without_head, 0, head, false)?;
        let parts = phases.iter().enumerate().map(|(i, p)| stage(p.role, &all, i, i + 1, false));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok(Some(Self { whole, fill, phases: parts, sync, times, timed, kept }))
    }
}

/// The step kernel for a model's mix of types, if there is one.
pub fn variant(memory: &ModelMemory) -> Option<Variant> {
    let mut formats: Vec<Format> = memory.matrices().map(|m| m.format).collect();
    formats.sort_by_key(|f| *f as u32);
    formats.dedup();
    let mixed = memory.layers.iter().any(|l| l.gate_up.len() > 1);
    Variant::for_formats(&formats).filter(|_| !mixed)
}

/// The five phases of a layer.
fn layer_phases(
    c: &Config,
    layer: &LayerMemory,
    heads: Heads,
    v: &Vectors,
    flag: &mut u32,
    grid: Grid,
) -> [Phase; 5] {
    // The flags of the residual stream before the layer, of what attention gives, of the stream between and behind.
    let [before, attended, between, behind] = [0, 1, 2, 3].map(|i| *flag + i);
    *flag = behind;
    let heads = Heads { keys: layer.keys.va().raw(), values: layer.values.va().raw(), ..heads };
    let normed = |flag, weight: &Buffer| Input {
        x: v.x,
        flag: Some(flag),
        norm: Some((weight.va().raw(), c.rms_eps)),
    };
    let bytes = |matrices: &[Matrix]| matrices.iter().map(Matrix::bytes).sum::<u64>();
    let norm_bytes = 4 * c.hidden as u64;
    let mut row = 0;
    let qkv: Vec<Segment> = layer
        .qkv
        .iter()
        .map(|matrix| {
            let segment = segment(matrix, row, false);
            row += matrix.rows;
            segment
        })
        .collect();
    let phase = |role, task, weight_bytes, cache_bytes| Phase { role, task, weight_bytes, cache_bytes };
    let attention = Attention { q: v.q, out: v.attended, partials: v.partials, counters: v.counters, heads };
    let matvec =
        |input, segments: &[Segment], results, out| Task::matvec(input, segments, results, out, grid);
    let o = segment(&layer.o, 0, false);
    let gate_up: Vec<Segment> = layer.gate_up.iter().map(|m| segment(m, 0, true)).collect();
    let down = segment(&layer.down, 0, false);
    let attended_input = Input { x: v.attended, flag: Some(attended), norm: None };
    let gated = Input { x: v.ff, flag: None, norm: None };
    [
        phase(
            "q k v",
            matvec(normed(before, &layer.attn_norm), &qkv, Results::Heads, v.q).with_heads(&heads),
            bytes(&layer.qkv) + norm_bytes,
            0,
        ),
        phase(
            "attention",
            Task::attention(&attention, grid).flagging(attended),
            0,
            cache_bytes_per_layer(c, heads.kv),
        ),
        phase(
            "attention output",
            matvec(attended_input, &[o], Results::Add, v.x).flagging(between),
            layer.o.bytes(),
            0,
        ),
        phase(
            "gate up",
            matvec(normed(between, &layer.ffn_norm), &gate_up, Results::Gate, v.ff),
            bytes(&layer.gate_up) + norm_bytes,
            0,
        ),
        phase("down", matvec(gated, &[down], Results::Add, v.x).flagging(behind), layer.down.bytes(), 0),
    ]
}

fn segment(matrix: &Matrix, first_row: u32, gate: bool) -> Segment {
    Segment {
        format: matrix.format,
        planes: matrix.addresses(),
        rows: matrix.rows,
        cols: matrix.cols,
        gate,
        first_row,
    }
}
