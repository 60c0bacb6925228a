//! The shapes of matrix times vector, one product after the other: first rows and unrolling vary, then the
//! warps of a block with the best of these.

use std::collections::BTreeMap;

use hcq::{Kernel, LaunchConfig};

use crate::error::Result;
use crate::kernels::choices::Product;
use crate::kernels::operations::matvec::{Epilogue, Shape};
use crate::kernels::recipe::Recipe;
use crate::search::bench::{Bench, each, fastest, fill};
use crate::search::meter::Meter;
use crate::search::outcome::{Finding, Part};
use crate::tuning::entry::{Tuned, TunedMatvec};

/// Least launches that are timed together on a GPU.
const LAUNCHES: usize = 16;

/// A product of the model, and its best shape so far.
struct Search {
    product: Product,
    /// Its places in the list of products.
    places: Vec<usize>,
    best: Tuned<Shape>,
    tried: usize,
}

/// Searches the shapes.
pub fn search(bench: &mut Bench<'_>) -> Result<()> {
    let mut by_product: BTreeMap<Product, Vec<usize>> = BTreeMap::new();
    for (place, stage) in bench.operations.products.iter().enumerate() {
        by_product.entry(stage.product).or_default().push(place);
    }
    let best = Tuned { shape: Shape::default(), usual_ns: 0, ns: 0 };
    let search = |(product, places)| Search { product, places, best, tried: 0 };
    let mut all: Vec<Search> = by_product.into_iter().map(search).collect();
    for candidates in [by_rows as fn(Shape) -> Vec<Shape>, by_warps] {
        let recipe = |p: &Product, shape| Recipe::Matvec(p.format, p.epilogue, shape);
        let limit = bench.limits.candidates;
        let of = |s: &Search| -> Vec<Shape> {
            let valid = candidates(s.best.shape).into_iter().filter(|c| c.is_valid(s.product.epilogue));
            valid.filter(|c| *c != s.best.shape && *c != Shape::default()).take(limit).collect()
        };
        let shapes: Vec<Vec<Shape>> = all.iter().map(of).collect();
        let recipes: Vec<Recipe> = all
            .iter()
            .zip(&shapes)
            .flat_map(|(s, shapes)| shapes.iter().map(|shape| recipe(&s.product, *shape)))
            .collect();
        bench.compile(recipes.into_iter());
        if let Some(s) = all.first() {
            let (place, product) = (s.places[0], s.product);
            bench.warm_up(&mut |bench| launch(bench, place, &product, Shape::default()))?;
        }
        let total = shapes.iter().map(Vec::len).sum();
        let mut done = 0;
        for (s, shapes) in all.iter_mut().zip(&shapes) {
            let known = shapes.iter().copied().filter(|shape| bench.has(&recipe(&s.product, *shape)));
            let known: Vec<Shape> = known.collect();
            try_shapes(bench, s, &known, (done, total))?;
            done += shapes.len();
        }
    }
    for s in all.into_iter().filter(|s| s.best.ns > 0) {
        let Product { format, epilogue, rows, cols } = s.product;
        let ty = format.ty().name().to_owned();
        bench.outcome.findings.push(Finding {
            part: Part::Matvec,
            kernel: format!("{}_{} {rows} x {cols}", epilogue.prefix(), format.suffix()),
            usual: Shape::default().to_string(),
            usual_ns: s.best.usual_ns,
            chosen: s.best.shape.to_string(),
            ns: s.best.ns,
            tried: s.tried,
        });
        bench.outcome.entry.matvec.push(TunedMatvec { ty, epilogue, rows, cols, tuned: s.best });
    }
    Ok(())
}

/// Rows and unrolling.
fn by_rows(best: Shape) -> Vec<Shape> {
    let of = |rows| [1, 2, 4].map(|unroll| Shape { rows, unroll, ..best });
    [2, 1, 4].into_iter().flat_map(of).collect()
}

