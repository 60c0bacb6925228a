//! Launches on a device, and random inputs, for tests of kernels.

use std::sync::OnceLock;
use std::time::Duration;

use ga10b_llm::engine::PAGE;
use ga10b_llm::gguf::{GgmlType, TensorView};
use ga10b_llm::kernels::committed::cubin;
use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::pack::pack;
use ga10b_llm::kernels::prompt::chunk::{COUNT_AT, TOKENS_AT};
use ga10b_llm::kernels::rotation::turns;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hcq::{Buffer, Device, LaunchConfig, Plain};
use proptest::prelude::*;
use ptxgen::Params;

fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(crate::open::device)
}

/// Launches one kernel and waits for it.
pub fn launch<'a>(module: &str, kernel: &str, config: LaunchConfig, args: impl Params<Address = &'a Buffer>) {
    let device = device();
    let cubin = cubin(device.info().sm_number(), module).unwrap();
    let kernel = device.load(cubin).unwrap().kernel(kernel).unwrap();
    let mut queue = device.queue().unwrap();
    // SAFETY: the tests size every buffer for the shapes they pass.
    unsafe { queue.launch(&kernel, config, &args.args()) }.unwrap();
    queue.submit().unwrap().wait(Duration::from_secs(300)).unwrap();
}

/// A buffer of bytes, which untyped zeros are.
pub fn upload(bytes: &[u8]) -> Buffer {
    numbers(bytes)
}

fn numbers<T: Plain>(values: &[T]) -> Buffer {
    let buffer = device().alloc(size_of_val(values).max(4) as u64).unwrap();
    buffer.write_slice(0, values).unwrap();
    buffer
}

pub fn floats(values: &[f32]) -> Buffer {
    numbers(values)
}

pub fn halves(values: &[f16]) -> Buffer {
    numbers::<u16>(values.reinterpret_cast())
}

pub fn words(values: &[u32]) -> Buffer {
    numbers(values)
}

/// A chunk of a prompt, with `tokens` from position `start` on.
pub fn chunk(start: usize, tokens: &[u32]) -> Buffer {
    let mut state = vec![0; TOKENS_AT as usize];
    (state[0], state[COUNT_AT as usize]) = (start as u32, tokens.len() as u32);
    state.extend(tokens);
    words(&state)
}

/// The pages of a sequence in a cache that other sequences have pages of too.
pub struct Paging {
    /// By their order in the sequence.
    pub pages: Vec<u32>,
    kv_heads: usize,
    /// Pages of the cache.
    all: usize,
}

impl Paging {
    /// Of a sequence with `positions` positions, in any order.
    pub fn new(random: &mut Random, kv_heads: usize, positions: usize) -> Self {
        let own = positions.div_ceil(PAGE);
        let all = own + 2;
        let mut pages: Vec<u32> = (0..all as u32).collect();
        (1..all).for_each(|i| pages.swap(i, random.bits() as usize % (i + 1)));
        pages.truncate(own);
        Self { pages, kv_heads, all }
    }

    /// Of a sequence alone in the cache, in order.
    pub fn in_order(kv_heads: usize, positions: usize) -> Self {
        let all = positions.div_ceil(PAGE);
        Self { pages: (0..all as u32).collect(), kv_heads, all }
    }

    /// Rows of the cache.
    pub fn rows(&self) -> usize {
        self.all * self.kv_heads * PAGE
    }

    /// The row of a position of a head.
    pub fn row(&self, head: usize, position: usize) -> usize {
        (self.pages[position / PAGE] as usize * self.kv_heads + head) * PAGE + position % PAGE
    }
}

/// Rotation of each of `half_dim` pairs per position, in radians.
pub fn frequencies(half_dim: usize) -> Vec<f64> {
    (0..half_dim).map(|j| 1e4f64.powf(-(j as f64) / half_dim as f64)).collect()
}

/// Rotations on the device, in the form that kernels take.
pub fn steps(frequencies: &[f64]) -> Buffer {
    numbers(&frequencies.iter().map(|f| turns(*f)).collect::<Vec<_>>())
}

