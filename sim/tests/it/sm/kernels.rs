//! The corpus kernels against results computed here.

use ga10b_sim::sm::{CacheConfig, Config, Counters, Executor, Schedule};
use std::sync::atomic::AtomicBool;

use super::cubin::Kernel;
use super::guest::{DATA, run, run_with};

const A: u64 = DATA;
const B: u64 = DATA + 0x100_0000;
const C: u64 = DATA + 0x200_0000;

/// Numbers that look random and are the same every time.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 24) as u32
    }

    /// Between -1 and 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    pub fn words(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.bits()).collect()
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn halves(values: &[f32]) -> Vec<u32> {
    let h: Vec<u16> = values.iter().map(|x| half::f16::from_f32(*x).to_bits()).collect();
    h.chunks(2).map(|p| u32::from(p[0]) | u32::from(p[1]) << 16).collect()
}

fn half_at(words: &[u32], i: usize) -> f64 {
    half::f16::from_bits((words[i / 2] >> (16 * (i % 2))) as u16).to_f64()
}

#[track_caller]
fn close(got: f64, want: f64, relative: f64) {
    let error = (got - want).abs();
    assert!(
        error <= relative * want.abs().max(1e-3),
        "got {got}, want {want}, relative error {}",
        error / want.abs()
    );
}

fn execute(k: Kernel) -> (Kernel, Counters) {
    let k = k.ready();
    let counters = run(&k.guest, &k.launch).unwrap_or_else(|fault| panic!("{fault}"));
    (k, counters)
}

