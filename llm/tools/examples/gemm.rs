//! Measures the prompt kernels alone: TFLOP/s of every tile on the shapes of a 1B model (on SM 9.0 those of
//! warpgroups too, as committed), GB/s of dequantizing.
//!
//! `gemm compile DIR` writes the cubins of all tiles for sm_87 and sm_90 (needs a `ptxas`); `gemm run DIR
//! [TOKENS]` measures them on the device that `HCQ_DEVICE` names.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ga10b_llm::kernels::committed::cubin;
use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::prompt::dequantize;
use ga10b_llm::kernels::prompt::gemm::{self, Gemm, MORE_TILES, Output, TILES, Tile};
use ga10b_llm::kernels::prompt::tile::ProductTile;
use ga10b_llm::kernels::prompt::warpgroups;
use ga10b_llm_tools::bench::WARM_UP;
use half::f16;
use hcq::{Args, Buffer, Device, Kernel, LaunchConfig, Queue, Selector};
use ptxgen::{Module, Params, Ptxas, Target};

/// Name, rows, columns and use of the sums.
const SHAPES: [(&str, u32, u32, Output); 4] = [
    ("q k v", 3072, 2048, Output::Sums),
    ("attention output", 2048, 2048, Output::Sums),
    ("gate up", 8192, 2048, Output::Gate),
    ("down", 2048, 8192, Output::Sums),
];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["compile", dir] => compile(Path::new(dir)),
        ["run", dir] => run(Path::new(dir), 512),
        ["run", dir, tokens] => run(Path::new(dir), tokens.parse().context("TOKENS is a number")?),
        _ => bail!("gemm compile DIR | gemm run DIR [TOKENS]"),
    }
}

/// The tiles of warps.
fn tiles() -> impl Iterator<Item = Tile> {
    TILES.into_iter().chain(MORE_TILES)
}

fn compile(dir: &Path) -> anyhow::Result<()> {
    let ptxas = Ptxas::find()?;
    for target in Target::ALL {
        let mut module = Module::new(target);
        for tile in tiles() {
            for output in Output::ALL {
                module.add(gemm::kernel(tile, output));
            }
        }
        std::fs::write(dir.join(format!("gemm.{target}.cubin")), ptxas.compile(&module.text(), target)?)?;
    }
    Ok(())
}

struct Bench {
    device: Device,
    queue: Queue,
}

impl Bench {
    /// Microseconds of one of `launches`, which follow each other; the best of three rounds after one to warm
    /// up.
    fn time(&mut self, launches: &[(&Kernel, LaunchConfig, Args)]) -> anyhow::Result<f64> {
        let mut best = f64::INFINITY;
        for round in 0..4 {
            let begin = self.queue.timestamp()?;
            for (kernel, config, args) in launches {
                let threads = config.block.iter().product();
                // A carve-out of shared memory for all blocks that fit.
                let blocks = kernel.blocks_per_sm(threads, config.dynamic_shared);
                let config = config.with_blocks_per_sm(blocks);
                self.queue.barrier();
                // SAFETY: every buffer is sized for the shape that is passed.
                unsafe { self.queue.launch(kernel, config, args) }?;
            }
            let end = self.queue.timestamp()?;
            self.queue.submit()?.wait(Duration::from_secs(300))?;
            let ns = end.ns().zip(begin.ns()).context("no timestamp")?;
            if round > 0 {
                best = best.min((ns.0 - ns.1) as f64 / 1e3 / launches.len() as f64);
            }
        }
        Ok(best)
    }

    /// Works until the clocks have risen.
    fn warm_up(&mut self, program: &hcq::Program) -> anyhow::Result<()> {
        let (x, out) = (self.halves(1 << 22)?, self.device.alloc(1 << 24)?);
        let tile = TILES[0];
        let kernel = program.kernel(&tile.kernel_name(Output::Sums))?;
        let n = 2048;
        let (tokens, rows, cols, pitch, share, share_pitch, factor) = (n, n, n, n, n, n, None);
        let args = Gemm { x: &x, w: &x, out: &out, tokens, rows, cols, pitch, share, share_pitch, factor };
        let args: Args = args.args();
        let config = LaunchConfig::new(tile.grid(Output::Sums, n, n, 1), tile.threads())
            .with_dynamic_shared(tile.shared_bytes());
        let begin = Instant::now();
        while begin.elapsed() < WARM_UP {
            self.time(&vec![(&kernel, config, args.clone()); 64])?;
        }
        Ok(())
    }

    /// `count` values in f16, small and different from each other.
    fn halves(&self, count: u64) -> anyhow::Result<Buffer> {
        let buffer = self.device.alloc(2 * count)?;
        let value = |i: u32| f16::from_f32((i * 37 % 101) as f32 / 64.0 - 0.8).to_bits();
        let pattern: Vec<u16> = (0..1 << 16).map(value).collect();
        for at in (0..count).step_by(pattern.len()) {
            let len = pattern.len().min((count - at) as usize);
            buffer.write_slice(2 * at, &pattern[..len])?;
        }
        Ok(buffer)
    }
}

