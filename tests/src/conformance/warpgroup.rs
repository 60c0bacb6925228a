//! Matrix products of four warps from swizzled shared memory: on Hopper by the warpgroup (`wgmma`), on the
//! ga10b the same by each warp's `mma.sync`. Both leave the sums in the same registers of the same threads.
//!
//! A chain of four products adds to random sums, or begins anew in every other block. Results are held to a
//! device of the same architecture only, as those of `matrix`.

use half::f16;
use hcq::LaunchConfig;
use ptxgen::{
    Accumulator, Cache, F16x2, Kernel, Module, Named, Params, Pointer, Pred, Ptr, Reg, Shared, SharedRows,
    Special, Target, TileA, TileB, kernel_params,
};

use crate::conformance::case::{BufferNumber, Case, Place};
use crate::conformance::matrix::{Element, accumulator, draw};
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// Columns of the products.
const COLUMNS: [u32; 4] = [8, 40, 128, 256];
const THREADS: u32 = 128;
const ROWS: u32 = 64;
const BLOCKS: usize = 24;
/// Bytes of a piece, within which the swizzle moves nothing.
const PIECE: u32 = 16;

/// The module that is committed for `target`, [`Target::Sm87`] or [`Target::Sm90a`].
pub(super) fn module(target: Target) -> Named {
    let mut module = Module::new(target);
    for columns in COLUMNS {
        module.add(kernel(target, columns));
    }
    Named { name: "warpgroup".to_owned(), module }
}

fn name(columns: u32) -> String {
    format!("warpgroup_{columns}")
}

/// Bytes of a block's factors, of its sums, and of all it reads.
const fn bytes(columns: u32) -> [u32; 3] {
    let (factors, sums) = ((ROWS + columns) * SharedRows::ROW_BYTES, ROWS * columns * 4);
    [factors, sums, factors + sums]
}

kernel_params! {
    /// A block's data are the rows of both factors, then the sums of each thread.
    struct Product { data: Ptr<f16, 16>, out: Ptr<f32, 16> }
}

fn kernel(target: Target, columns: u32) -> Kernel {
    let k = Kernel::new(&name(columns));
    k.max_threads(THREADS);
    let p = Product::declare(&k);
    let (tid, block) = (k.special(Special::TidX), k.special(Special::CtaidX));
    let [factors, sums, all] = bytes(columns);
    let data = k.at_stride(p.data, block, all);
    let tile = k.dynamic_shared_aligned::<f16>(SharedRows::ALIGNMENT);
    // Whole rows, the piece of a thread moved to its place.
    let pieces = SharedRows::ROW_BYTES / PIECE;
    let (row, piece) = (k.shr(tid, pieces.trailing_zeros()), k.and(tid, pieces - 1));
    let to = k.at_stride(tile, k.mad(row, pieces, k.xor(piece, k.and(row, 7u32))), PIECE);
    let from = k.at_stride(data, tid, PIECE);
    for offset in (0..i64::from(factors)).step_by((THREADS * PIECE) as usize) {
        let piece = k.load_n::<4, _, _>(from.plus_bytes(offset).cast::<u32>(), Cache::Default);
        let rows = i64::from(THREADS / pieces);
        let last = offset + rows * i64::from(SharedRows::ROW_BYTES) > i64::from(factors);
        let store = || k.store_n(to.plus_bytes(offset).cast::<u32>(), &piece);
        match last {
            true => k.if_(k.lt(row, (factors - offset as u32) / SharedRows::ROW_BYTES), store),
            false => store(),
        }
    }
    let own = k.at_stride(data.plus_bytes(factors.into()).cast::<f32>(), tid, sums / THREADS);
    let begin: Vec<Reg<f32>> = (0..i64::from(columns / 2)).map(|i| k.load(own.plus(i))).collect();
    let adds = k.eq(k.and(block, 1u32), 0u32);
    let out = k.at_stride(k.at_stride(p.out, block, sums), tid, sums / THREADS);
    let results = if target >= Target::Sm90 {
        by_warpgroup(&k, tile, &begin, adds)
    } else {
        by_warps(&k, tile, &begin, adds, tid)
    };
    for (i, two) in (0i64..).zip(results.chunks_exact(2)) {
        k.store_n(out.plus(2 * i), two);
    }
    k
}