/// A pair rotated by `angle`.
pub fn turned(pair: &[f32], angle: f64) -> [f64; 2] {
    let (sin, cos) = angle.sin_cos();
    let [a, b] = [f64::from(pair[0]), f64::from(pair[1])];
    [a * cos - b * sin, a * sin + b * cos]
}

pub fn read(buffer: &Buffer, count: usize) -> Vec<f32> {
    buffer.read_vec(0, count).unwrap()
}

pub fn read_halves(buffer: &Buffer, count: usize) -> Vec<f32> {
    let halves = buffer.read_vec(0, count).unwrap();
    halves.into_iter().map(|bits| f16::from_bits(bits).to_f32()).collect()
}

/// Numbers that depend on the seed alone.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in ±1.
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }

    pub fn halves(&mut self, count: usize) -> Vec<f16> {
        (0..count).map(|_| f16::from_f32(self.value())).collect()
    }

    /// Whole blocks of `format` with `count` values and scales of usual size; `subnormal` makes some of them
    /// subnormal.
    pub fn blocks(&mut self, format: Format, count: usize, subnormal: bool) -> Vec<u8> {
        let ty = format.ty();
        match format {
            Format::F32 => return self.values(count).iter().flat_map(|v| v.to_le_bytes()).collect(),
            Format::F16 => return self.halves(count).iter().flat_map(|v| v.to_le_bytes()).collect(),
            Format::Bf16 => {
                return self.values(count).iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
            }
            _ => {}
        }
        let places: &[usize] = match format {
            Format::Q8_0 | Format::Q4_0 => &[0],
            Format::Q4K | Format::Q5K => &[0, 2],
            Format::Q2K => &[80, 82],
            Format::Q6K => &[208],
            Format::Iq1M => &[],
            _ => &[0],
        };
        let mut bytes: Vec<u8> =
            (0..ty.bytes_for(count as u64).unwrap()).map(|_| self.bits() as u8).collect();
        for block in bytes.chunks_exact_mut(ty.block_bytes() as usize) {
            for at in places {
                let value = self.value();
                let small = subnormal && self.bits().is_multiple_of(4);
                let scale = f16::from_f32(value * if small { 1e-5 } else { 1e-2 });
                block[*at..*at + 2].copy_from_slice(&scale.to_le_bytes());
            }
            if format == Format::Iq1M {
                // Four bits in each of four words.
                let scale = f16::from_f32(self.value() * 1e-2).to_bits();
                for (i, byte) in block[49..].iter_mut().step_by(2).enumerate() {
                    *byte = *byte & 15 | ((scale >> (4 * i) & 15) as u8) << 4;
                }
            }
        }
        bytes
    }
}

/// A matrix with rows of `cols` values, as kernels read it.
pub fn matrix(format: Format, cols: usize, blocks: &[u8]) -> Buffer {
    let mut packed = Vec::new();
    pack(format, cols as u32, blocks, &mut packed);
    upload(&packed)
}

/// The values of a matrix, row after row.
pub fn dequantized(ty: GgmlType, blocks: &[u8], rows: usize, cols: usize) -> Vec<f32> {
    let dims = [cols as u64, rows as u64];
    let view = TensorView { name: "w", ty, dims: &dims, data: blocks };
    let mut values = vec![0.0; rows * cols];
    values.chunks_exact_mut(cols).enumerate().for_each(|(r, row)| view.dequantize_row(r, row).unwrap());
    values
}

