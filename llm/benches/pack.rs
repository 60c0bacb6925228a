//! Packing of weights by one core: bytes of tiles per second of processor time, per type.
//!
//! Each type is packed several times; the best run counts. Processor time, since other programs on the machine
//! then have less influence. Parts follow each other through more memory than caches hold, as those of a file
//! do.

use std::hint::black_box;
use std::time::Duration;

use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::pack::pack;
use nix::time::{ClockId, clock_gettime};

/// Bytes of the file that are gone through.
const FILE: usize = 256 << 20;
/// Bytes of a part, about.
const PART: usize = 512 << 10;
/// Runs of a type, each through the whole file.
const RUNS: usize = 5;

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the clock of a thread").into()
}

/// Bytes per second of packing `file` as rows of `cols` values.
fn rate(format: Format, cols: u32, file: &[u8]) -> f64 {
    let row = format.ty().bytes_for(cols.into()).expect("whole blocks") as usize;
    let rows = (PART / row).next_multiple_of(format.rows_together() as usize);
    let bytes = format.packed_bytes(rows as u64, cols.into()) as f64;
    let mut packed = Vec::new();
    let mut run = || {
        let begin = processor_time();
        let mut parts = 0.0;
        for part in file.chunks_exact(rows * row) {
            packed.clear();
            pack(format, cols, part, &mut packed);
            black_box(&packed);
            parts += 1.0;
        }
        parts * bytes / (processor_time() - begin).as_secs_f64()
    };
    (0..RUNS).map(|_| run()).fold(0.0, f64::max)
}

fn main() {
    let mut state = 1u64;
    let word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    let file: Vec<u8> = std::iter::repeat_with(word).take(FILE / 8).flat_map(u64::to_le_bytes).collect();
    println!("{:8} {:>6} {:>6}  GB/s", "", "2048", "8192");
    for format in Format::ALL {
        let [short, long] = [2048, 8192].map(|cols| rate(format, cols, &file) / 1e9);
        println!("{:8} {short:6.1} {long:6.1}", format.suffix());
    }
}