fn by_warpgroup(k: &Kernel, tile: Pointer<Shared, f16>, begin: &[Reg<f32>], adds: Pred) -> Vec<Reg<f32>> {
    k.fence_proxy_async();
    k.sync_threads();
    let sums = k.warpgroup_sums(2 * begin.len() as u32);
    for (sum, value) in sums.registers().iter().zip(begin) {
        k.set(*sum, *value);
    }
    let b = k.shared_rows(tile.plus_bytes(i64::from(ROWS * SharedRows::ROW_BYTES)));
    let a = k.shared_rows(tile);
    let always = k.either(adds, k.unless(adds));
    k.fence_products();
    for value in (0..SharedRows::VALUES).step_by(SharedRows::STEP as usize) {
        let adds = if value == 0 { adds } else { always };
        k.multiply_shared(&sums, k.rows_from(a, value), k.rows_from(b, value), adds);
    }
    k.commit_products();
    k.wait_products(0);
    sums.registers().to_vec()
}

fn by_warps(
    k: &Kernel,
    tile: Pointer<Shared, f16>,
    begin: &[Reg<f32>],
    adds: Pred,
    tid: Reg<u32>,
) -> Vec<Reg<f32>> {
    k.sync_threads();
    let (row, quarter) = (k.bfe(tid, 2, 3), k.and(tid, 3u32));
    let first = k.mad(k.shr(tid, 5u32), 16u32, row);
    let lane = |row: Reg<u32>| k.at_stride(k.at_stride(tile, row, SharedRows::ROW_BYTES), quarter, 4);
    let (a, b) = (lane(first), lane(row).plus_bytes(i64::from(ROWS * SharedRows::ROW_BYTES)));
    // The two values at piece `piece` of a row that lies a multiple of eight from the thread's.
    let pair = |of: Pointer<Shared, f16>, rows: u32, piece: u32| -> Reg<F16x2> {
        let at = k.at_stride(of, k.xor(row, piece), PIECE);
        k.load(at.plus_bytes(i64::from(rows * SharedRows::ROW_BYTES)).cast::<F16x2>())
    };
    let kept = k.select(adds, u32::MAX, 0u32);
    let value = |begin: Reg<f32>| k.bits::<u32, f32>(k.and(k.bits::<f32, u32>(begin), kept));
    let sums: Vec<Accumulator> =
        begin.chunks_exact(4).map(|four| Accumulator(std::array::from_fn(|i| value(four[i])))).collect();
    for step in 0..SharedRows::VALUES / SharedRows::STEP {
        let [left, right] = [2 * step, 2 * step + 1];
        let x = TileA([pair(a, 0, left), pair(a, 8, left), pair(a, 0, right), pair(a, 8, right)]);
        for (block, sum) in (0..).zip(&sums) {
            k.multiply(*sum, x, TileB([pair(b, 8 * block, left), pair(b, 8 * block, right)]));
        }
    }
    sums.iter().flat_map(|sum| sum.0).collect()
}

/// All kernels.
pub fn cases() -> Vec<Case> {
    (0..).zip(COLUMNS).map(|(seed, columns)| case(seed, columns)).collect()
}

fn case(seed: u64, columns: u32) -> Case {
    let mut noise = Noise::new(seed);
    let [factors, sums, _] = bytes(columns);
    let mut input = Vec::new();
    for block in 0..BLOCKS {
        let spread = [0, 1, 3, 6, 12, 14][block % 6];
        let special = block % 8 == 7;
        input.extend((0..factors / 4).map(|_| draw(&mut noise, Element::Half, spread, special)));
        input.extend((0..sums / 4).map(|_| accumulator(&mut noise, Element::Half, false, spread, special)));
    }
    let each = (columns / 2) as usize;
    Case {
        family: "matrix, warpgroup",
        program: name(columns),
        seed,
        cubins: [
            include_bytes!("../../kernels/conformance/warpgroup.sm_87.cubin").as_slice(),
            include_bytes!("../../kernels/conformance/warpgroup.sm_90a.cubin").as_slice(),
        ],
        kernel: name(columns),
        config: LaunchConfig::new(BLOCKS as u32, THREADS).with_dynamic_shared(factors),
        launches: vec![Product { data: BufferNumber(0), out: BufferNumber(1) }.args()],
        buffers: vec![input, vec![0xdead_beef; BLOCKS * sums as usize / 4]],
        by_architecture: true,
        place: Box::new(move |_, word| {
            let (block, thread) = (word / each / THREADS as usize, word / each % THREADS as usize);
            let what = format!("block {block}, thread {thread}, sum {}", word % each);
            Some(Place { what, tolerance: Tolerance::Exact })
        }),
        ..Case::blank()
    }
}
