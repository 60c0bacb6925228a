//! Products by Hopper's warpgroups: exact where their sums are, within their bounds elsewhere, and clean
//! under all checks.
//!
//! Runs on a software Hopper, and on the device that `HCQ_DEVICE` names if it is one.

use std::sync::Arc;
use std::time::Duration;

use ga10b_llm::compare::Comparison;
use ga10b_llm::kernels::choices::Choices;
use ga10b_llm::kernels::committed::cubin;
use ga10b_llm::kernels::prompt::gemm::{self, Output};
use ga10b_llm::kernels::prompt::tile::{ProductTile, TokensProduct};
use ga10b_llm::kernels::prompt::warpgroups::{NAME, TILES, Tile};
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::tuning::Tuning;
use ga10b_llm::{Decoder, Engine, EngineOptions, Mode};
use ga10b_sim::sm::Schedule;
use ga10b_sim::{Checks, Sim, SimConfig};
use half::f16;
use hcq::{Buffer, Device, DeviceOptions, LaunchConfig, Selector};
use ptxgen::Params;
use sass::Arch;

/// Value `i` of a factor: whole numbers, whose products and sums are exact in any order.
fn value(i: u32, seed: u32) -> i64 {
    i64::from(i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) % 9 - 4
}

/// A Hopper in software.
fn hopper(checks: Checks) -> (Arc<Sim>, Device) {
    let mut config = SimConfig { arch: Arch::Sm90, ..Default::default() };
    (config.executor.schedule, config.executor.checks) = (Schedule::Shuffled(1), checks);
    let sim = Sim::new(config);
    let device = hcq::sim::open(Arc::clone(&sim), DeviceOptions::default()).unwrap();
    (sim, device)
}

/// The device that is asked for, if it is a Hopper.
fn asked_for() -> Option<Device> {
    std::env::var_os("HCQ_DEVICE")?;
    let device = Device::open(Selector::from_env().unwrap()).unwrap();
    (device.info().sm_number() == 90).then_some(device)
}

fn upload(device: &Device, bytes: &[u8]) -> Buffer {
    let buffer = device.alloc(bytes.len() as u64).unwrap();
    buffer.write(0, bytes).unwrap();
    buffer
}

/// Sizes of a product in whole tiles, and how it is launched.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tile: Tile,
    output: Output,
    tokens: u32,
    rows: u32,
    cols: u32,
    shares: u32,
    /// Blocks that share the tiles.
    blocks: u32,
}

impl Shape {
    /// Two tiles of tokens by `along` of rows, over more slices than the ring has.
    fn new(tile: Tile, output: Output, along: u32, (shares, blocks): (u32, u32)) -> Self {
        let rows = along * if output == Output::Gate { tile.rows / 2 } else { tile.rows };
        // The last of several split-K parts is shorter.
        let cols = gemm::DEPTH * (shares * (tile.stages + 3) - (shares - 1));
        Self { tile, output, tokens: 2 * tile.tokens(), rows, cols, shares, blocks }
    }

    /// Values of a share.
    fn share(&self) -> u32 {
        self.cols.div_ceil(self.shares * gemm::DEPTH) * gemm::DEPTH
    }
}

/// Factors of whole numbers, divided by `divisor`.
fn factor(count: u32, seed: u32, divisor: f64) -> Vec<u8> {
    (0..count).flat_map(|i| f16::from_f64(value(i, seed) as f64 / divisor).to_le_bytes()).collect()
}

