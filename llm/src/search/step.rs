//! The shape of the step kernel: whole steps are timed.

use hcq::Graph;

use crate::engine::launch::record;
use crate::engine::plan::StepPlan;
use crate::engine::step;
use crate::error::Result;
use crate::kernels::recipe::Recipe;
use crate::kernels::step::shape::Shape;
use crate::search::bench::{Bench, each, fastest};
use crate::search::meter::Meter;
use crate::search::outcome::{Finding, Part};
use crate::tuning::entry::{Tuned, TunedStep};

/// Tokens that are timed together on a GPU.
const TOKENS: usize = 32;
/// Tokens whose logits are compared.
const COMPARED: usize = 2;

/// Candidates, the most promising first: warps, blocks per SM, depth, tiles.
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
    /// Buffers that the graph names by address.
    #[expect(dead_code, reason = "held, not used")]
    plan: StepPlan,
}

/// Searches the shape.
pub fn search(bench: &mut Bench<'_>) -> Result<()> {
    let Some(variant) = step::variant(&bench.model) else {
        bench.outcome.left_out.push("step: the step of quantized models has one shape".into());
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
        kernel: format!("step_{}", variant.name),
        usual: Shape::default().to_string(),
        usual_ns,
        chosen: tuned.shape.to_string(),
        ns: tuned.ns,
        tried: times.iter().skip(1).flatten().count(),
    });
    Ok(())
}

fn candidate(bench: &mut Bench<'_>, shape: Shape) -> Result<Option<Candidate>> {
    let plan = step::plan(&bench.model, &mut bench.programs, shape, false)?;
    let Some(plan) = plan else { return Ok(None) };
    let graph = record(&bench.model.device, [&plan.whole])?;
    Ok(Some(Candidate { shape, graph, plan }))
}

/// Tokens that are timed together.
fn tokens(bench: &Bench<'_>) -> usize {
    match bench.meter {
        Meter::Clock => TOKENS.min(bench.model.cache.context as usize),
        Meter::Count(_) => 1,
    }
}

/// The token at `position`: any of the vocabulary.
fn token(bench: &Bench<'_>, position: usize) -> u32 {
    (position * 7 + 1) as u32 % bench.model.config.vocab as u32
}

/// Records the tokens that are timed, from an empty context.
fn replay(bench: &mut Bench<'_>, graph: &Graph) -> Result<()> {
    bench.model.state.set_position(0)?;
    bench.model.state.set_tokens(0, &[token(bench, 0)])?;
    for _ in 0..tokens(bench) {
        bench.queue.replay(graph)?;
    }
    Ok(())
}

/// The logits after each of the first tokens.
fn logits(bench: &mut Bench<'_>, graph: &Graph) -> Result<Vec<f32>> {
    let mut all = Vec::new();
    bench.model.state.set_position(0)?;
    for i in 0..COMPARED.min(bench.model.cache.context as usize) {
        // The previous step has chosen another token.
        bench.model.state.set_tokens(i, &[token(bench, i)])?;
        bench.queue.replay(graph)?.wait(bench.model.patience)?;
        all.extend(bench.model.state.logits()?);
    }
    Ok(all)
}