/// Whole blocks of values in the layout of a cache in q8_0, quants before scales, quantized as ggml does; and
/// their rounded values.
pub fn q8_0(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (mut quants, mut scales, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for block in values.as_chunks::<32>().0 {
        let scale = block.iter().fold(0f32, |top, v| top.max(v.abs())) / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let half = f16::from_f32(scale);
        for value in block {
            let quant = (value * inverse).round() as i8;
            quants.push(quant as u8);
            kept.push(f32::from(quant) * half.to_f32());
        }
        scales.extend(half.to_le_bytes());
    }
    quants.extend(scales);
    (quants, kept)
}

/// Row `row` of `rows` rows of `dim` values in a cache in q8_0: quants before scales.
pub fn q8_0_row(cache: &[u8], rows: usize, dim: usize, row: usize) -> Vec<u8> {
    let (quants, scales) = cache.split_at(rows * dim);
    [&quants[row * dim..][..dim], &scales[row * dim / 16..][..dim / 16]].concat()
}

/// The values of blocks whose quants come before their scales.
pub fn q8_0_values(bytes: &[u8]) -> Vec<f32> {
    let (quants, scales) = bytes.split_at(bytes.len() / 34 * 32);
    let scale = |i: usize| f16::from_le_bytes([scales[i / 32 * 2], scales[i / 32 * 2 + 1]]).to_f32();
    quants.iter().enumerate().map(|(i, q)| f32::from(*q as i8) * scale(i)).collect()
}

/// Whether values of blocks are as near to `wanted` as 8 bits and an f16 scale can be.
pub fn is_q8_0_of(found: &[f32], wanted: &[f64]) -> bool {
    found.chunks(32).zip(wanted.chunks(32)).all(|(found, wanted)| {
        let scale = wanted.iter().fold(0f64, |top, v| top.max(v.abs())) / 127.0;
        // Half a quant, and the rounding of the scale times 127.
        found.iter().zip(wanted).all(|(f, w)| (f64::from(*f) - w).abs() < 0.57 * scale)
    })
}

pub fn read_bytes(buffer: &Buffer, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

pub fn dot<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (*x).into() * (*y).into()).sum()
}

/// A window and a cap of scores, 0 for none; or no limits.
pub fn limits() -> impl Strategy<Value = Option<(u32, f32)>> {
    let window = prop_oneof![1u32..70, 100u32..1200, Just(u32::MAX)];
    proptest::option::of((window, prop_oneof![Just(0f32), 0.5f32..20.0]))
}

/// Attention of the queries of a token over rows up to `position` of caches `[kv_head][context][dim]`, with
/// limits.
pub fn attended<T: Copy + Into<f64>>(
    q: &[T],
    keys: &[T],
    values: &[T],
    (dim, context, group): (usize, usize, usize),
    position: usize,
    limits: Option<(u32, f32)>,
) -> Vec<f64> {
    let (window, cap) = limits.map_or((usize::MAX, 0.0), |(w, cap)| (w as usize, f64::from(cap)));
    let first = (position + 1).saturating_sub(window);
    let capped = |score: f64| if cap == 0.0 { score } else { cap * (score / cap).tanh() };
    let mut out = Vec::new();
    for (head, query) in q.chunks_exact(dim).enumerate() {
        let row = |p: usize| (head / group * context + p) * dim..(head / group * context + p + 1) * dim;
        let scale = 1.0 / (dim as f64).sqrt();
        let scores: Vec<f64> =
            (first..=position).map(|p| capped(scale * dot(query, &keys[row(p)]))).collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut sums = vec![0.0; dim];
        for (p, w) in (first..).zip(&weights) {
            values[row(p)].iter().zip(&mut sums).for_each(|(v, s)| *s += w / total * (*v).into());
        }
        out.extend(sums);
    }
    out
}

/// Σ(found − wanted)² / Σ wanted².
pub fn nmse(found: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let off: f64 = found.iter().zip(wanted).map(|(f, w)| (f64::from(*f) - w).powi(2)).sum();
    off / wanted.iter().map(|w| w * w).sum::<f64>().max(1e-30)
}

pub fn formats() -> impl Strategy<Value = Format> {
    proptest::sample::select(Format::ALL.to_vec())
}

/// The types of a router.
pub fn routers() -> impl Strategy<Value = Format> {
    proptest::sample::select(Format::WITHOUT_CODEBOOK.to_vec())
}

/// `cases` cases unless `PROPTEST_CASES` is set.
pub fn config(cases: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => usual,
        None => ProptestConfig { cases, ..usual },
    }
}
