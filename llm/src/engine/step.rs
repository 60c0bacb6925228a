//! Lowers a model to the step kernel: its list of phases, and its launches.

use hcq::{Args, Buffer, LaunchConfig};

use crate::cache::CacheType;
use crate::engine::launch::Launch;
use crate::engine::matrix::{Matrix, fits};
use crate::engine::memory::{DeviceModel, LayerMemory};
use crate::engine::plan::{Exchange, StepPlan};
use crate::engine::programs::Programs;
use crate::error::Result;
use crate::kernels::format::Format;
use crate::kernels::step::shape::{Grid, Shape};
use crate::kernels::step::sync::{FIRST_FLAG_AT, FLAGS_PER_STEP, MARKS, MAX_BLOCKS, SYNC_WORDS};
use crate::kernels::step::task::{Attention, Finish, Heads, Input, Results, Segment, Task};
use crate::kernels::step::variant::Variant;

/// A phase: its record and the bytes that it reads.
struct Phase {
    role: &'static str,
    task: Task,
    weight_bytes: u64,
    cache_bytes: u64,
}

/// Addresses of the vectors that phases work on.
struct Vectors {
    x: u64,
    q: u64,
    attended: u64,
    ff: u64,
    partials: u64,
    counters: u64,
}

/// Lowers the model `m`. `None` if there is no step kernel for its types, or if the kernel does not fit the
/// device.
pub fn plan(m: &DeviceModel, programs: &mut Programs, shape: Shape, timed: bool) -> Result<Option<StepPlan>> {
    let blocks = m.device.info().sm_count * shape.blocks_per_sm;
    let grid = Grid { shape, blocks };
    let short = 3 * m.config.layers + 2 < FLAGS_PER_STEP as usize;
    let Some(variant) = variant(m).filter(|_| short && blocks <= MAX_BLOCKS) else {
        return Ok(None);
    };
    let mut kept = Vec::new();
    let phases = phases(m, grid, &mut kept)?;

    let results = phases.iter().map(|p| p.task.shared().0).max().unwrap_or(0).next_multiple_of(16);
    let inputs = phases.iter().map(|p| p.task.shared().1).max().unwrap_or(0);
    let kernel = programs.step(&variant, shape)?;
    let shared = u64::from(results + inputs + kernel.static_shared());
    let resident = kernel.blocks_per_sm(shape.threads(), results + inputs) >= shape.blocks_per_sm;
    if !resident || shared > m.device.info().max_shared_per_block.count() {
        return Ok(None);
    }
    let config = LaunchConfig::new(blocks, shape.threads())
        .with_dynamic_shared(results + inputs)
        .with_blocks_per_sm(shape.blocks_per_sm);
    let upload = |tasks: &mut dyn Iterator<Item = Task>| -> Result<Buffer> {
        let bytes: Vec<u8> = tasks.flat_map(|t| t.words().to_vec()).flat_map(u32::to_le_bytes).collect();
        let buffer = m.device.alloc(bytes.len() as u64)?;
        buffer.write(0, &bytes)?;
        Ok(buffer)
    };
    // The last phase is the output matrix.
    let head = phases.len() - 1;
    let all = upload(&mut phases.iter().map(|p| p.task.clone()))?;
    let resident = match m.state.is_apart() {
        true => {
            let moved = |(i, p): (usize, &Phase)| match i == head {
                true => p.task.clone().with_logits(m.state.resident.va().raw()),
                false => p.task.clone(),
            };
            Some(upload(&mut phases.iter().enumerate().map(moved))?)
        }
        false => None,
    };
    let without_head =
        upload(&mut phases[..head].iter().enumerate().map(|(i, p)| {
            p.task.clone().ending(if i + 1 == head { Finish::Advance } else { Finish::Nothing })
        }))?;
    let sync = m.device.alloc(4 * u64::from(SYNC_WORDS))?;
    sync.write(0, &vec![0; 4 * SYNC_WORDS as usize])?;
    sync.write(4 * u64::from(FIRST_FLAG_AT), &FLAGS_PER_STEP.to_le_bytes())?;
    let times = m.device.alloc(4 * u64::from(MARKS) * phases.len() as u64)?;
    let launch = |role, tasks: &Buffer, range: std::ops::Range<usize>, timed: bool| -> Result<Launch> {
        let args = Args::new().buffer(tasks).buffer(&m.state.words).buffer(&sync);
        let args = if timed { args.buffer(&times) } else { args.u64(0) };
        let args = args.u32(fits(range.start)?).u32(fits(range.end)?).u32(results);
        let phases = &phases[range];
        Ok(Launch::new(role, kernel.clone(), config, args)
            .with_weights(phases.iter().map(|p| p.weight_bytes).sum())
            .with_cache(phases.iter().map(|p| p.cache_bytes).sum()))
    };
    let whole = launch("step", &all, 0..phases.len(), timed)?;
    let resident = resident.map(|tasks| launch("step", &tasks, 0..phases.len(), false)).transpose()?;
    let fill = launch("fill", &without_head, 0..head, false)?;
    let parts = phases.iter().enumerate().map(|(i, p)| launch(p.role, &all, i..i + 1, false));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let exchange = Exchange::Counter(sync);
    Ok(Some(StepPlan { whole, resident, fill, phases: parts, times, timed, exchange, kept }))
}

