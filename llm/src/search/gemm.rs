//! The tiles of matrix times the tokens of a prompt, and the number of split-K parts of the row length.
//!
//! The kernel that reads the results is timed with the product, because it adds the split-K parts.

use half::f16;
use hcq::{Args, Buffer, Kernel, LaunchConfig};
use ptxgen::Params;

use crate::engine::launch::filled;
use crate::engine::prompt::chunks::refuses;
use crate::engine::prompt::products::{SIZES, longest_chunk, products};
use crate::error::Result;
use crate::kernels::choices::Choices;
use crate::kernels::prompt::gemm::{self, Gemm, MORE_TILES, Output};
use crate::kernels::prompt::tile::{ProductTile, TokensProduct};
use crate::kernels::prompt::vector::{NORM_THREADS, PromptNorm};
use crate::kernels::recipe::Recipe;
use crate::search::bench::{Bench, each, fastest, fill, numbers};
use crate::search::meter::Meter;
use crate::search::outcome::Finding;
use crate::tuning::entry::{Tuned, TunedGemm};

/// Launches that are timed together on a GPU.
const LAUNCHES: usize = 8;
/// Most split-K parts of a row length.
const MOST_SHARES: u64 = 8;

/// Buffers that are large enough for every product.
struct Room {
    x: Buffer,
    weights: Buffer,
    sums: Buffer,
    /// The residual stream, to which sums are added.
    stream: Buffer,
    norm: Buffer,
    normed: Buffer,
    /// The kernel that adds split-K parts.
    reader: Kernel,
}

/// Searches the tiles.
pub fn search(bench: &mut Bench<'_>) -> Result<()> {
    if refuses(&bench.model.config).is_some() {
        bench.outcome.left_out = Some("prompts of this model do not go through these kernels".into());
        return Ok(());
    }
    // The software device takes long for many tokens.
    let counts = matches!(bench.meter, Meter::Count(_));
    let sizes = SIZES.into_iter().filter(|s| !counts || *s == SIZES[0]);
    let longest = longest_chunk(&bench.model.config) as u32;
    let longest = longest.min(bench.model.cache.positions.next_power_of_two()).max(SIZES[0]);
    let fit = sizes.filter(|s| *s <= longest);
    let of = |tokens| products(&bench.model, tokens);
    let mut products: Vec<TokensProduct> = fit.flat_map(of).collect();
    products.sort();
    products.dedup();
    // Long prompts first.
    products.reverse();
    let room = Room::new(bench, &products)?;

    let limit = bench.limits.candidates;
    let others: Vec<ProductTile> = MORE_TILES.into_iter().take(limit).map(ProductTile::Warps).collect();
    let outputs = Output::ALL;
    let recipes = others.iter().flat_map(|t| outputs.map(|output| Recipe { tile: *t, output }));
    bench.compile(recipes.collect::<Vec<_>>().into_iter());
    let chip = bench.model.chip();
    let tiles: Vec<ProductTile> = ProductTile::committed(chip.sm).chain(others).collect();
    if let Some(p) = products.first() {
        let usual = Choices::default().gemm(p, chip);
        bench.warm_up(&mut |bench| (0..LAUNCHES).try_for_each(|_| launch(bench, &room, p, usual)))?;
    }
    for (i, p) in products.iter().enumerate() {
        if bench.is_over() {
            break;
        }
        let name = format!("{} tokens, {} x {}", p.tokens, p.rows, p.cols);
        bench.progress(&name, i, products.len());
        one(bench, &room, p, &tiles)?;
    }
    Ok(())
}

/// Searches the tile for one product.
fn one(bench: &mut Bench<'_>, room: &Room, p: &TokensProduct, tiles: &[ProductTile]) -> Result<()> {
    let usual = Choices::default().gemm(p, bench.model.chip());
    let wanted = results(bench, room, p, usual)?;
    let mut all = vec![usual];
    let splits: Vec<u32> = gemm::splits(p.output, p.cols).collect();
    for (tile, shares) in tiles.iter().flat_map(|t| splits.iter().map(|s| (*t, *s))) {
        let recipe = Recipe { tile, output: p.output };
        if (tile, shares) == usual || !tile.takes(p, bench.model.chip().sm) || !bench.has(&recipe) {
            continue;
        }
        if bench.is_over() || all.len() > bench.limits.candidates.saturating_mul(splits.len()) {
            break;
        }
        let name = recipe.name();
        let kernel = bench.programs.kernel(tile.module(), &name)?;
        let most = bench.model.device.info().max_shared_per_block;
        let fits = u64::from(tile.shared_bytes()) <= most;
        if !fits || kernel.blocks_per_sm(tile.threads(), tile.shared_bytes()) == 0 {
            let (registers, shared) = (kernel.registers(), tile.shared_bytes());
            bench.reject(
                &name,
                format!("{registers} registers and {shared} bytes of shared memory do not fit"),
            );
            continue;
        }
        let found = results(bench, room, p, (tile, shares));
        let mut again = |bench: &mut Bench<'_>| results(bench, room, p, usual);
        if bench.accept(&name, &wanted, found, &mut again)? {
            all.push((tile, shares));
        }
    }
    let launches = if matches!(bench.meter, Meter::Clock) { LAUNCHES } else { 1 };
    let times = bench
        .times(all.len(), &mut |bench, i| (0..launches).try_for_each(|_| launch(bench, room, p, all[i])))?;
    let Some((best, ns)) = fastest(&times) else { return Ok(()) };
    let (shape, shares) = all[best];
    let tuned = Tuned { shape, usual_ns: each(times[0].unwrap_or(ns), launches), ns: each(ns, launches) };
    let &TokensProduct { output, tokens, rows, cols } = p;
    let text = |(tile, shares): (ProductTile, u32)| format!("{tile}, {shares} shares");
    bench.outcome.findings.push(Finding {
        kernel: format!("{} {tokens} tokens, {rows} x {cols}", output.name()),
        usual: text(usual),
        usual_ns: tuned.usual_ns,
        chosen: text(all[best]),
        ns: tuned.ns,
        tried: times.iter().skip(1).flatten().count(),
    });
    bench.outcome.entry.gemm.push(TunedGemm { output, tokens, rows, cols, shares, tuned });
    Ok(())
}

