//! Error of the special-function unit against exact values, over all mantissas or a dense grid of
//! arguments.
//!
//! The kernels are those of [`mufu`](crate::conformance::mufu); the reference is the host's f64 arithmetic.

use std::thread;

use anyhow::Result;
use hcq::{Args, Device, Queue};
use serde::Serialize;

use crate::conformance::cubins::cubins;
use crate::harness::DEADLINE;

/// Arguments in one launch.
const CHUNK: usize = 1 << 20;

/// The type of an argument's and a result's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// An f32.
    Single,
    /// The upper half of an f64 whose lower half is 0.
    HighOfDouble,
}

impl Word {
    fn value(self, bits: u32) -> f64 {
        match self {
            Word::Single => f64::from(f32::from_bits(bits)),
            Word::HighOfDouble => f64::from_bits(u64::from(bits) << 32),
        }
    }

    /// One unit in the last place of numbers as large as `x`.
    fn unit(self, x: f64) -> f64 {
        let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
        2f64.powi(match self {
            Word::Single => exponent.max(-126) - 23,
            Word::HighOfDouble => exponent.max(-1022) - 20,
        })
    }
}

/// One function over some arguments.
struct Sweep {
    kernel: &'static str,
    arguments: &'static str,
    word: Word,
    /// First argument, distance and number of arguments, as bits.
    from: u32,
    step: u32,
    count: u32,
    exact: fn(f64) -> f64,
}

const fn sweep(
    kernel: &'static str,
    arguments: &'static str,
    (from, step, count): (u32, u32, u32),
    exact: fn(f64) -> f64,
) -> Sweep {
    Sweep { kernel, arguments, word: Word::Single, from, step, count, exact }
}

/// All mantissas of so many binades from `from` on.
const fn binades(from: f32, binades: u32) -> (u32, u32, u32) {
    (from.to_bits(), 1, binades << 23)
}

/// Every 509th of the positive normal numbers.
const NORMAL: (u32, u32, u32) = (0x0080_0000, 509, 0x7f00_0000 / 509);
/// The same from `from` up to `to`.
const fn every(step: u32, from: f32, to: f32) -> (u32, u32, u32) {
    (from.to_bits(), step, (to.to_bits() - from.to_bits()) / step)
}

fn rcp(x: f64) -> f64 {
    1.0 / x
}
fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

const SWEEPS: &[Sweep] = &[
    sweep("rcp", "[1, 2), all", binades(1.0, 1), rcp),
    sweep("rcp", "normal, every 509th", NORMAL, rcp),
    sweep("rsqrt", "[1, 4), all", binades(1.0, 2), rsqrt),
    sweep("rsqrt", "normal, every 509th", NORMAL, rsqrt),
    sweep("sqrt_approx", "[1, 4), all", binades(1.0, 2), f64::sqrt),
    sweep("sqrt_approx", "normal, every 509th", NORMAL, f64::sqrt),
    sweep("ex2", "[1, 2), all", binades(1.0, 1), f64::exp2),
    sweep("ex2", "[2^-20, 128), every 7th", every(7, 9.536_743e-7, 128.0), f64::exp2),
    sweep("ex2", "(-126, -2^-20], every 7th", every(7, -9.536_743e-7, -126.0), f64::exp2),
    sweep("lg2", "[0.5, 1), all", binades(0.5, 1), f64::log2),
    sweep("lg2", "[1, 2), all", binades(1.0, 1), f64::log2),
    sweep("lg2", "normal, every 509th", NORMAL, f64::log2),
    sweep("sin", "[2^-20, pi], every 7th", every(7, 9.536_743e-7, std::f32::consts::PI), f64::sin),
    sweep("cos", "[2^-20, pi], every 7th", every(7, 9.536_743e-7, std::f32::consts::PI), f64::cos),
    sweep("sin", "[pi, 100], every 7th", every(7, std::f32::consts::PI, 100.0), f64::sin),
    sweep("cos", "[pi, 100], every 7th", every(7, std::f32::consts::PI, 100.0), f64::cos),
    sweep("tanh", "[2^-20, 16), every 7th", every(7, 9.536_743e-7, 16.0), f64::tanh),
    Sweep {
        word: Word::HighOfDouble,
        ..sweep("rcp_f64", "[1, 2), all upper words", (0x3ff0_0000, 1, 1 << 20), rcp)
    },
    Sweep {
        word: Word::HighOfDouble,
        ..sweep("rcp_f64", "normal, every 509th", (0x0010_0000, 509, 0x7f80_0000 / 509), rcp)
    },
    Sweep {
        word: Word::HighOfDouble,
        ..sweep("rsqrt_f64", "[1, 4), all upper words", (0x3ff0_0000, 1, 2 << 20), rsqrt)
    },
];

/// Error of results against the exact values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Errors {
    /// The function.
    pub function: &'static str,
    /// The arguments.
    pub arguments: &'static str,
    /// Number of results.
    pub count: u64,
    /// Results that are the number nearest to the exact value.
    pub nearest: u64,
    /// Largest distance from the exact value, in units in its last place, below and above.
    pub ulps: [f64; 2],
    /// The bits of the arguments at which these occur.
    pub at: [u32; 2],
    /// Largest distance as such.
    pub absolute: f64,
    /// Largest distance by the exact value.
    pub relative: f64,
}