/// Multiplies, and compares all of the output: results, and what lies between the rows and behind them.
fn multiply(device: &Device, shape: Shape) {
    let Shape { tile, output, tokens, rows, cols, shares, blocks } = shape;
    let gated = output == Output::Gate;
    // Gates of usual size.
    let divisor = if gated { 16.0 } else { 1.0 };
    let x = upload(device, &factor(tokens * cols, 1, divisor));
    let w = upload(device, &factor(if gated { 2 } else { 1 } * rows * cols, 2, divisor));
    let (pitch, share_pitch, share) = (rows + 8, tokens + 3, shape.share());
    let bytes = if gated { 2 } else { 4 };
    let len = bytes * (shares * share_pitch * pitch) as usize;
    let out = upload(device, &vec![0xa5; len]);
    let kernel = device.load(cubin(90, NAME).unwrap()).unwrap().kernel(&tile.kernel_name(output)).unwrap();
    let (x, w, to, factor) = (&x, &w, &out, gated.then_some(0.25));
    let args = gemm::Gemm { x, w, out: to, tokens, rows, cols, pitch, share, share_pitch, factor };
    let config = LaunchConfig::new((blocks, 1, shares), tile.threads());
    let config = config.with_dynamic_shared(tile.shared_bytes());
    let mut queue = device.queue().unwrap();
    // SAFETY: the buffers have the sizes that the arguments say.
    unsafe { queue.launch(&kernel, config, &args.args()).unwrap() };
    queue.submit().unwrap().wait(Duration::from_secs(120)).unwrap();
    let mut found = vec![0; len];
    out.read(0, &mut found).unwrap();

    let product = |token: u32, row: u32, part: u32| {
        let values = part * share..cols.min((part + 1) * share);
        values.map(|c| value(token * cols + c, 1) * value(row * cols + c, 2)).sum::<i64>()
    };
    for (place, bytes) in (0..).zip(found.chunks_exact(bytes)) {
        let (line, row) = (place / pitch, place % pitch);
        let (part, token) = (line / share_pitch, line % share_pitch);
        let at = format!("{shape:?}: part {part}, token {token}, row {row}");
        if token >= tokens || row >= rows {
            assert!(bytes.iter().all(|byte| *byte == 0xa5), "{at}: written outside");
        } else if let Ok(sum) = bytes.try_into() {
            assert_eq!(f32::from_le_bytes(sum), product(token, row, part) as f32, "{at}");
        } else {
            let half = f16::from_le_bytes(bytes.try_into().unwrap()).to_f64();
            let [gate, up] = [row, rows + row].map(|row| product(token, row, 0) as f64 / (divisor * divisor));
            let wanted = 0.25 * gate / (1.0 + (-gate).exp()) * up;
            assert!((half - wanted).abs() <= 1e-3 * wanted.abs() + 1e-6, "{at}: {half}, not {wanted}");
        }
    }
}

/// Every tile, with tiles that a block computes one after the other, and with split-K parts.
fn shapes() -> Vec<Shape> {
    let of_tile = |tile| {
        let shape = |output, along, launched| Shape::new(tile, output, along, launched);
        [shape(Output::Sums, 1, (1, 1)), shape(Output::Sums, 1, (2, 2)), shape(Output::Gate, 2, (1, 3))]
    };
    TILES.into_iter().flat_map(of_tile).collect()
}

#[test]
fn every_tile_multiplies_exactly_and_is_clean() {
    let (sim, device) = hopper(Checks::all());
    for shape in shapes() {
        multiply(&device, shape);
        assert!(sim.findings().is_empty(), "{shape:?}: {:#?}", sim.findings());
    }
    if let Some(device) = asked_for() {
        shapes().into_iter().for_each(|shape| multiply(&device, shape));
    }
}

#[test]
fn a_prompt_by_warpgroups_has_the_logits_of_one_by_warps() {
    let prompt: Vec<u32> = (0..100).map(|i| 7 + i * 13 % 200).collect();
    for mix in ["q6_k", "f16"] {
        let synthesis: Synthesis = format!("tiny-llama:{mix}").parse().unwrap();
        let model = synthesis.with_sizes(2, 256, 512).model(3).unwrap();
        let engine = |device: &Device, tuning: Tuning| {
            let options = EngineOptions::new(128).with_mode(Mode::Batch).with_tuning(tuning);
            Engine::new(device, &model, &options).unwrap()
        };
        // The products of every size of chunk by warps.
        let mut choices = Choices::default();
        let c = &model.config;
        let (qkv, hidden) = (c.q_dim() + 2 * c.kv_dim(), c.hidden);
        let products =
            [(Output::Sums, qkv, hidden), (Output::Sums, hidden, c.q_dim()), (Output::Sums, hidden, c.ff)];
        for (output, rows, cols) in products.into_iter().chain([(Output::Gate, c.ff, hidden)]) {
            for tokens in [64, 128] {
                let product = TokensProduct { output, tokens, rows: rows as u32, cols: cols as u32 };
                choices.gemm.insert(product, (ProductTile::Warps(gemm::TILES[2]), 1));
            }
        }
        let (sim, device) = hopper(Checks::all());
        let found = engine(&device, Tuning::default()).prefill(&prompt).unwrap();
        assert!(sim.findings().is_empty(), "{mix}: {:#?}", sim.findings());
        let (_sim, device) = hopper(Checks::default());
        let mut by_warps = engine(&device, Tuning { choices, ..Tuning::default() });
        let mut comparison = Comparison::new();
        comparison.add(&by_warps.prefill(&prompt).unwrap(), &found);
        assert!(comparison.nmse() < 1e-6, "{mix}: NMSE {:e}", comparison.nmse());
        let by_warpgroups = |mut engine: Engine| {
            let kernels = engine.profile_prompt(prompt.len(), Duration::ZERO).unwrap();
            kernels.iter().filter(|stat| stat.name.contains("warpgroups")).count()
        };
        by_warps.reset().unwrap();
        assert_eq!(by_warpgroups(by_warps), 0, "{mix}: by warpgroups");
        assert!(by_warpgroups(engine(&device, Tuning::default())) > 2, "{mix}: by warps");
    }
}
