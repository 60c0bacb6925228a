//! The corpus' small kernels of a language model, and its atomics and warp operations, each with a launch
//! that suits it.

use half::f16;
use hcq::LaunchConfig;

use crate::conformance::case::{Arg, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

macro_rules! module {
    ($name:literal) => {
        cubins!(concat!("../../../sass/tests/data/cubin/", $name))
    };
}

/// A case whose outputs all have the same tolerance.
fn case(
    cubins: [&'static [u8]; 2],
    kernel: &str,
    config: LaunchConfig,
    args: Vec<Arg>,
    buffers: Vec<Vec<u32>>,
    tolerance: Tolerance,
) -> Case {
    let family = if tolerance == Tolerance::Exact { "corpus: kernels" } else { "corpus: MUFU" };
    Case {
        family,
        program: kernel.to_owned(),
        seed: 0,
        cubins,
        kernel: kernel.to_owned(),
        config,
        launches: vec![args],
        buffers,
        place: Box::new(move |_, _| Some(Place { what: "output".to_owned(), tolerance })),
        ..Case::blank()
    }
}

/// Numbers between −1 and 1 times `scale`.
fn floats(noise: &mut Noise, count: usize, scale: f32) -> Vec<u32> {
    (0..count).map(|_| (scale * ((noise.bits() >> 8) as f32 / 8_388_608.0 - 1.0)).to_bits()).collect()
}

/// The same as pairs of f16.
fn halves(noise: &mut Noise, count: usize, scale: f32) -> Vec<u32> {
    let half = |w: u32| u32::from(f16::from_f32(f32::from_bits(w)).to_bits());
    floats(noise, count, scale).as_chunks::<2>().0.iter().map(|p| half(p[0]) | half(p[1]) << 16).collect()
}

fn integers(noise: &mut Noise, count: usize) -> Vec<u32> {
    (0..count).map(|_| noise.integer()).collect()
}

fn any_floats(noise: &mut Noise, count: usize) -> Vec<u32> {
    (0..count).map(|_| noise.float()).collect()
}

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let noise = &mut Noise::new(77);
    let mut cases = exact(noise);
    cases.extend(atomics(noise));
    cases.extend(approximate(noise));
    cases
}

/// Kernels whose results have one right value.
fn exact(noise: &mut Noise) -> Vec<Case> {
    use Arg::{F32, U32};
    let exact = Tolerance::Exact;
    vec![
        case(
            module!("01_vecadd"),
            "vadd_f32",
            LaunchConfig::new(4, 256),
            vec![b(0), b(1), b(2), U32(1000)],
            vec![any_floats(noise, 1024), any_floats(noise, 1024), out(1024)],
            exact,
        ),
        case(
            module!("01_vecadd"),
            "saxpy_v4_gridstride",
            LaunchConfig::new(2, 96),
            vec![b(0), b(1), F32(1.5), U32(777)],
            vec![any_floats(noise, 4096), any_floats(noise, 4096)],
            exact,
        ),
        case(
            module!("02_elementwise_f16"),
            "h2_add_mul_fma",
            LaunchConfig::new(2, 128),
            vec![b(0), b(1), b(2)],
            vec![integers(noise, 1024), halves(noise, 2048, 4.0), out(1024)],
            exact,
        ),
        case(
            module!("02_elementwise_f16"),
            "cvt_f32_f16_bf16",
            LaunchConfig::new(1, 256),
            vec![b(0), b(1), b(2)],
            vec![any_floats(noise, 1024), out(512), out(512)],
            exact,
        ),
        case(
            module!("08_argmax"),
            "argmax_f32",
            LaunchConfig::new(4, 128),
            vec![b(0), U32(3000), b(1)],
            vec![floats(noise, 3000, 9.0), out(2)],
            exact,
        ),
        case(
            module!("13_control_flow"),
            "uniform_loop",
            LaunchConfig::new(1, 32),
            vec![b(0), U32(200), b(0)],
            vec![any_floats(noise, 16384)],
            exact,
        ),
        case(
            module!("14_warp_ops"),
            "warp_ops_divergent",
            LaunchConfig::new(1, 32),
            vec![b(0)],
            vec![integers(noise, 32)],
            exact,
        ),
        case(
            module!("03_q6k_matvec"),
            "q6k_dp4a",
            LaunchConfig::new(6, 32),
            vec![b(0), b(1), b(2), U32(5)],
            vec![halves(noise, 6 * 5 * 210, 2.0), floats(noise, 5 * 72 + 72, 2.0), out(8)],
            exact,
        ),
    ]
}

fn atomics(noise: &mut Noise) -> Vec<Case> {
    use Arg::{Buffer, U32};
    let mut cases = Vec::new();
    for kernel in ["atom_global", "red_global", "atom_shared", "atom_generic"] {
        for value in [1, 0x3f80_0001, 0x8000_0000, noise.integer(), noise.float()] {
            cases.push(case(
                module!("10_atomics"),
                kernel,
                LaunchConfig::new(1, 1),
                vec![Buffer(0, 64), U32(value)],
                vec![integers(noise, 128)],
                Tolerance::Exact,
            ));
        }
    }
    cases
}

/// Kernels that use approximations, or round on the way.
fn approximate(noise: &mut Noise) -> Vec<Case> {
    use Arg::{F32, U32};
    let (half2, bfloat2) = (Tolerance::Halves { ulps: 2, absolute: 0.0 }, Tolerance::Bfloats { ulps: 2 });
    vec![
        case(
            module!("02_elementwise_f16"),
            "silu_gate_f16",
            LaunchConfig::new(4, 128),
            vec![b(0), b(1), b(2), U32(512)],
            vec![halves(noise, 512, 8.0), halves(noise, 512, 2.0), out(256)],
            half2,
        ),
        case(
            module!("02_elementwise_f16"),
            "gelu_tanh_bf16",
            LaunchConfig::new(2, 128),
            vec![b(0), b(1)],
            // Any f32 is a bf16 and something small.
            vec![floats(noise, 256, 4.0), out(256)],
            bfloat2,
        ),
        case(
            module!("04_rmsnorm"),
            "rmsnorm_f16",
            LaunchConfig::new(3, 128),
            vec![b(0), b(1), b(2), U32(500), F32(1e-5)],
            vec![halves(noise, 1500, 3.0), halves(noise, 500, 1.0), out(750)],
            half2,
        ),
        case(
            module!("05_rope"),
            "rope_f32",
            LaunchConfig::new(3, 32),
            vec![b(0), U32(37), U32(64), F32(10_000.0)],
            vec![floats(noise, 192, 1.0)],
            Tolerance::Single { ulps: 2, absolute: 2e-5 },
        ),
        case(
            module!("06_softmax"),
            "softmax_warp",
            LaunchConfig::new(2, (32, 4, 1)),
            vec![b(0), b(1), U32(77)],
            vec![floats(noise, 8 * 77, 10.0), out(8 * 77)],
            Tolerance::Single { ulps: 64, absolute: 0.0 },
        ),
        case(
            module!("07_flash_decode"),
            "flash_decode_f16",
            LaunchConfig::new(2, 128),
            vec![b(0), b(1), b(2), b(3), U32(19), U32(512), F32(0.3)],
            vec![
                halves(noise, 256, 1.0),
                halves(noise, 19 * 256, 1.0),
                halves(noise, 19 * 256, 1.0),
                out(128),
            ],
            Tolerance::Halves { ulps: 4, absolute: 0.0 },
        ),
    ]
}

/// The address of buffer `n`.
fn b(n: usize) -> Arg {
    Arg::Buffer(n, 0)
}

fn out(words: usize) -> Vec<u32> {
    vec![0; words]
}