impl std::fmt::Display for Errors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { function, arguments, count, ulps, at, absolute, relative, .. } = self;
        let nearest = 100.0 * self.nearest as f64 / *count as f64;
        write!(
            f,
            "{function:<12} {arguments:<26} {count:>9} {nearest:>7.2} % {:>+9.3} ({:08x}) {:>+9.3} ({:08x}) {absolute:>10.2e} {relative:>10.2e}",
            ulps[0], at[0], ulps[1], at[1]
        )
    }
}

/// The heading over [`Errors`].
pub const HEADING: &str = "function     arguments                  arguments  nearest     lowest ulp (at)      highest ulp (at)   absolute   relative";

impl Errors {
    fn add(&mut self, sweep: &Sweep, argument: u32, result: u32) {
        let exact = (sweep.exact)(sweep.word.value(argument));
        let got = sweep.word.value(result);
        self.count += 1;
        let difference = got - exact;
        let ulps = difference / sweep.word.unit(exact);
        // Beyond what a format holds there is no distance: results are zero or infinite there, as they should
        // be.
        if !ulps.is_finite() || exact.abs() < sweep.word.smallest() {
            return;
        }
        self.nearest += u64::from(ulps.abs() <= 0.5);
        if ulps < self.ulps[0] {
            (self.ulps[0], self.at[0]) = (ulps, argument);
        }
        if ulps > self.ulps[1] {
            (self.ulps[1], self.at[1]) = (ulps, argument);
        }
        self.absolute = self.absolute.max(difference.abs());
        self.relative = self.relative.max(if exact == 0.0 { 0.0 } else { (difference / exact).abs() });
    }

    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.nearest += other.nearest;
        if other.ulps[0] < self.ulps[0] {
            (self.ulps[0], self.at[0]) = (other.ulps[0], other.at[0]);
        }
        if other.ulps[1] > self.ulps[1] {
            (self.ulps[1], self.at[1]) = (other.ulps[1], other.at[1]);
        }
        self.absolute = self.absolute.max(other.absolute);
        self.relative = self.relative.max(other.relative);
    }
}

impl Word {
    /// The smallest normal number.
    fn smallest(self) -> f64 {
        match self {
            Word::Single => f64::from(f32::MIN_POSITIVE),
            Word::HighOfDouble => f64::MIN_POSITIVE,
        }
    }
}

/// Measures all functions on a device; of each sweep only every `thin`th argument.
///
/// # Errors
/// Those of the device.
pub fn measure(device: &Device, thin: u32) -> Result<Vec<Errors>> {
    let cubins: [&[u8]; 2] = cubins!("../../kernels/conformance/mufu");
    let program =
        device.load(cubins[usize::from(crate::kernels::arch(device)?.encoding() == sass::Encoding::Sm9x)])?;
    let mut queue = device.queue()?;
    SWEEPS
        .iter()
        .map(|sweep| run(device, &mut queue, &program.kernel(sweep.kernel)?, sweep, thin.max(1)))
        .collect()
}

fn run(device: &Device, queue: &mut Queue, kernel: &hcq::Kernel, sweep: &Sweep, thin: u32) -> Result<Errors> {
    let mut total = Errors { function: sweep.kernel, arguments: sweep.arguments, ..Default::default() };
    let (input, output) = (device.alloc(4 * CHUNK as u64)?, device.alloc(4 * CHUNK as u64)?);
    let all: Vec<u32> = (0..sweep.count / thin).map(|i| sweep.from + i * thin * sweep.step).collect();
    for chunk in all.chunks(CHUNK) {
        let mut arguments = chunk.to_vec();
        arguments.resize(CHUNK, sweep.from);
        input.write_slice(0, &arguments)?;
        let config = hcq::LaunchConfig::new(
            CHUNK as u32 / crate::conformance::mufu::BLOCK,
            crate::conformance::mufu::BLOCK,
        );
        // SAFETY: the kernels read and write as many words as there are threads.
        unsafe { queue.launch(kernel, config, &Args::new().buffer(&input).buffer(&output))? };
        queue.submit()?.wait(DEADLINE)?;
        let results = output.read_vec::<u32>(0, chunk.len())?;
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let part = chunk.len().div_ceil(workers).max(1);
        let parts: Vec<Errors> = thread::scope(|scope| {
            let handles: Vec<_> = chunk
                .chunks(part)
                .zip(results.chunks(part))
                .map(|(arguments, results)| {
                    scope.spawn(move || {
                        let mut errors = Errors::default();
                        arguments.iter().zip(results).for_each(|(&a, &r)| errors.add(sweep, a, r));
                        errors
                    })
                })
                .collect();
            handles.into_iter().filter_map(|h| h.join().ok()).collect()
        });
        parts.iter().for_each(|p| total.join(p));
    }
    Ok(total)
}
