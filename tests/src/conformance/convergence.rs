//! Convergence barriers that two parts of a warp use (`tests/kernels/barriers.ptx`).

use hcq::LaunchConfig;

use crate::conformance::case::{Arg, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::tolerance::Tolerance;

/// Reads of a word before a wait is given up, between two phases, and before the second part of the warp
/// comes.
const PATIENCE: u32 = 200_000;
const PAUSE: u32 = 5_000;
const DELAY: u32 = 20_000;

/// The phase in which a lane was let go, as measured on Hopper: those at the barrier do not wait for lanes
/// that yield.
fn phase(lane: u32) -> u32 {
    match (lane < 16, lane % 2 == 1) {
        (true, true) => 2,
        (true, false) => 0,
        (false, true) => 3,
        (false, false) => 1,
    }
}

/// One kernel.
pub fn cases() -> Vec<Case> {
    vec![Case {
        family: "convergence",
        program: "barrier_reuse".to_owned(),
        seed: 0,
        cubins: cubins!("../../kernels/barriers"),
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
        expected: Some(vec![(0..32).map(|lane| Some(phase(lane))).collect(), vec![None; 4]]),
        place: Box::new(|buffer, word| {
            let what = if buffer == 0 {
                format!("phase in which lane {word} went on")
            } else {
                "control".to_owned()
            };
            Some(Place { what, tolerance: Tolerance::Exact })
        }),
        ..Case::blank()
    }]
}