#[test]
fn vector_addition_is_exact_and_counts_its_sectors() {
    let mut noise = Noise::new(1);
    let n = 1000;
    let (a, b) = (noise.floats(n), noise.floats(n));
    let k = Kernel::load("01_vecadd", "vadd_f32")
        .shape([4, 1, 1], [256, 1, 1])
        .data(A, 4096, &bits(&a))
        .data(B, 4096, &bits(&b))
        .data(C, 4096, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u32(n as u32);
    let (mut k, counters) = execute(k);
    for (i, got) in k.guest.read_f32s(C, n).into_iter().enumerate() {
        assert_eq!(got, a[i] + b[i]);
    }
    assert_eq!(counters.global_load_sectors, 2 * 1000 / 8);
    assert_eq!(counters.global_store_sectors, 1000 / 8);
    assert_eq!((counters.launches, counters.blocks, counters.warps), (1, 4, 32));
}

#[test]
fn a_stream_costs_dram_its_size_once_while_it_fits_the_cache() {
    let zeros = vec![0; 1024];
    let k = Kernel::load("01_vecadd", "vadd_f32")
        .shape([4, 1, 1], [256, 1, 1])
        .data(A, 4096, &zeros)
        .data(B, 4096, &zeros)
        .data(C, 4096, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u32(1024)
        .ready();
    for (bytes, again) in [(64 << 10, 0), (2048, 2 * 1024 / 8)] {
        let l2 = Some(CacheConfig { bytes, ways: 4 });
        let executor = Executor::new(Config { schedule: Schedule::Deterministic, l2, ..Config::default() });
        let run = || executor.run(&k.guest, &k.launch, &AtomicBool::new(false)).expect("runs");
        let first = run();
        assert_eq!((first.dram_read_sectors, first.global_loads), (2 * 1024 / 8, 2 * 1024 / 32));
        assert_eq!(run().dram_read_sectors, again, "{bytes} bytes of cache");
    }
}

#[test]
fn eight_aligned_bytes_arrive_together() {
    let memory = |k: Kernel| k.data(A, 8192, &[]).u64(A).u32(200_000);
    let mut k = memory(Kernel::from_path("tests/data/pairs.sm_87.cubin", "pairs"))
        .shape([2, 1, 1], [32, 1, 1])
        .ready();
    let config = Config { workers: 2, ..Config::default() };
    run_with(config, &k.guest, &k.launch).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(k.guest.read_u32s(A + 4096, 1), [0], "pairs of different words");
}

#[test]
fn strong_accesses_of_128_bits_are_one_value() {
    let memory = |k: Kernel| k.data(A, 8192, &[]).u64(A).u32(100_000);
    let mut k = memory(Kernel::from_path("tests/data/pairs.sm_87.cubin", "quads"))
        .shape([2, 1, 1], [32, 1, 1])
        .ready();
    let config = Config { workers: 2, ..Config::default() };
    run_with(config, &k.guest, &k.launch).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(k.guest.read_u32s(A + 4096, 1), [0], "values of parts");
}

#[test]
fn a_grid_stride_loop_with_vectors_is_exact() {
    let mut noise = Noise::new(2);
    let n = 4 * 777;
    let (x, y) = (noise.floats(n), noise.floats(n));
    let k = Kernel::load("01_vecadd", "saxpy_v4_gridstride")
        .shape([2, 1, 1], [96, 1, 1])
        .data(A, 16384, &bits(&x))
        .data(B, 16384, &bits(&y))
        .u64(A)
        .u64(B)
        .f32(1.5)
        .u32(777);
    let (mut k, _) = execute(k);
    for (i, got) in k.guest.read_f32s(B, n).into_iter().enumerate() {
        assert_eq!(got, 1.5f32.mul_add(x[i], y[i]));
    }
}

/// Blocks of Q6_K: 128 bytes of low nibbles, 64 bytes of upper pairs, 16 scales, an fp16 factor.
pub fn q6k_blocks(noise: &mut Noise, blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..blocks {
        bytes.extend((0..192).map(|_| noise.bits() as u8));
        bytes.extend((0..16).map(|_| (noise.bits() % 63) as u8));
        bytes.extend(half::f16::from_f32(0.01 + 0.001 * noise.unit()).to_bits().to_le_bytes());
    }
    bytes
}

pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// The matvec of the corpus in fp32: `rows` blocks of 32 threads, each row of `blocks` Q6_K blocks of which
/// the first 128 weights count.
pub fn q6k_kernel(rows: usize, blocks: usize, noise: &mut Noise) -> (Kernel, Vec<u8>, Vec<f32>) {
    let weights = q6k_blocks(noise, rows * blocks);
    let x = noise.floats(256 * blocks);
    let k = Kernel::load("03_q6k_matvec", "q6k_fma32")
        .shape([rows as u32, 1, 1], [32, 1, 1])
        .data(A, weights.len() + 64, &words_of(&weights))
        .data(B, 4 * x.len() + 64, &bits(&x))
        .data(C, 4 * rows + 64, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u32(blocks as u32);
    (k, weights, x)
}

#[test]
fn the_q6k_matvec_agrees_with_f64() {
    let (rows, blocks) = (6, 5);
    let (k, weights, x) = q6k_kernel(rows, blocks, &mut Noise::new(3));
    let (mut k, _) = execute(k);
    let got = k.guest.read_f32s(C, rows);
    for row in 0..rows {
        let mut want = 0.0f64;
        let mut size = 0.0f64;
        for b in 0..blocks {
            let w = &weights[(row * blocks + b) * 210..][..210];
            let d = half::f16::from_bits(u16::from_le_bytes([w[208], w[209]])).to_f64();
            for lane in 0..32 {
                let (l0, l1, h) = (w[lane], w[lane + 32], w[128 + lane]);
                let q = [
                    (l0 & 15) | (h & 3) << 4,
                    (l1 & 15) | (h >> 2 & 3) << 4,
                    (l0 >> 4) | (h >> 4 & 3) << 4,
                    (l1 >> 4) | (h >> 6 & 3) << 4,
                ];
                for (i, q) in q.into_iter().enumerate() {
                    let scale = f64::from(w[192 + 2 * i] as i8);
                    let term = (f64::from(q) - 32.0) * scale * d * f64::from(x[256 * b + 32 * i + lane]);
                    want += term;
                    size += term.abs();
                }
            }
        }
        assert!((f64::from(got[row]) - want).abs() < 1e-6 * size, "row {row}: got {} want {want}", got[row]);
    }
}

#[test]
fn rms_normalisation_agrees_with_f64() {
    let mut noise = Noise::new(4);
    let (rows, n) = (3, 500);
    let (x, w) = (noise.floats(rows * n), noise.floats(n));
    let (hx, hw) = (halves(&x), halves(&w));
    let k = Kernel::load("04_rmsnorm", "rmsnorm_f16")
        .shape([rows as u32, 1, 1], [128, 1, 1])
        .data(A, 4096, &hx)
        .data(B, 4096, &hw)
        .data(C, 4096, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u32(n as u32)
        .f32(1e-5);
    let (mut k, _) = execute(k);
    let got = k.guest.read_u32s(C, rows * n / 2);
    for row in 0..rows {
        let mean = (0..n).map(|i| half_at(&hx, row * n + i).powi(2)).sum::<f64>() / n as f64;
        for i in 0..n {
            let want = half_at(&hx, row * n + i) * half_at(&hw, i) / (mean + 1e-5).sqrt();
            close(half_at(&got, row * n + i), want, 1e-3);
        }
    }
}

#[test]
fn rotary_embedding_agrees_with_f64() {
    let mut noise = Noise::new(5);
    let (heads, dim, position, base) = (3usize, 64usize, 37.0f64, 10000.0f64);
    let x = noise.floats(heads * dim);
    let k = Kernel::load("05_rope", "rope_f32")
        .shape([heads as u32, 1, 1], [32, 1, 1])
        .data(A, 4096, &bits(&x))
        .u64(A)
        .u32(position as u32)
        .u32(dim as u32)
        .f32(base as f32);
    let (mut k, _) = execute(k);
    let got = k.guest.read_f32s(A, heads * dim);
    for h in 0..heads {
        for i in 0..dim / 2 {
            let angle = position * base.powf(-(2.0 * i as f64) / dim as f64);
            let (p, q) = (f64::from(x[h * dim + i]), f64::from(x[h * dim + dim / 2 + i]));
            let want = [p * angle.cos() - q * angle.sin(), p * angle.sin() + q * angle.cos()];
            for (half, want) in want.into_iter().enumerate() {
                let got = f64::from(got[h * dim + half * dim / 2 + i]);
                assert!((got - want).abs() < 2e-5, "head {h} pair {i}: got {got} want {want}");
            }
        }
    }
}

#[test]
fn softmax_agrees_with_f64() {
    let mut noise = Noise::new(6);
    let (rows, n) = (8usize, 77usize);
    let x: Vec<f32> = noise.floats(rows * n).into_iter().map(|x| 10.0 * x).collect();
    let k = Kernel::load("06_softmax", "softmax_warp")
        .shape([2, 1, 1], [32, 4, 1])
        .data(A, 4096, &bits(&x))
        .data(B, 4096, &[])
        .u64(A)
        .u64(B)
        .u32(n as u32);
    let (mut k, _) = execute(k);
    let got = k.guest.read_f32s(B, rows * n);
    for row in 0..rows {
        let x = &x[row * n..][..n];
        let max = x.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = x.iter().map(|v| f64::from(v - max).exp()).sum();
        for i in 0..n {
            let want = f64::from(x[i] - max).exp() / sum;
            let got = f64::from(got[row * n + i]);
            assert!((got - want).abs() <= 1e-5 * want + 1e-12, "got {got} want {want}");
        }
    }
}

#[test]
fn attention_over_a_cache_agrees_with_f64() {
    let mut noise = Noise::new(7);
    let (heads, keys, dim) = (2usize, 19usize, 128usize);
    let stride = heads * dim;
    let (q, key, value) = (
        halves(&noise.floats(heads * dim)),
        halves(&noise.floats(keys * stride)),
        halves(&noise.floats(keys * stride)),
    );
    let k = Kernel::load("07_flash_decode", "flash_decode_f16")
        .shape([heads as u32, 1, 1], [128, 1, 1])
        .data(A, 4096, &q)
        .data(B, 0x1_0000, &key)
        .data(C, 0x1_0000, &value)
        .data(C + 0x10_0000, 4096, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u64(C + 0x10_0000)
        .u32(keys as u32)
        .u32(2 * stride as u32)
        .f32(0.3);
    let (mut k, _) = execute(k);
    let got = k.guest.read_u32s(C + 0x10_0000, heads * dim / 2);
    for h in 0..heads {
        let at = |m: &[u32], t: usize, i: usize| half_at(m, t * stride + h * dim + i);
        let scores: Vec<f64> = (0..keys)
            .map(|t| 0.3 * (0..dim).map(|i| half_at(&q, h * dim + i) * at(&key, t, i)).sum::<f64>())
            .collect();
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for i in 0..dim {
            let want = (0..keys).map(|t| weights[t] * at(&value, t, i)).sum::<f64>() / sum;
            let got = half_at(&got, h * dim + i);
            assert!((got - want).abs() < 1e-3, "head {h} element {i}: got {got} want {want}");
        }
    }
}

#[test]
fn argmax_finds_the_first_largest_logit() {
    let mut noise = Noise::new(8);
    let n = 3000;
    let mut x = noise.floats(n);
    x[1234] = 7.5;
    x[2345] = 7.5;
    let k = Kernel::load("08_argmax", "argmax_f32")
        .shape([4, 1, 1], [128, 1, 1])
        .data(A, 16384, &bits(&x))
        .data(B, 64, &[])
        .u64(A)
        .u32(n as u32)
        .u64(B);
    let (mut k, _) = execute(k);
    let best = k.guest.read_u32s(B, 2);
    assert_eq!(!best[0], 1234);
}

#[test]
fn silu_gate_agrees_with_f64() {
    let mut noise = Noise::new(9);
    let n = 300;
    let gate: Vec<f32> = noise.floats(n).into_iter().map(|x| 8.0 * x).collect();
    let (g, u) = (halves(&gate), halves(&noise.floats(n)));
    let k = Kernel::load("02_elementwise_f16", "silu_gate_f16")
        .shape([2, 1, 1], [160, 1, 1])
        .data(A, 4096, &g)
        .data(B, 4096, &u)
        .data(C, 4096, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u32(n as u32);
    let (mut k, _) = execute(k);
    let got = k.guest.read_u32s(C, n / 2);
    for i in 0..n {
        let x = half_at(&g, i);
        close(half_at(&got, i), x / (1.0 + (-x).exp()) * half_at(&u, i), 1e-3);
    }
}

#[test]
fn a_grid_barrier_needs_and_gets_resident_blocks() {
    for schedule in
        [Schedule::Parallel, Schedule::Deterministic, Schedule::Shuffled(1), Schedule::Shuffled(2)]
    {
        let k = Kernel::load("11_grid_barrier", "grid_barrier")
            .shape([24, 1, 1], [64, 1, 1])
            .data(A, 64, &[])
            .data(B, 4096, &[])
            .u64(A)
            .u64(B)
            .u32(20)
            .ready();
        let executor = Executor::new(Config { workers: 3, schedule, ..Config::default() });
        executor.run(&k.guest, &k.launch, &AtomicBool::new(false)).unwrap_or_else(|fault| panic!("{fault}"));
        let mut guest = k.guest;
        assert_eq!(guest.read_u32s(A, 1), [24 * 20]);
        assert_eq!(guest.read_u32s(B, 24), [19; 24]);
    }
}

#[test]
fn a_spin_lock_between_lanes_of_a_warp_makes_progress() {
    for schedule in [Schedule::Deterministic, Schedule::Shuffled(3)] {
        let k = Kernel::load("11_grid_barrier", "spin_lock")
            .shape([3, 1, 1], [64, 1, 1])
            .data(A, 64, &[])
            .data(B, 64, &[])
            .u64(A)
            .u64(B)
            .ready();
        let executor = Executor::new(Config { schedule, ..Config::default() });
        executor.run(&k.guest, &k.launch, &AtomicBool::new(false)).unwrap_or_else(|fault| panic!("{fault}"));
        let mut guest = k.guest;
        assert_eq!(guest.read_u32s(B, 1), [192]);
    }
}

#[test]
fn recursion_calls_and_function_pointers_work() {
    let n = 5u32;
    let k = Kernel::load("12_local_stack", "recursion_and_calls")
        .shape([1, 1, 1], [40, 1, 1])
        .data(A, 4096, &[])
        .u64(A)
        .u32(n);
    let (mut k, _) = execute(k);
    let got = k.guest.read_u32s(A, 40);
    fn rec(a: u32, n: u32) -> u32 {
        if n == 0 { a } else { rec(a.wrapping_mul(n).wrapping_add(1), n - 1).wrapping_add(a) }
    }
    for thread in 0..40u32 {
        let r = rec(thread, n);
        let want =
            if thread & 1 == 0 { r.wrapping_mul(r).count_ones() } else { r.reverse_bits().leading_zeros() };
        assert_eq!(got[thread as usize], want, "thread {thread}");
    }
}

#[test]
fn local_arrays_hold_their_values() {
    let mut noise = Noise::new(10);
    let x = noise.words(64);
    let k = Kernel::load("12_local_stack", "local_array")
        .shape([1, 1, 1], [1, 1, 1])
        .data(A, 4096, &x)
        .data(B, 64, &[])
        .u64(A)
        .u64(B)
        .u32(13);
    let (mut k, _) = execute(k);
    let r = 13usize;
    let v = &x[12..16];
    let mut want = x[r].wrapping_add(v[0]) ^ v[1];
    want = want.wrapping_add(v[2]) ^ v[3];
    want = want.wrapping_add(x[r] >> 8 & 0xff).wrapping_add(x[r] as i16 as u32);
    want = want.wrapping_add(4).wrapping_add(1 << 13);
    assert_eq!(k.guest.read_u32s(B, 1), [want]);
}

#[test]
fn a_switch_jumps_through_its_table() {
    let mut noise = Noise::new(11);
    let x = noise.words(512);
    let n = 7u32;
    let k = Kernel::load("13_control_flow", "switch_brx")
        .shape([1, 1, 1], [32, 1, 1])
        .data(A, 8192, &x)
        .u64(A)
        .u32(n);
    let (mut k, _) = execute(k);
    let got = k.guest.read_u32s(A, 512);
    // Case 1 changes the word that neighbours read in other cases: compare only the cases that no such word
    // reaches.
    for i in 0..32 {
        let v = x[i];
        let fixed = |at: usize| x[at] & 7 != 1 || at >= 32;
        let want = match v & 7 {
            0 if fixed(i + 1) => x[i + 1].wrapping_mul(3),
            1 => v,
            2 if fixed(i + 2) => x[i + 2] << 3,
            3 => 9,
            4 if fixed(i + 3) => x[i + 3] / n,
            5 if fixed(i + 4) => (x[i + 4] as i32 % n as i32) as u32,
            6 => v.count_ones(),
            7 => x[256 + i],
            _ => continue,
        };
        assert_eq!(got[256 + i], want, "lane {i} case {}", v & 7);
    }
}

#[test]
fn warp_operations_in_diverged_halves_see_their_own_half() {
    let mut noise = Noise::new(12);
    let x: Vec<u32> = noise.words(32).into_iter().map(|v| v % 1000).collect();
    for schedule in [Schedule::Deterministic, Schedule::Shuffled(5), Schedule::Shuffled(6)] {
        let k = Kernel::load("14_warp_ops", "warp_ops_divergent").data(A, 4096, &x).u64(A).ready();
        let executor = Executor::new(Config { schedule, ..Config::default() });
        executor.run(&k.guest, &k.launch, &AtomicBool::new(false)).unwrap_or_else(|fault| panic!("{fault}"));
        let mut guest = k.guest;
        let got = guest.read_u32s(A, 32);
        let high: u32 = x[16..].iter().sum();
        let low: u32 = *x[..16].iter().max().unwrap();
        for i in 0..32 {
            let want = if i < 16 {
                x[i ^ 2].wrapping_add(0xffff).wrapping_add(low).wrapping_add(0xffff)
            } else {
                x[i ^ 1].wrapping_add(0xffff_0000).wrapping_add(high)
            };
            assert_eq!(got[i], want, "lane {i}");
        }
    }
}

#[test]
fn asynchronous_copies_complete_an_mbarrier() {
    let x = Noise::new(13).words(4 * 32);
    let k = Kernel::load("20_mbarrier_async", "mbar").data(A, 4096, &x).u64(A);
    let (mut k, _) = execute(k);
    let got = k.guest.read_u32s(A, 4 * 32);
    for i in 0..32 {
        // The first word of the thread's own copy plus the pending count, which depends on the order of the
        // arrivals.
        let pending = got[4 * i].wrapping_sub(x[4 * i]);
        assert!(pending <= 64, "thread {i}: {pending} pending");
        assert_eq!(got[4 * i + 1..4 * i + 4], x[4 * i + 1..4 * i + 4]);
    }
}
