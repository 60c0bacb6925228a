//! The approximations of the special-function unit, each over many arguments.
//!
//! The software ga10b gives the nearest number, a GPU one close to it. The bounds are those
//! measured on Hopper over all mantissas of several binades, plus the half unit that the model itself rounds
//! by.

use hcq::LaunchConfig;
use ptxgen::{Kernel, Module, Named, Params, Ptr, Reg, Special, Target, kernel_params};

use crate::conformance::case::{BufferNumber, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

pub(super) const BLOCK: u32 = 256;
const BLOCKS: u32 = 64;

/// One function.
struct Function {
    name: &'static str,
    emit: fn(&Kernel, Reg<f32>) -> Reg<f32>,
    /// An argument.
    draw: fn(&mut Noise) -> f32,
    tolerance: Tolerance,
}

/// Between −1 and 1.
fn unit(noise: &mut Noise) -> f32 {
    (noise.bits() >> 8) as f32 / 8_388_608.0 - 1.0
}

/// Of any sign and exponent.
fn any(noise: &mut Noise) -> f32 {
    f32::from_bits(noise.bits())
}

/// Not negative.
fn positive(noise: &mut Noise) -> f32 {
    f32::from_bits(noise.bits() & 0x7fff_ffff)
}

/// From 1/2 to 2, where a logarithm is small.
fn near_one(noise: &mut Noise) -> f32 {
    f32::from_bits(0x3f00_0000 + noise.bits() % 0x0100_0000)
}

const fn ulps(ulps: u32) -> Tolerance {
    Tolerance::Single { ulps, absolute: 0.0 }
}

/// An f64 whose upper word is `a`.
fn double(k: &Kernel, a: Reg<f32>) -> Reg<f64> {
    k.bits(k.shl(k.convert::<u32, u64>(k.bits(a)), 32))
}

/// The upper word of an f64.
fn upper(k: &Kernel, a: Reg<f64>) -> Reg<f32> {
    k.bits(k.convert::<u64, u32>(k.shr(k.bits::<f64, u64>(a), 32)))
}

const FUNCTIONS: [Function; 12] = [
    Function { name: "rcp", emit: |k, a| k.rcp(a), draw: any, tolerance: ulps(1) },
    Function { name: "rsqrt", emit: |k, a| k.rsqrt(a), draw: positive, tolerance: ulps(2) },
    Function { name: "ex2", emit: |k, a| k.exp2(a), draw: |n| 160.0 * unit(n), tolerance: ulps(2) },
    Function { name: "ex2_small", emit: |k, a| k.exp2(a), draw: unit, tolerance: ulps(2) },
    Function {
        name: "lg2",
        emit: |k, a| k.log2(a),
        draw: positive,
        tolerance: Tolerance::Single { ulps: 2, absolute: 2e-7 },
    },
    Function {
        name: "lg2_near_one",
        emit: |k, a| k.log2(a),
        draw: near_one,
        tolerance: Tolerance::Single { ulps: 2, absolute: 2e-7 },
    },
    Function {
        name: "sin",
        emit: |k, a| k.sin(a),
        draw: |n| 25.0 * unit(n),
        tolerance: Tolerance::Single { ulps: 0, absolute: 4e-7 },
    },
    Function {
        name: "cos",
        emit: |k, a| k.cos(a),
        draw: |n| 25.0 * unit(n),
        tolerance: Tolerance::Single { ulps: 0, absolute: 4e-7 },
    },
    Function { name: "sqrt_approx", emit: |k, a| k.sqrt_approx(a), draw: positive, tolerance: ulps(2) },
    Function { name: "tanh", emit: |k, a| k.tanh(a), draw: |n| 8.0 * unit(n), tolerance: ulps(170) },
    Function {
        name: "rcp_f64",
        emit: |k, a| upper(k, k.rcp_approx_f64(double(k, a))),
        draw: any,
        tolerance: Tolerance::HighWord { ulps: 2 },
    },
    Function {
        name: "rsqrt_f64",
        emit: |k, a| upper(k, k.rsqrt_approx_f64(double(k, a))),
        draw: positive,
        tolerance: Tolerance::HighWord { ulps: 2 },
    },
];

kernel_params! {
    /// All kernels.
    struct Buffers { input: Ptr<f32, 16>, output: Ptr<f32, 16> }
}

/// The module that is committed for `target`: one kernel per function.
pub(super) fn module(target: Target) -> Named {
    let mut module = Module::new(target);
    for function in &FUNCTIONS {
        let k = Kernel::new(function.name);
        let p = Buffers::declare(&k);
        let i = k.mad(k.special(Special::CtaidX), BLOCK, k.special(Special::TidX));
        k.store(k.at(p.output, i), (function.emit)(&k, k.load(k.at(p.input, i))));
        module.add(k);
    }
    Named { name: "mufu".to_owned(), module }
}

/// All functions.
pub fn cases() -> Vec<Case> {
    let count = BLOCK * BLOCKS;
    (0..)
        .zip(&FUNCTIONS)
        .map(|(seed, function)| {
            let mut noise = Noise::new(seed);
            let inputs: Vec<u32> = (0..count).map(|_| (function.draw)(&mut noise).to_bits()).collect();
            let arguments = inputs.clone();
            Case {
                family: "MUFU",
                program: function.name.to_owned(),
                seed,
                cubins: cubins!("../../kernels/conformance/mufu"),
                kernel: function.name.to_owned(),
                config: LaunchConfig::new(BLOCKS, BLOCK),
                launches: vec![Buffers { input: BufferNumber(0), output: BufferNumber(1) }.args()],
                buffers: vec![inputs, vec![0xdead_beef; count as usize]],
                place: Box::new(move |buffer, word| {
                    let what = format!("{}({:e})", function.name, f32::from_bits(arguments[word]));
                    let tolerance = if buffer == 1 { function.tolerance } else { Tolerance::Exact };
                    Some(Place { what, tolerance })
                }),
                ..Case::blank()
            }
        })
        .collect()
}
