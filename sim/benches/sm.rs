//! Thread-instructions per second of the interpreter, on one worker and on all cores.
//!
//! Each kernel runs several times; the best run counts, since other programs on the machine only ever slow it
//! down. With one worker the time is what its thread spent on a processor, with all cores it is the time on
//! the wall.

#[path = "../tests/it/sm/asm.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod asm;
#[path = "../tests/it/sm/cubin.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod cubin;
#[path = "../tests/it/sm/guest.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod guest;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use asm::{ALWAYS, CONTROL};
use cubin::Kernel;
use ga10b_sim::sm::{Config, Executor, Launch};
use guest::{CODE, DATA, Guest};
use nix::time::{ClockId, clock_gettime};
use sass::Arch;

const RUNS: usize = 9;
const A: u64 = DATA;
const B: u64 = DATA + 0x400_0000;
const C: u64 = DATA + 0x600_0000;

/// `FFMA Rd, Ra, Rb, Rc`
fn ffma(d: u8, a: u8, b: u8, c: u8) -> u128 {
    0x223 | ALWAYS | CONTROL | registers(d, a, b, c)
}

/// `IADD3 Rd, Ra, Rb, Rc`
fn iadd3(d: u8, a: u8, b: u8, c: u8) -> u128 {
    0x210 | ALWAYS | CONTROL | registers(d, a, b, c) | 7 << 81 | 7 << 84 | 15 << 87 | 15 << 77
}

/// `LOP3.LUT Rd, Ra, Rb, Rc, table, !PT`
fn lop3(d: u8, a: u8, b: u8, c: u8, table: u8) -> u128 {
    0x212 | ALWAYS | CONTROL | registers(d, a, b, c) | u128::from(table) << 72 | 7 << 81 | 15 << 87
}

fn registers(d: u8, a: u8, b: u8, c: u8) -> u128 {
    u128::from(d) << 16 | u128::from(a) << 24 | u128::from(b) << 32 | u128::from(c) << 64
}

/// `HMMA.16816.F32 Rd, Ra, Rb, Rd`
fn hmma(d: u8, a: u8, b: u8) -> u128 {
    0x23c | ALWAYS | CONTROL | registers(d, a, b, d) | 1 << 75 | 1 << 76
}

/// `IMMA.16832.S8.S8 Rd, Ra, Rb, Rd`
fn imma(d: u8, a: u8, b: u8) -> u128 {
    0x237 | ALWAYS | CONTROL | registers(d, a, b, d) | 1 << 74 | 1 << 75 | 1 << 76 | 1 << 78 | 1 << 86
}

/// The same loop in warps of 16 threads.
fn half_warps((guest, launch): (Guest, Launch)) -> (Guest, Launch) {
    (guest, Launch { grid: [64, 1, 1], block: [16, 1, 1], ..launch })
}

/// A loop of `body`, repeated 16 times per round, and what counts it.
fn alu(body: &[u128]) -> (Guest, Launch) {
    let mut code: Vec<u128> = (0..16).map(|r| asm::mov(r, 0x3f80_0000 + u32::from(r))).collect();
    code.push(asm::mov(20, 0));
    code.push(asm::mov(21, 1));
    let head = code.len();
    for _ in 0..16 {
        code.extend(body);
    }
    code.push(iadd3(20, 20, 21, 255));
    code.push(asm::isetp_lt(20, 400));
    let back = (head as i64 - code.len() as i64 - 1) * 16;
    code.push(asm::if_p0(asm::branch(back)));
    code.push(asm::EXIT);
    let mut guest = Guest::default();
    guest.map(CODE, 0x2_0000);
    guest.map(guest::BANK0, 0x1000);
    guest.write_code(CODE, &code);
    let mut l = guest::launch(Arch::Sm87);
    (l.grid, l.block) = ([16, 1, 1], [128, 1, 1]);
    (guest, l)
}

/// Arbitrary bits that do not change between runs.
fn noise(words: usize, mask: u32, base: u32) -> Vec<u32> {
    let mut x = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u32
    };
    (0..words).map(|_| next() & mask | base).collect()
}

