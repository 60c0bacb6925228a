//! Whole kernels: products of f16 matrices, an addition, a copy to the host and a launch. `tools/cuda-peer.cu`
//! measures the same by CUDA and cuBLAS, in the same layout: both factors have their summed dimension
//! contiguous, and the results are f32.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args as ClapArgs;
use ga10b_llm::kernels::committed;
use ga10b_llm::kernels::prompt::gemm::{self, Gemm, Output};
use ga10b_llm::kernels::prompt::tile::{TokensProduct, choose_whole};
use half::f16;
use hcq::{Args, Buffer, Kernel, LaunchConfig};
use ptxgen::Params;

use ga10b_tests::bench::table::Figure;
use ga10b_tests::bench::{Bench, DEADLINE, MIB, us};

/// Launches, each of which follows the one before, per sample.
const BATCH: u32 = 20;
/// Threads of a block of `add_f32`, and values of each thread.
const ADD: (u32, u32) = (256, 4);
/// Rows of the largest product.
const LARGEST: u32 = 1 << 15;
/// Entries of a product that are compared with the CPU's.
const COMPARED: u64 = 64;

#[derive(ClapArgs)]
pub struct Options {
    /// Sizes of the square matrices, multiples of 64 up to 32768, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1024,2048,4096", value_parser = size)]
    sizes: Vec<u32>,
    /// Values of the addition, a multiple of 4.
    #[arg(long, default_value_t = 10_000_000, value_parser = multiple_of::<{ ADD.1 }>)]
    values: u32,
    /// Samples of each figure.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// The limit of the tensor cores in TFLOP/s (f16, dense), to print the share of it.
    #[arg(long, value_parser = rate)]
    tflops: Option<f64>,
    /// The limit of the memory in GB/s, to print the share of it.
    #[arg(long, value_parser = rate)]
    gbs: Option<f64>,
}

/// A number of rows that a product takes. Larger ones have factors of more than 2 GiB.
fn size(text: &str) -> Result<u32, String> {
    match multiple_of::<{ gemm::DEPTH }>(text)? {
        size if size <= LARGEST => Ok(size),
        _ => Err(format!("more than {LARGEST}")),
    }
}

/// A limit that shares can be given of.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if rate.is_normal() && rate > 0.0 { Ok(rate) } else { Err("no positive number".to_owned()) }
}

/// A positive number that `OF` divides.
fn multiple_of<const OF: u32>(text: &str) -> Result<u32, String> {
    let number: u32 = text.parse().map_err(|e| format!("{e}"))?;
    match number > 0 && number.is_multiple_of(OF) {
        true => Ok(number),
        false => Err(format!("no positive multiple of {OF}")),
    }
}

/// Value `i` of a factor: multiples of 1/64 below 1, exact in f16.
fn value(i: u64, seed: u64) -> f32 {
    ((i.wrapping_mul(37).wrapping_add(i >> 7).wrapping_add(seed) % 101) as f32 - 50.0) / 64.0
}

/// A benchmark of whole kernels.
pub struct Kernels(pub Bench);

impl Kernels {
    /// Microseconds of one launch of `kernel`, of which [`BATCH`] follow each other.
    ///
    /// # Safety
    /// As for [`Queue::launch`](hcq::Queue::launch).
    unsafe fn batches(
        &self,
        kernel: &Kernel,
        config: LaunchConfig,
        args: &Args,
        samples: u32,
    ) -> Result<(Vec<f64>, Option<u64>)> {
        let batch = if self.0.is_software() { 1 } else { BATCH };
        let mut queue = self.0.device.queue()?;
        let counted = || hcq::sim::of(&self.0.device).map(|sim| sim.counters().sm.warp_instructions);
        let mut run = || -> Result<f64> {
            let began = Instant::now();
            for _ in 0..batch {
                // SAFETY: the caller's.
                unsafe { queue.launch(kernel, config, args)? };
                queue.barrier();
            }
            queue.submit()?.wait(DEADLINE)?;
            Ok(us(began) / f64::from(batch))
        };
        let before = counted();
        run()?;
        let instructions = counted().zip(before).map(|(after, before)| after - before);
        Ok(((0..samples).map(|_| run()).collect::<Result<_>>()?, instructions))
    }

    /// `count` values in f16.
    fn halves(&self, count: u64, seed: u64) -> Result<Buffer> {
        let halves: Vec<u16> = (0..count).map(|i| f16::from_f32(value(i, seed)).to_bits()).collect();
        let buffer = self.0.device.alloc(2 * count)?;
        buffer.write_slice(0, &halves)?;
        Ok(buffer)
    }

