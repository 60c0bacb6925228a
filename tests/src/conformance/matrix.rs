//! Every matrix instruction that the compiler makes of `mma.sync`, on random tiles
//! (`tests/kernels/matrix.ptx`).
//!
//! The order in which a tensor core sums is its architecture's own: floating-point results of sm_87 and sm_90
//! differ in their last bits, so they are held to a device of the same architecture only.

use hcq::LaunchConfig;

use crate::conformance::case::{Arg, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// Tiles of each kernel.
const TILES: usize = 384;
/// Words that a lane loads and stores.
const IN: usize = 16;
const OUT: usize = 4;

/// The elements of A and B.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    Half,
    Brain,
    Tf32,
    Byte,
}

/// A word of elements: near 1, over many binades, or with special values among them.
pub(super) fn draw(noise: &mut Noise, element: Element, spread: u32, special: bool) -> u32 {
    if special && noise.below(24) == 0 {
        return match element {
            Element::Half => noise.pick(&[0, 0x7c00_3c00, 0x7e00_0001, 0x8000_03ff, 0xfc00_fbff]),
            Element::Brain => noise.pick(&[0, 0x7f80_3f80, 0x7fc0_0001, 0x8000_007f, 0xff80_ff7f]),
            Element::Tf32 => {
                noise.pick(&[0, 0x7f80_0000, 0x7fc0_0001, 0x8000_2000, 0x007f_e000, 0xff80_0000])
            }
            Element::Byte => noise.bits(),
        };
    }
    let exponent = |noise: &mut Noise, middle: u32| middle + noise.bits() % (2 * spread + 1) - spread;
    let mut half = |mantissa: u32, middle: u32| {
        let bits = noise.bits();
        (bits & 0x8000) | exponent(noise, middle) << mantissa | bits & ((1 << mantissa) - 1)
    };
    match element {
        Element::Half => half(10, 15) | half(10, 15) << 16,
        Element::Brain => half(7, 127) | half(7, 127) << 16,
        Element::Tf32 => noise.bits() & 0x807f_ffff | exponent(noise, 127) << 23,
        Element::Byte => noise.bits(),
    }
}

/// A word of an accumulator.
pub(super) fn accumulator(
    noise: &mut Noise,
    element: Element,
    half: bool,
    spread: u32,
    special: bool,
) -> u32 {
    match (element, half) {
        (Element::Byte, _) => noise.integer(),
        (_, true) => draw(noise, Element::Half, spread.min(10), special),
        _ if noise.below(4) == 0 => 0,
        _ => draw(noise, Element::Tf32, 2 * spread, special),
    }
}

/// All kernels.
pub fn cases() -> Vec<Case> {
    use Element::{Brain, Byte, Half, Tf32};
    let kernels = [
        ("mma_m16n8k16_f32_f16", Half, false),
        ("mma_m16n8k8_f32_f16", Half, false),
        ("mma_m16n8k16_f32_bf16", Brain, false),
        ("mma_m16n8k8_f32_bf16", Brain, false),
        ("mma_m16n8k8_f32_tf32", Tf32, false),
        ("mma_m16n8k4_f32_tf32", Tf32, false),
        ("mma_m16n8k16_f16_f16", Half, true),
        ("mma_m16n8k8_f16_f16", Half, true),
        ("mma_m16n8k32_s32_s8", Byte, false),
        ("mma_m16n8k16_s32_s8", Byte, false),
        ("mma_m16n8k32_s32_u8", Byte, false),
    ];
    (0..).zip(kernels).map(|(seed, (kernel, element, half))| case(seed, kernel, element, half)).collect()
}

fn case(seed: u64, kernel: &'static str, element: Element, half: bool) -> Case {
    let mut noise = Noise::new(seed);
    let mut input = Vec::with_capacity(TILES * 32 * IN);
    for tile in 0..TILES {
        let spread = [0, 1, 3, 6, 12, 14][tile % 6];
        let special = tile % 8 == 7;
        for _ in 0..32 {
            input.extend((0..8).map(|_| draw(&mut noise, element, spread, special)));
            input.extend((0..8).map(|_| accumulator(&mut noise, element, half, spread, special)));
        }
    }
    let integers = element == Element::Byte;
    Case {
        family: if integers { "matrix, integers" } else { "matrix, floats" },
        program: kernel.to_owned(),
        seed,
        cubins: cubins!("../../kernels/matrix"),
        kernel: kernel.to_owned(),
        config: LaunchConfig::new(TILES as u32, 32),
        launches: vec![vec![Arg::Buffer(0, 0), Arg::Buffer(1, 0)]],
        buffers: vec![input, vec![0xdead_beef; TILES * 32 * OUT]],
        by_architecture: !integers,
        place: Box::new(|_, word| {
            let (lane, register) = (word / OUT % 32, word % OUT);
            let what = format!("tile {}, lane {lane}, register {register}", word / OUT / 32);
            Some(Place { what, tolerance: Tolerance::Exact })
        }),
        ..Case::blank()
    }
}