fn q6k(name: &str) -> (Guest, Launch) {
    let (rows, blocks) = (512u32, 16u32);
    let weights = (rows * blocks * 210) as usize;
    let k = Kernel::load("03_q6k_matvec", name)
        .shape([rows, 1, 1], [32, 1, 1])
        // Bytes of any value, but no fp16 factor that is infinite or not a number.
        .data(A, weights + 64, &noise(weights / 4, 0x3bff_3bff, 0))
        .data(B, 0x1_0000, &noise(0x4000, 0x007f_ffff, 0x3f00_0000))
        .data(C, 0x1_0000, &[])
        .u64(A)
        .u64(B)
        .u64(C)
        .u32(blocks)
        .ready();
    (k.guest, k.launch)
}

fn softmax() -> (Guest, Launch) {
    let (rows, n) = (256u32, 1024u32);
    let k = Kernel::load("06_softmax", "softmax_warp")
        .shape([rows / 4, 1, 1], [32, 4, 1])
        .data(A, (rows * n * 4) as usize, &noise((rows * n) as usize, 0x007f_ffff, 0x3f00_0000))
        .data(B, (rows * n * 4) as usize, &[])
        .u64(A)
        .u64(B)
        .u32(n)
        .ready();
    (k.guest, k.launch)
}

fn saxpy() -> (Guest, Launch) {
    let n = 1u32 << 18;
    let k = Kernel::load("01_vecadd", "saxpy_v4_gridstride")
        .shape([32, 1, 1], [128, 1, 1])
        .data(A, (n * 16) as usize, &noise(4 * n as usize, 0x007f_ffff, 0x3f00_0000))
        .data(B, (n * 16) as usize, &[])
        .u64(A)
        .u64(B)
        .f32(0.5)
        .u32(n)
        .ready();
    (k.guest, k.launch)
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of Linux").into()
}

/// The best rate in thread-instructions per second.
fn rate(guest: &Guest, launch: &Launch, workers: usize, host_simd: bool) -> f64 {
    let executor = Executor::new(Config { workers, host_simd, ..Config::default() });
    let stop = AtomicBool::new(false);
    let mut best = 0.0f64;
    for _ in 0..RUNS {
        let (start, cpu) = (Instant::now(), thread_time());
        let counters = executor.run(guest, launch, &stop).unwrap_or_else(|fault| panic!("{fault}"));
        let time = if workers == 1 { thread_time() - cpu } else { start.elapsed() };
        best = best.max(counters.thread_instructions as f64 / time.as_secs_f64());
    }
    best
}

fn main() {
    let fused = [ffma(4, 5, 6, 4), ffma(7, 5, 6, 7), ffma(8, 5, 6, 8), ffma(9, 5, 6, 9)];
    let iadd = [iadd3(4, 5, 6, 4), iadd3(7, 5, 6, 7), iadd3(8, 5, 6, 8), iadd3(9, 5, 6, 9)];
    let lop = [lop3(4, 5, 6, 4, 0x96), lop3(7, 5, 6, 7, 0x96)];
    let mix = [
        ffma(4, 5, 6, 4),
        iadd3(7, 8, 9, 7),
        lop3(10, 11, 12, 10, 0x96),
        ffma(13, 5, 6, 13),
        lop3(14, 7, 10, 255, 0xc0),
        iadd3(15, 14, 9, 15),
    ];
    let cases: [(&str, (Guest, Launch)); 12] = [
        ("alu mix (FFMA, IADD3, LOP3)", alu(&mix)),
        ("FFMA", alu(&fused)),
        ("IADD3", alu(&iadd)),
        ("LOP3, exclusive or of three", alu(&lop)),
        ("alu mix, half of the lanes", half_warps(alu(&mix))),
        ("HMMA.16816.F32", alu(&[hmma(4, 8, 12)])),
        ("IMMA.16832.S8.S8", alu(&[imma(4, 8, 12)])),
        ("q6k_fma32 (corpus 03)", q6k("q6k_fma32")),
        ("q6k_dp4a (corpus 03)", q6k("q6k_dp4a")),
        ("softmax_warp (corpus 06)", softmax()),
        ("saxpy_v4_gridstride (corpus 01)", saxpy()),
        ("alu mix, baseline code", alu(&mix)),
    ];
    println!("best of {RUNS} runs, 1e9 thread-instructions per second");
    println!("{:<34} {:>9} {:>9}", "kernel", "1 worker", "all cores");
    for (i, (name, (guest, launch))) in cases.iter().enumerate() {
        let simd = i != cases.len() - 1;
        let (one, all) = (rate(guest, launch, 1, simd), rate(guest, launch, 0, simd));
        println!("{name:<34} {:>9.3} {:>9.3}", one / 1e9, all / 1e9);
    }
}