    /// The kernel that multiplies matrices of `n` by `n`, and its launch.
    fn product_launch(&self, n: u32) -> Result<(Kernel, LaunchConfig)> {
        let info = self.0.device.info();
        // Results of parts would have to be added up: each block sums whole rows.
        let product = TokensProduct { output: Output::Sums, tokens: n, rows: n, cols: n };
        let tile = choose_whole(&product, info.into());
        let cubin = committed::cubin(info.sm_number(), tile.module()).context("no products for this GPU")?;
        let kernel = self.0.device.load(cubin)?.kernel(&tile.kernel_name(Output::Sums))?;
        let config = LaunchConfig::new(tile.grid(Output::Sums, [n, n, 1], info.sm_count), tile.threads())
            .with_dynamic_shared(tile.shared_bytes());
        Ok((kernel, config))
    }

    /// The product of two matrices of `n` by `n`, whose entries are compared with the CPU's.
    fn product(&mut self, n: u32, options: &Options) -> Result<()> {
        let count = u64::from(n) * u64::from(n);
        let (x, w) = (self.halves(count, 1)?, self.halves(count, 2)?);
        let out = self.0.device.alloc(4 * count)?;
        let (tokens, rows, cols, pitch, share, share_pitch, factor) = (n, n, n, n, n, n, None);
        let (x, w, to) = (&x, &w, &out);
        let args: Args = Gemm { x, w, out: to, tokens, rows, cols, pitch, share, share_pitch, factor }.args();
        let (kernel, config) = self.product_launch(n)?;
        // SAFETY: the kernel reads `n` x `n` values of `x` and `w`, and writes as many of `out`.
        let (samples, instructions) = unsafe { self.batches(&kernel, config, &args, options.samples) }?;

        let n64 = u64::from(n);
        for i in 0..COMPARED {
            let (t, r) = (i * 7919 % n64, i * 104_729 % n64);
            let expected: f64 =
                (0..n64).map(|c| f64::from(value(t * n64 + c, 1)) * f64::from(value(r * n64 + c, 2))).sum();
            let found = f64::from(out.read_vec::<f32>(4 * (t * n64 + r), 1)?[0]);
            let bound = 1e-5 * n64 as f64;
            ensure!(
                (found - expected).abs() <= bound,
                "product of {n}: [{t}][{r}] is {found}, not {expected}"
            );
        }
        let flop = 2.0 * f64::from(n).powi(3);
        let rates = samples.iter().map(|us| flop / us / 1e6).collect();
        let figure = Figure::new(format!("f16 matrix product, {n}"), "TFLOP/s", rates);
        self.0.figures.push(figure.of_limit(options.tflops).counted(instructions));
        Ok(())
    }

    /// The sum of two vectors of f32.
    fn addition(&mut self, options: &Options) -> Result<()> {
        let (threads, each) = ADD;
        let (n, bytes) = (options.values, 4 * u64::from(options.values));
        let [a, b, c] = [0; 3].map(|_| self.0.device.alloc(bytes));
        let (a, b, c) = (a?, b?, c?);
        for (buffer, seed) in [(&a, 3), (&b, 4)] {
            let values: Vec<f32> = (0..u64::from(n)).map(|i| value(i, seed)).collect();
            buffer.write_slice(0, &values)?;
        }
        let kernel = self.0.program.kernel("add_f32")?;
        let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(n / each);
        let config = LaunchConfig::new((n / each).div_ceil(threads), threads);
        // SAFETY: the kernel reads `n` values of `a` and `b`, and writes as many of `c`.
        let (samples, instructions) = unsafe { self.batches(&kernel, config, &args, options.samples) }?;
        for (i, found) in (0..).zip(c.read_vec::<f32>(0, n as usize)?) {
            let expected = value(i, 3) + value(i, 4);
            ensure!(found == expected, "addition: value {i} is {found}, not {expected}");
        }
        let rates = samples.iter().map(|us| 3.0 * bytes as f64 / us / 1e3).collect();
        let figure = Figure::new(format!("addition of {n} f32, read + written"), "GB/s", rates);
        self.0.figures.push(figure.of_limit(options.gbs).counted(instructions));
        Ok(())
    }

    /// Everything that the program measures.
    pub fn whole_kernels(&mut self, options: &Options, launches: u32) -> Result<()> {
        for &n in &options.sizes {
            self.product(n, options)?;
        }
        self.addition(options)?;
        let len = 16 * MIB;
        let (from, to) = (self.0.device.alloc(len)?, self.0.device.alloc_host(len)?);
        let mut queue = self.0.device.copy_queue()?;
        self.0.rates("D2H 16 MiB pinned", options.samples.into(), len, || {
            queue.copy(&from, 0, &to, 0, len)?;
            Ok(queue.submit()?.wait(DEADLINE)?)
        })?;
        let samples = self.0.launch_and_wait(launches)?;
        self.0.record("launch + wait", "us", samples);
        Ok(())
    }
}
