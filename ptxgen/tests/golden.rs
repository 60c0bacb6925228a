//! The PTX of a few kernels, whole. `PTXGEN_BLESS=1 cargo test -p ptxgen --test golden` rewrites the files.

use std::fs;
use std::path::Path;

use half::f16;
use ptxgen::{Atomic, Cache, Kernel, Module, Ptxas, Shuffle, Special, Target, TileA, TileB, Transpose};

fn check(name: &str, kernel: impl Fn() -> Kernel) {
    let mut module = Module::new(Target::Sm87);
    module.add(kernel());
    let text = module.text();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.ptx"));
    if std::env::var_os("PTXGEN_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap(), "{name}: see the head of this file");
    match Ptxas::find() {
        Ok(ptxas) => {
            ptxas.compile(&text, Target::Sm87).unwrap();
        }
        Err(error) => ga10b_oracles::missing("ptxas", error),
    }
}

#[test]
fn a_grid_stride_loop() {
    check("axpy", || {
        let k = Kernel::new("axpy");
        let (x, y) = (k.param_ptr::<f32>("x", 16), k.param_ptr::<f32>("y", 16));
        let (n, a) = (k.param::<u32>("n"), k.param::<f32>("a"));
        let threads = k.special(Special::NtidX);
        let first = k.mad(k.special(Special::CtaidX), threads, k.special(Special::TidX));
        k.for_(first, n, k.mul(threads, k.special(Special::NctaidX)), |i| {
            let to = k.at(y, i);
            k.store(to, k.mad(a, k.load(k.at(x, i)), k.load(to)));
        });
        k
    });
}

#[test]
fn unaligned_blocks_are_read_in_pieces() {
    check("blocks", || {
        let k = Kernel::new("blocks");
        let (blocks, out) = (k.param_ptr::<u32>("blocks", 2), k.param_ptr::<u32>("out", 16));
        let i = k.special(Special::TidX);
        let words = k.load_n::<3, _, _>(k.at_stride(blocks, i, 34).plus_bytes(2), Cache::ReadOnly);
        let sum = words.into_iter().reduce(|a, b| k.xor(a, b)).unwrap();
        let scale = k.load(k.at_stride(blocks.cast::<f16>(), i, 34));
        let scaled = k.mul(k.convert::<u32, f32>(sum), k.convert::<f16, f32>(scale));
        k.store(k.at(out, i), k.bits::<f32, u32>(scaled));
        k
    });
}

#[test]
fn shared_memory_shuffles_and_atomics() {
    check("sum", || {
        let k = Kernel::new("sum");
        k.max_threads(256);
        let (x, total) = (k.param_ptr::<f32>("x", 16), k.param_ptr::<f32>("total", 4));
        let partial = k.shared::<f32>(8);
        let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
        let vector = k.load_n::<4, _, _>(k.at(x, k.scale(tid, 4)), Cache::Stream);
        let sum = vector.into_iter().reduce(|a, b| k.add(a, b)).unwrap();
        let sum = k.warp_sum(sum);
        k.if_(k.eq(lane, 0), || k.store(k.at(partial, k.shr(tid, 5)), sum));
        k.sync_threads();
        k.exit_if(k.ge(tid, 32));
        let mine = k.load(k.at(partial, k.and(lane, 7)));
        let mine = [4, 2, 1].into_iter().fold(mine, |v, d| k.add(v, k.shuffle(v, Shuffle::Xor(d))));
        k.if_(k.eq(lane, 0), || {
            k.atomic(total, Atomic::Add, mine);
        });
        k
    });
}

#[test]
fn tiles_are_copied_loaded_and_multiplied() {
    check("tiles", || {
        let k = Kernel::new("tiles");
        k.max_threads(32);
        let (a, b, out) =
            (k.param_ptr::<f16>("a", 16), k.param_ptr::<f16>("b", 8), k.param_ptr::<f32>("out", 8));
        let (rows, columns) = (k.shared::<f16>(16 * 16), k.shared::<f16>(16 * 16));
        let lane = k.special(Special::LaneId);
        // 16 bytes are proven of the one, 8 of the other: one piece, and two.
        let line = k.scale(lane, 8);
        k.copy_async(k.at(rows, line), k.at(a, line), 8);
        k.copy_async(k.at(columns, line), k.at(b, line), 8);
        k.commit_copies();
        k.wait_copies(0);
        k.sync_threads();
        let (x, y) = (k.matrices(), k.matrices());
        let row = k.mad(k.and(lane, 15), 2u32, k.shr(lane, 4));
        k.load_matrices(x, k.at_stride(rows, row, 16), Transpose::No);
        k.load_matrices(y, k.at_stride(columns, row, 16), Transpose::Yes);
        let sum = k.accumulator();
        k.multiply(sum, TileA(x), TileB([y[0], y[1]]));
        k.store_n(k.at(out, k.scale(lane, 4)), &sum.0);
        k
    });
}

#[test]
#[should_panic(expected = "multiple of 8 bytes only")]
fn a_matrix_row_of_unproven_alignment_is_refused() {
    let k = Kernel::new("k");
    let rows = k.shared::<f16>(64);
    k.load_matrices(k.matrices(), rows.plus(4), Transpose::No);
}

#[test]
#[should_panic(expected = "multiples of 2 bytes only")]
fn an_asynchronous_copy_of_unproven_alignment_is_refused() {
    let k = Kernel::new("k");
    let (from, to) = (k.param_ptr::<f16>("from", 16), k.shared::<f16>(64));
    k.copy_async(to, k.at(from, k.special(Special::TidX)), 8);
}
