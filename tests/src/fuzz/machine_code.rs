//! The interpreter on machine code that no compiler made.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ga10b_sim::Checks;
use ga10b_sim::sm::{Config, ConstBank, Executor, Launch, Schedule, Windows};
use rand::Rng;
use rand::rngs::StdRng;
use sass::Arch;

use crate::fuzz::corpus::{self, Code};
use crate::fuzz::guest::Guest;
use crate::fuzz::mutate::{awkward, pick};
use crate::fuzz::target::{Case, Target};

/// Machine code.
pub(crate) const CODE: Target = Target {
    name: "code",
    about: "kernels with words exchanged and bits flipped: executed, with and without checks, to an end or a fault",
    bound: Duration::from_secs(30),
    start,
};

const PROGRAM: u64 = 0x10_0000;
const BANK0: u64 = 0x20_0000;
const BANK3: u64 = 0x21_0000;
const DATA: u64 = 0x4_0000_0000;
const BANK_BYTES: usize = 0x1000;
const DATA_BYTES: usize = 0x8000;
/// Most words of a program.
const WORDS: usize = 2048;
/// Warp instructions without progress after which a launch is hung.
const STALL: u64 = 1 << 14;
const WINDOWS: Windows = Windows { shared_base: 0xfe00_0000, local_base: 0xff00_0000 };

fn start() -> Case {
    let code = corpus::code();
    let mut guest = Guest::default();
    guest.map(PROGRAM, WORDS * 16, false);
    guest.map(BANK0, BANK_BYTES, false);
    guest.map(BANK3, BANK_BYTES, false);
    guest.map(DATA, DATA_BYTES, true);
    Box::new(move |rng: &mut StdRng| {
        let kernel = pick(rng, &code);
        let words = mutated(rng, kernel, &code);
        guest.fill(PROGRAM, words.iter().flat_map(|word| [*word as u64, (*word >> 64) as u64]));
        let launch = launch(rng, kernel);
        guest.fill(BANK0, bank0(rng, &launch));
        guest.fill(BANK3, [0x3f80_0000_4000_0000, DATA, DATA + 64]);
        guest.fill(DATA, (0..64).map(|i| i * 0x1_0000_0001));
        let schedule = match rng.random_range(0..3) {
            0 => Schedule::Deterministic,
            1 => Schedule::Shuffled(rng.random()),
            _ => Schedule::Parallel,
        };
        let checks = if rng.random_ratio(1, 3) { Checks::all() } else { Checks::empty() };
        let config = Config {
            workers: 1,
            schedule,
            checks,
            stall_budget: STALL,
            exact_mma: rng.random(),
            host_simd: rng.random(),
            ..Config::default()
        };
        // A fault is an answer too.
        let executor = Executor::new(config);
        if let Err(fault) = executor.run(&guest, &launch, &AtomicBool::new(false)) {
            assert!(!fault.text.is_empty());
        }
        let lines: Vec<String> = executor.findings().iter().map(ToString::to_string).collect();
        assert!(!checks.is_empty() || lines.is_empty(), "found without being asked: {lines:?}");
    })
}

/// The kernel's code, damaged.
fn mutated(rng: &mut StdRng, kernel: &Code, all: &[Code]) -> Vec<u128> {
    let mut words = kernel.words.clone();
    words.truncate(WORDS);
    for _ in 0..rng.random_range(1..12) {
        let at = rng.random_range(0..words.len());
        match rng.random_range(0..8) {
            // Operands and modifiers, and not the opcode.
            0..3 => words[at] ^= 1 << rng.random_range(12..105),
            3 => words[at] ^= 1 << rng.random_range(0..128),
            4 => {
                let register = u128::from(rng.random::<u8>());
                let place = *pick(rng, &[16, 24, 32, 64]);
                words[at] = words[at] & !(0xff << place) | register << place;
            }
            5 => words[at] = words[rng.random_range(0..words.len())],
            6 => {
                let other = pick(rng, all);
                words[at] = *pick(rng, &other.words);
            }
            _ => words[at] = words[at] & !(0xffff_ffff << 32) | u128::from(awkward(rng) as u32) << 32,
        }
    }
    words
}

fn launch(rng: &mut StdRng, kernel: &Code) -> Launch {
    let mut banks = [None; 8];
    banks[0] = Some(ConstBank { va: BANK0, len: BANK_BYTES as u32 });
    banks[3] = Some(ConstBank { va: BANK3, len: *pick(rng, &[0, 8, 24, BANK_BYTES as u32]) });
    if rng.random_ratio(1, 16) {
        // A bank that is not mapped to its end.
        banks[2] = Some(ConstBank { va: BANK3 + 0xf00, len: 0x1_0000 });
    }
    Launch {
        arch: kernel.arch,
        program: PROGRAM,
        grid: [rng.random_range(1..4), rng.random_range(1..3), 1],
        block: *pick(rng, &[[32, 1, 1], [64, 1, 1], [33, 1, 1], [16, 4, 2], [256, 1, 1], [1, 1, 1]]),
        registers: if rng.random_ratio(1, 8) { rng.random_range(0..300) } else { kernel.registers },
        shared_bytes: *pick(rng, &[0, 1024, 16 << 10, 48 << 10]),
        local_bytes: *pick(rng, &[0, 64, 1024, 8192]),
        barriers: *pick(rng, &[0, 1, 16, 17]),
        banks,
        windows: WINDOWS,
        grid_id: 1,
        sm_count: 4,
        max_warps_per_sm: 48,
        shared_bytes_per_sm: 164 << 10,
    }
}

/// Shapes and windows where drivers put them, then parameters: addresses of the data, and numbers.
fn bank0(rng: &mut StdRng, launch: &Launch) -> Vec<u64> {
    let parameters = if launch.arch == Arch::Sm90 { 0x210 } else { 0x160 } / 8;
    let mut bank = vec![0; BANK_BYTES / 8];
    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
    bank[0] = pair(launch.block[0], launch.block[1]);
    bank[1] = pair(launch.block[2], launch.grid[0]);
    bank[2] = pair(launch.grid[1], launch.grid[2]);
    bank[3] = WINDOWS.shared_base;
    bank[4] = WINDOWS.local_base;
    bank[5] = 0xff_fdc0;
    for word in &mut bank[parameters..] {
        *word = match rng.random_range(0..8) {
            0..6 => DATA + rng.random_range(0..16) * 256,
            6 => rng.random_range(0..256),
            _ => awkward(rng),
        };
    }
    bank
}