/// The step kernel for a model's mix of types, if there is one.
pub fn variant(m: &DeviceModel) -> Option<Variant> {
    let mut formats: Vec<Format> = m.matrices().map(|m| m.format).collect();
    formats.sort_by_key(|f| *f as u32);
    formats.dedup();
    let mixed = m.layers.iter().any(|l| l.gate_up.len() > 1);
    Variant::for_formats(&formats).filter(|_| !mixed)
}

/// The phases of a step. Adds the buffers that they name to `kept`.
fn phases(m: &DeviceModel, grid: Grid, kept: &mut Vec<Buffer>) -> Result<Vec<Phase>> {
    let c = &m.config;
    let heads = Heads {
        turns: m.turns.va().raw(),
        keys: 0,
        values: 0,
        heads: fits(c.heads)?,
        kv_heads: fits(c.kv_heads)?,
        head_dim: fits(c.head_dim)?,
        context: m.cache.context,
        kv: m.cache.kv,
    };
    kept.extend([&m.turns, &m.output_norm, &m.state.words].map(Buffer::clone));
    kept.extend([&m.state.logits, &m.state.resident].map(Buffer::clone));
    let mut floats = |count: usize| -> Result<u64> {
        let buffer = m.device.alloc(4 * count as u64)?;
        buffer.write(0, &vec![0; 4 * count])?;
        kept.push(buffer.clone());
        Ok(buffer.va().raw())
    };
    let v = Vectors {
        // With a flag after each value.
        x: floats(2 * c.hidden)?,
        q: floats(match m.cache.kv {
            CacheType::F16 => c.q_dim(),
            CacheType::Q8_0 => c.q_dim() + 2 * c.kv_dim(),
        })?,
        attended: floats(2 * c.q_dim())?,
        ff: floats(c.ff)?,
        partials: floats(Attention::partial_words(&heads, grid.blocks) as usize)?,
        counters: floats(Attention::units(&heads) as usize)?,
    };
    let mut phases = vec![Phase {
        role: "embedding",
        task: Task::embed(&segment(&m.embedding, 0, false), v.x).flagging(1),
        weight_bytes: m.embedding.row_bytes(),
        cache_bytes: 0,
    }];
    let mut flag = 1;
    for layer in &m.layers {
        phases.extend(layer_phases(m, layer, heads, &v, &mut flag, grid));
        kept.extend([&layer.attn_norm, &layer.ffn_norm, &layer.keys, &layer.values].map(Buffer::clone));
    }
    kept.extend(m.matrices().map(|m| m.buffer().clone()));
    let norm = (m.output_norm.va().raw(), c.rms_eps);
    let input = Input { x: v.x, flag: Some(flag), norm: Some(norm) };
    let output = segment(&m.output, 0, false);
    phases.push(Phase {
        role: "output",
        task: Task::matvec(input, &[output], Results::Logits, m.state.logits.va().raw(), grid)
            .ending(Finish::Choose),
        weight_bytes: m.output.bytes() + 4 * c.hidden as u64,
        cache_bytes: 0,
    });
    Ok(phases)
}

/// The five phases of a layer.
fn layer_phases(
    m: &DeviceModel,
    layer: &LayerMemory,
    heads: Heads,
    v: &Vectors,
    flag: &mut u32,
    grid: Grid,
) -> [Phase; 5] {
    // Flags of the residual stream before the layer, of the result of attention, and of the stream between
    // and after the blocks.
    let [before, attended, between, after] = [0, 1, 2, 3].map(|i| *flag + i);
    *flag = after;
    let c = &m.config;
    let heads = Heads { keys: layer.keys.va().raw(), values: layer.values.va().raw(), ..heads };
    let normed = |flag, weight: &Buffer| Input {
        x: v.x,
        flag: Some(flag),
        norm: Some((weight.va().raw(), c.rms_eps)),
    };
    let bytes = |matrices: &[Matrix]| matrices.iter().map(Matrix::bytes).sum::<u64>();
    let norm_bytes = 4 * c.hidden as u64;
    let mut row = 0;
    let stacked = |matrix: &Matrix| {
        let segment = segment(matrix, row, false);
        row += matrix.rows;
        segment
    };
    let qkv: Vec<Segment> = layer.qkv.iter().map(stacked).collect();
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
            m.cache.bytes_per_position(),
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
        phase("down", matvec(gated, &[down], Results::Add, v.x).flagging(after), layer.down.bytes(), 0),
    ]
}

fn segment(matrix: &Matrix, first_row: u32, gate: bool) -> Segment {
    Segment {
        format: matrix.format,
        weights: matrix.buffer().va().raw(),
        rows: matrix.rows,
        cols: matrix.cols,
        gate,
        first_row,
    }
}
