//! What convergence barriers do when two parts of a warp use the same one (`tests/kernels/barriers.ptx`).

use hcq::LaunchConfig;

use super::{Arg, Case, Place, Tolerance, cubins};

/// Reads of a word before a wait is given up, between two phases, and before the second part of the warp comes.
const PATIENCE: u32 = 200_000;
const PAUSE: u32 = 5_000;
const DELAY: u32 = 20_000;

/// The kernel with the `YIELD`s that the compiler sets in waiting loops, and without: every lane's word is the phase in which it
/// was let go.
pub fn cases() -> Vec<Case> {
    let programs = [
        ("with yields", cubins!("../../kernels/barriers")),
        ("quiet", cubins!("../../kernels/barriers_quiet")),
    ];
    programs.map(|(program, cubins)| case(program, cubins)).into()
}

fn case(program: &str, cubins: [&'static [u8]; 2]) -> Case {
    // Measured on Hopper for the first; for the other the devices decide.
    let phase = |lane: u32| match (lane < 16, lane % 2 == 1) {
        (true, true) => 2,
        (true, false) => 0,
        (false, true) => 3,
        (false, false) => 1,
    };
    let measured = (program == "with yields")
        .then(|| vec![(0..32).map(|lane| Some(phase(lane))).collect(), vec![None; 4]]);
    Case {
        family: "convergence",
        program: program.to_owned(),
        seed: 0,
        cubins,
        kernel: "barrier_reuse".to_owned(),
        config: LaunchConfig::new(1, 64),
        launches: vec![vec![
            Arg::Buffer(0, 0),
            Arg::Buffer(1, 0),
            Arg::U32(PATIENCE),
            Arg::U32(PAUSE),
            Arg::U32(DELAY),
        ]],
        buffers: vec![vec![0xdead_beef; 32], vec![0; 4]],
        expected: measured,
        by_architecture: false,
        place: Box::new(|buffer, word| {
            let what = if buffer == 0 {
                format!("phase in which lane {word} went on")
            } else {
                "control".to_owned()
            };
            Some(Place { what, tolerance: Tolerance::Exact })
        }),
    }
}