impl Room {
    fn new(bench: &mut Bench<'_>, products: &[TokensProduct]) -> Result<Self> {
        let most = |of: &dyn Fn(&TokensProduct) -> u64| products.iter().map(of).max().unwrap_or(1);
        let x = most(&|p| u64::from(p.tokens) * u64::from(p.cols));
        let weights =
            most(&|p| u64::from(p.rows) * u64::from(p.cols) * if p.output == Output::Gate { 2 } else { 1 });
        let sums = most(&|p| u64::from(p.tokens) * u64::from(p.rows));
        let longest = most(&|p| u64::from(p.rows));
        let room = Self {
            x: bench.model.device.alloc(2 * x)?,
            weights: bench.model.device.alloc(2 * weights)?,
            sums: bench.floats(MOST_SHARES * sums)?,
            stream: bench.floats(sums)?,
            norm: bench.floats(longest)?,
            normed: bench.model.device.alloc(2 * sums)?,
            reader: bench.programs.kernel("prompt", "prompt_norm")?,
        };
        let pattern: Vec<u16> = numbers(1 << 16).map(|v| f16::from_f32(v).to_bits()).collect();
        for (buffer, count) in [(&room.x, x), (&room.weights, weights)] {
            for at in (0..count).step_by(pattern.len()) {
                let len = (count - at).min(pattern.len() as u64);
                buffer.write_slice(2 * at, &pattern[..len as usize])?;
            }
        }
        fill(&room.norm, longest as usize)?;
        Ok(room)
    }
}

/// Records the product and the kernel that reads its results, after all earlier launches.
fn launch(bench: &mut Bench<'_>, room: &Room, p: &TokensProduct, how: (ProductTile, u32)) -> Result<()> {
    multiply(bench, room, p, how)?;
    // The reader takes results of 16 values at a time.
    if p.output == Output::Sums && p.rows.is_multiple_of(16) {
        let (x, sums, weight, out) = (&room.stream, &room.sums, &room.norm, &room.normed);
        let (len, eps, shares, share_pitch, factor) = (p.rows, 1e-5, how.1, p.tokens, 1.0);
        let args: Args = PromptNorm { x, sums, weight, out, len, eps, shares, share_pitch, factor }.args();
        let config = filled(&room.reader, LaunchConfig::new(p.tokens, NORM_THREADS));
        bench.queue.barrier();
        // SAFETY: the buffers are sized for every product.
        unsafe { bench.queue.launch(&room.reader, config, &args) }?;
    }
    Ok(())
}

fn multiply(
    bench: &mut Bench<'_>,
    room: &Room,
    p: &TokensProduct,
    (tile, shares): (ProductTile, u32),
) -> Result<()> {
    let kernel = bench.programs.kernel(tile.module(), &tile.kernel_name(p.output))?;
    let args: Args = Gemm {
        x: &room.x,
        w: &room.weights,
        out: &room.sums,
        tokens: p.tokens,
        rows: p.rows,
        cols: p.cols,
        pitch: p.rows,
        share: p.cols / shares,
        share_pitch: p.tokens,
        factor: (p.output == Output::Gate).then_some(1.0),
    }
    .args();
    let grid = tile.grid(p.output, [p.tokens, p.rows, shares], bench.model.chip().sm_count);
    let config = LaunchConfig::new(grid, tile.threads());
    let config = filled(&kernel, config.with_dynamic_shared(tile.shared_bytes()));
    bench.queue.barrier();
    // SAFETY: the buffers are sized for every product and the most split-K parts.
    unsafe { bench.queue.launch(&kernel, config, &args) }?;
    Ok(())
}

/// The results for the first, the middle and the last token.
fn results(
    bench: &mut Bench<'_>,
    room: &Room,
    p: &TokensProduct,
    how: (ProductTile, u32),
) -> Result<Vec<f32>> {
    multiply(bench, room, p, how)?;
    bench.finish()?;
    let (rows, pitch) = (p.rows as usize, u64::from(p.rows));
    let mut all = Vec::new();
    for token in [0, p.tokens / 2, p.tokens - 1].map(u64::from) {
        match p.output {
            Output::Sums => {
                let mut sums = vec![0f32; rows];
                for share in 0..u64::from(how.1) {
                    let at = 4 * pitch * (share * u64::from(p.tokens) + token);
                    sums.iter_mut().zip(room.sums.read_vec::<f32>(at, rows)?).for_each(|(sum, v)| *sum += v);
                }
                all.extend(sums);
            }
            Output::Gate => {
                let halves = room.sums.read_vec(2 * pitch * token, rows)?;
                all.extend(halves.into_iter().map(|bits| f16::from_bits(bits).to_f32()));
            }
        }
    }
    Ok(all)
}