/// Warps.
fn by_warps(best: Shape) -> Vec<Shape> {
    [8, 2, 16, 1].map(|warps| Shape { warps, ..best }).into()
}

/// Times `shapes` beside the default and the best so far.
fn try_shapes(
    bench: &mut Bench<'_>,
    s: &mut Search,
    shapes: &[Shape],
    (done, total): (usize, usize),
) -> Result<()> {
    let (product, place) = (s.product, s.places[0]);
    // Earlier products may have written to this one's vector.
    fill(&bench.operations.products[place].x, product.cols as usize)?;
    let wanted = results(bench, place, &product, Shape::default())?;
    let mut good = vec![Shape::default()];
    if s.best.shape != Shape::default() {
        good.push(s.best.shape);
    }
    let known = good.len();
    for (i, &shape) in shapes.iter().enumerate() {
        if bench.is_over() {
            break;
        }
        let name = shape.kernel_name(product.format, product.epilogue);
        bench.progress(&format!("{name} {} x {}", product.rows, product.cols), done + i, total);
        let kernel = bench.programs.matvec(product.format, product.epilogue, shape)?;
        let warps = |kernel: &Kernel, shape: Shape| shape.warps * kernel.blocks_per_sm(shape.threads(), 0);
        if warps(&kernel, shape) == 0 {
            bench.reject(&name, format!("{} registers are too many", kernel.registers()));
            continue;
        }
        let usual = bench.programs.matvec(product.format, product.epilogue, Shape::default())?;
        if !bench.is_judged(&name, warps(&kernel, shape), warps(&usual, Shape::default())) {
            continue;
        }
        let found = results(bench, place, &product, shape);
        let mut usual = |bench: &mut Bench<'_>| results(bench, place, &product, Shape::default());
        if bench.accept(&name, &wanted, found, &mut usual)? {
            good.push(shape);
        }
    }
    if good.len() == known && s.best.ns > 0 {
        return Ok(());
    }
    let places: Vec<usize> = match bench.meter {
        Meter::Clock => {
            let turns = LAUNCHES.div_ceil(s.places.len());
            s.places.iter().copied().cycle().take(turns * s.places.len()).collect()
        }
        Meter::Count(_) => vec![place],
    };
    let times = bench.times(good.len(), &mut |bench, i| {
        places.iter().try_for_each(|place| launch(bench, *place, &product, good[i]))
    })?;
    let Some((best, ns)) = fastest(&times) else { return Ok(()) };
    let count = places.len();
    let usual_ns = each(times[0].unwrap_or(ns), count);
    s.best = Tuned { shape: good[best], usual_ns, ns: each(ns, count) };
    s.tried += times.iter().skip(known).flatten().count();
    Ok(())
}

/// Records the product at `place`, after all earlier launches.
fn launch(bench: &mut Bench<'_>, place: usize, product: &Product, shape: Shape) -> Result<()> {
    let kernel = bench.programs.matvec(product.format, product.epilogue, shape)?;
    let config = LaunchConfig::new(shape.blocks(product.epilogue, product.rows), shape.threads());
    let args = &bench.operations.launches[bench.operations.products[place].launch].args;
    bench.queue.barrier();
    // SAFETY: the buffers are sized for the product, for any shape of the kernel.
    unsafe { bench.queue.launch(&kernel, config, args) }?;
    Ok(())
}

/// The results of the product at `place`.
fn results(bench: &mut Bench<'_>, place: usize, product: &Product, shape: Shape) -> Result<Vec<f32>> {
    let rows = product.rows as usize;
    let stage = &bench.operations.products[place];
    if product.epilogue == Epilogue::Add {
        stage.out.write(stage.out_at, &vec![0; 4 * rows])?;
    }
    launch(bench, place, product, shape)?;
    bench.finish()?;
    let stage = &bench.operations.products[place];
    Ok(stage.out.read_vec(stage.out_at, rows)?)
}