fn run(dir: &Path, tokens: u32) -> anyhow::Result<()> {
    let device = Device::open(Selector::from_env()?)?;
    let info = device.info();
    println!("{}, sm_{}, {} SMs, {} tokens", info.name, info.sm_number(), info.sm_count, tokens);
    let of_warps = std::fs::read(dir.join(format!("gemm.sm_{}.cubin", info.sm_number())))?;
    let program = device.load(&of_warps)?;
    let by_warpgroups =
        cubin(info.sm_number(), warpgroups::NAME).map(|cubin| device.load(cubin)).transpose()?;
    let of_warpgroups = warpgroups::TILES.into_iter().filter(|_| by_warpgroups.is_some());
    let all: Vec<ProductTile> =
        tiles().map(ProductTile::Warps).chain(of_warpgroups.map(ProductTile::Warpgroups)).collect();
    let mut bench = Bench { queue: device.queue()?, device: device.clone() };
    if info.sm_count > 16 {
        bench.warm_up(&program)?;
    }
    println!(
        "{:<17} {:<26} {:>6} {:>10} {:>10} {:>10}",
        "shape", "kernel", "shares", "µs", "TFLOP/s", "cold µs"
    );
    for (name, rows, cols, output) in SHAPES {
        let all_rows = if output == Output::Gate { 2 * rows } else { rows };
        let x = bench.halves(u64::from(tokens) * u64::from(cols))?;
        // More copies than the level-2 cache holds, for weights that are read from memory.
        let copies = (128 << 20) / (2 * all_rows * cols) + 1;
        let weights: Vec<Buffer> = (0..copies)
            .map(|_| bench.halves(u64::from(all_rows) * u64::from(cols)))
            .collect::<Result<_, _>>()?;
        let out = device.alloc(4 * 8 * u64::from(tokens) * u64::from(rows))?;
        for &tile in &all {
            let most = info.max_shared_per_block;
            if u64::from(tile.shared_bytes()) > most || !tile.divides(output, tokens, rows) {
                continue;
            }
            let own = by_warpgroups.as_ref().filter(|_| matches!(tile, ProductTile::Warpgroups(_)));
            let kernel = own.unwrap_or(&program).kernel(&tile.kernel_name(output))?;
            let splits: &[u32] = if output == Output::Sums { &[1, 2, 4, 8] } else { &[1] };
            for &shares in splits.iter().filter(|s| cols / **s >= 256) {
                let grid = tile.grid(output, [tokens, rows, shares], info.sm_count);
                let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
                let launch = |w: &Buffer| {
                    let args = Gemm {
                        x: &x,
                        w,
                        out: &out,
                        tokens,
                        rows,
                        cols,
                        pitch: rows,
                        share: cols / shares,
                        share_pitch: tokens,
                        factor: (output == Output::Gate).then_some(1.0),
                    };
                    let args: Args = args.args();
                    (&kernel, config, args)
                };
                let rounds = if info.sm_count > 16 { 32 } else { 1 };
                let warm = bench.time(&(0..rounds).map(|_| launch(&weights[0])).collect::<Vec<_>>())?;
                let cold = bench.time(&weights.iter().map(launch).collect::<Vec<_>>())?;
                let flop = 2.0 * f64::from(tokens) * f64::from(all_rows) * f64::from(cols);
                println!(
                    "{name:<17} {:<26} {shares:>6} {warm:>10.2} {:>10.1} {cold:>10.2}",
                    tile.kernel_name(output),
                    flop / warm / 1e6
                );
            }
        }
    }
    expand(&mut bench)
}

/// Expands a matrix of 8192 rows in every format.
fn expand(bench: &mut Bench) -> anyhow::Result<()> {
    let (rows, cols) = (8192u32, 2048u32);
    let sm = bench.device.info().sm_number();
    let out = bench.device.alloc(2 * u64::from(rows) * u64::from(cols))?;
    println!("\n{:<17} {:>10} {:>14} {:>14}", "dequantize", "µs", "read GB/s", "written GB/s");
    for format in Format::ALL {
        let bytes = cubin(sm, format.module("dequantize")).context("no kernels for this GPU")?;
        let program = bench.device.load(bytes)?;
        let read = format.packed_bytes(rows.into(), cols.into());
        let weights = bench.device.alloc(read)?;
        let kernel = program.kernel(&format!("dequantize_{}", format.suffix()))?;
        let args: Args = dequantize::Dequantize { weights: &weights, out: &out, rows, cols }.args();
        let config = LaunchConfig::new(dequantize::grid(format, rows, cols), dequantize::THREADS);
        let micros = bench.time(&vec![(&kernel, config, args); 8])?;
        let written = 2.0 * f64::from(rows) * f64::from(cols);
        println!(
            "{:<17} {micros:>10.2} {:>14.1} {:>14.1}",
            format.suffix(),
            read as f64 / micros / 1e3,
            written / micros / 1e3
        );
    }
    Ok(())
}
