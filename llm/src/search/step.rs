//! The shape of the step kernel: whole tokens are timed.

use hcq::Graph;

use super::{Bench, Finding, Meter, Part, Result, each, fastest, fits, read};
use crate::engine::plan::record;
use crate::engine::step::{self, StepPlan};
use crate::kernels::step::Shape;
use crate::kernels::{CacheType, Recipe, TOKENS_AT};
use crate::tuning::{Tuned, TunedStep};

/// Tokens that are timed together on a GPU.
const TOKENS: usize = 32;
/// Tokens whose logits are compared.
const COMPARED: usize = 2;

/// Candidates, the more promising ones first.
const CANDIDATES: [[u32; 4]; 11] = [
    [8, 2, 2, 2],
    [8, 1, 2, 3],
    [16, 1, 1, 3],
    [8, 2, 1, 3],
    [16, 1, 1, 2],
    [8, 1, 2, 4],
    [8, 1, 4, 2],
    [16, 1, 1, 4],
    [8, 2, 1, 4],
    [4, 4, 2, 2],
    [8, 1, 2, 2],
];

/// A candidate that works.
struct Candidate {
    shape: Shape,
    graph: Graph,
    /// What the graph works with.
    #[expect(dead_code, reason = "held, not used")]
    plan: StepPlan,
}

pub fn search(bench: &mut Bench<'_>) -> Result<()> {
    let Some(variant) = step::variant(&bench.memory) else {
        bench.outcome.left_out.push("step: no step kernel takes this mix of types".into());
        return Ok(());
    };
    let Some(usual) = candidate(bench, Shape::default())? else {
        bench.outcome.left_out.push("step: the step kernel does not fit this model or device".into());
        return Ok(());
    };
    let wanted = logits(bench, &usual.graph)?;
    let shape = |[warps, blocks_per_sm, depth, tiles]: [u32; 4]| Shape { warps, blocks_per_sm, depth, tiles };
    let shapes: Vec<Shape> = CANDIDATES.map(shape).into_iter().take(bench.limits.candidates).collect();
    bench.compile(shapes.iter().map(|s| Recipe::Step(variant, *s)));

    let mut all = vec![usual];
    for (i, &shape) in shapes.iter().enumerate() {
        let recipe = Recipe::Step(variant, shape);
        if !bench.has(&recipe) {
            continue;
        }
        if bench.is_over() {
            break;
        }
        let name = recipe.name();
        let warps = |shape: Shape| shape.warps * shape.blocks_per_sm;
        if !bench.is_judged(&name, warps(shape), warps(Shape::default())) {
            continue;
        }
        bench.progress(&name, i, shapes.len());
        let Some(new) = candidate(bench, shape)? else {
            bench.reject(&name, format!("{} blocks do not fit an SM", shape.blocks_per_sm));
            continue;
        };
        let found = logits(bench, &new.graph);
        let usual = &all[0].graph;
        if bench.accept(&name, &wanted, found, &mut |bench| logits(bench, usual))? {
            all.push(new);
        }
    }
    bench.warm_up(&mut |bench| replay(bench, &all[0].graph))?;
    let tokens = tokens(bench);
    let times = bench.times(all.len(), &mut |bench, i| replay(bench, &all[i].graph))?;
    let Some((best, ns)) = fastest(&times) else { return Ok(()) };
    let usual_ns = each(times[0].unwrap_or(ns), tokens);
    let tuned = Tuned { shape: all[best].shape, usual_ns, ns: each(ns, tokens) };
    bench.outcome.entry.step = Some(TunedStep { kernel: variant.name.to_owned(), tuned });
    bench.outcome.findings.push(Finding {
        part: Part::Step,
        what: format!("step_{}", variant.name),
        usual: Shape::default().to_string(),
        usual_ns,
        chosen: tuned.shape.to_string(),
        ns: tuned.ns,
        tried: times.iter().skip(1).flatten().count(),
    });
    Ok(())
}

fn candidate(bench: &mut Bench<'_>, shape: Shape) -> Result<Option<Candidate>> {
    let outputs = (&bench.plan.state, &bench.plan.logits);
    // The cache is a small part of what a step reads where shapes are searched.
    let (config, room) = (&bench.model.config, (fits(bench.context)?, CacheType::F16));
    let how = (shape, false);
    let plan = StepPlan::new(bench.device, &mut bench.programs, config, room, &bench.memory, outputs, how)?;
    let Some(plan) = plan else { return Ok(None) };
    let graph = record(bench.device, [&plan.whole].into_iter())?;
    Ok(Some(Candidate { shape, graph, plan }))
}

/// Tokens that are timed together.
fn tokens(bench: &Bench<'_>) -> usize {
    match bench.meter {
        Meter::Clock => TOKENS.min(bench.context),
        Meter::Count(_) => 1,
    }
}

/// The token at `position`: any that the model has.
fn token(bench: &Bench<'_>, position: usize) -> u32 {
    (position * 7 + 1) as u32 % bench.model.config.vocab as u32
}

/// Goes back to an empty context.
fn rewind(bench: &Bench<'_>, tokens: usize) -> Result<()> {
    let mut words = vec![0u32; TOKENS_AT as usize];
    words.extend((0..tokens).map(|i| token(bench, i)));
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok(bench.plan.state.write(0, &bytes)?)
}

/// Records the tokens that are timed.
fn replay(bench: &mut Bench<'_>, graph: &Graph) -> Result<()> {
    rewind(bench, 1)?;
    for _ in 0..tokens(bench) {
        bench.queue.replay(graph)?;
    }
    Ok(())
}

/// The logits after each of the first tokens.
fn logits(bench: &mut Bench<'_>, graph: &Graph) -> Result<Vec<f32>> {
    let mut all = Vec::new();
    rewind(bench, COMPARED)?;
    for i in 0..COMPARED.min(bench.context) {
        // The step before has chosen another token.
        let token = token(bench, i).to_le_bytes();
        bench.plan.state.write(4 * (u64::from(TOKENS_AT) + i as u64), &token)?;
        bench.queue.replay(graph)?.wait(bench.patience)?;
        all.extend(read(&bench.plan.logits, 0, bench.model.config.vocab)?);
    }
    Ok(all)
}
