//! Matrix times vector with weights and activations in single precision: slow, and the measure of the step kernel.
//!
//! A warp takes two rows at a time and shares the activations between them.
//! Activation vectors are *striped*: of every 16 neighbouring values the first four of all sixteens come first, then the
//! second four, and so on. A lane that unpacks 16 neighbouring weights then reads its activations in four 16-byte loads, each
//! contiguous across the warp.

use ptxgen::{Cache, Global, Kernel, Multiple, Pointer, Reg, Special};

use super::format::Format;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Rows that one warp computes together.
const ROWS: u32 = 2;

/// What happens to the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// `out[r] = W[r]·x`.
    Store,
    /// `out[r] += W[r]·x`.
    Add,
    /// `out[r] = silu(W[r]·x) · (W[rows + r]·x)`, striped: the matrix has gate rows, then as many up rows.
    Gate,
}

impl Epilogue {
    /// All of them.
    pub const ALL: [Epilogue; 3] = [Epilogue::Store, Epilogue::Add, Epilogue::Gate];

    /// First part of kernel names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Epilogue::Store => "matvec",
            Epilogue::Add => "matvec_add",
            Epilogue::Gate => "gate_up",
        }
    }
}

/// Blocks that `rows` results take.
pub const fn blocks(epilogue: Epilogue, rows: u32) -> u32 {
    let per_warp = match epilogue {
        Epilogue::Store | Epilogue::Add => ROWS,
        Epilogue::Gate => 1,
    };
    rows.div_ceil(per_warp * THREADS / 32)
}

/// Where value `index` of a striped vector of `len` values lies.
pub const fn striped(index: usize, len: usize) -> usize {
    (index / 4 % 4) * (len / 4) + index / 16 * 4 + index % 4
}

/// The same in a kernel; `quarter` is a quarter of the vector's length.
pub(super) fn striped_index(k: &Kernel, index: Reg<u32>, quarter: Reg<u32>) -> Reg<u32> {
    let stripe = k.bfe(index, 2, 2);
    let within = k.bfi(index, k.shl(k.shr(index, 4), 2), 0, 2);
    k.mad(stripe, quarter, within)
}

/// The address of the striped vector's four values from `4 · chunk` on.
pub(super) fn striped_chunk(
    k: &Kernel,
    x: Pointer<Global, f32>,
    chunk: Reg<u32>,
    quarter: Multiple,
) -> Pointer<Global, f32> {
    let stripe = k.mul(k.and(chunk, 3), quarter.reg());
    let index = k.mad(k.shr(chunk, 2), 4u32, stripe);
    // Both terms are multiples of four: the vector's length is one of 16.
    k.at(x, k.scale(k.shr(index, 2), 4))
}

/// `silu(g) · u`.
pub(super) fn silu_times(k: &Kernel, g: Reg<f32>, u: Reg<f32>) -> Reg<f32> {
    let e = k.exp2(k.mul(g, -std::f32::consts::LOG2_E));
    k.mul(k.mul(g, k.rcp(k.add(e, 1f32))), u)
}

/// The kernel `PREFIX_SUFFIX(planes.., x, out, rows, cols)`.
pub(super) fn kernel(format: Format, epilogue: Epilogue) -> Kernel {
    let k = Kernel::new(&format!("{}_{}", epilogue.prefix(), format.suffix()));
    k.max_threads(THREADS);
    let planes = format.params(&k);
    let x = k.param_ptr::<f32>("x", 16);
    let out = k.param_ptr::<f32>("out", 4);
    let rows = k.param::<u32>("rows");
    let cols = k.param_multiple("cols", format.block());

    let lane = k.special(Special::LaneId);
    let warp = k.mad(k.special(Special::CtaidX), THREADS / 32, k.shr(k.special(Special::TidX), 5));
    let first = match epilogue {
        Epilogue::Store | Epilogue::Add => k.mul(warp, ROWS),
        Epilogue::Gate => warp,
    };
    k.exit_if(k.ge(first, rows));
    let second = match epilogue {
        Epilogue::Store | Epilogue::Add => k.min(k.add(first, 1), k.sub(rows, 1)),
        Epilogue::Gate => k.add(first, rows),
    };
    let row = [first, second].map(|r| format.row(&k, &planes, r, cols));
    let quarter = k.halve(cols, 2);
    let sums = [k.var(0f32), k.var(0f32)];

    let units = k.halve(cols, format.unit().trailing_zeros()).reg();
    k.for_(lane, units, 32u32, |unit: Reg<u32>| {
        let packed = row.each_ref().map(|row| format.fetch(&k, row, unit));
        let values = activations(&k, format, x, unit, quarter);
        for (packed, sum) in packed.iter().zip(sums) {
            for (w, x) in format.weights(&k, packed).iter().flatten().zip(values.iter().flatten()) {
                k.mad_to(sum, *w, *x, sum);
            }
        }
    });

    let [a, b] = sums.map(|s| k.warp_sum(s));
    match epilogue {
        Epilogue::Store | Epilogue::Add => {
            let mine = k.add(first, lane);
            k.if_(k.both(k.lt(lane, ROWS), k.lt(mine, rows)), || {
                let to = k.at(out, mine);
                let value = k.select(k.eq(lane, 0), a, b);
                k.store(to, if epilogue == Epilogue::Add { k.add(k.load(to), value) } else { value });
            });
        }
        Epilogue::Gate => k.if_(k.eq(lane, 0), || {
            let to = striped_index(&k, first, k.shr(rows, 2));
            k.store(k.at(out, to), silu_times(&k, a, b));
        }),
    }
    k
}

/// The activations that belong to a unit, by run.
fn activations(
    k: &Kernel,
    format: Format,
    x: Pointer<Global, f32>,
    unit: Reg<u32>,
    quarter: Multiple,
) -> Vec<Vec<Reg<f32>>> {
    let runs = format.runs(k, unit);
    let per_run = format.unit() / runs.len() as u32;
    runs.into_iter()
        .map(|start| {
            let mut at = striped_chunk(k, x, k.shr(start.reg(), 2), quarter);
            let mut values = Vec::new();
            for chunk in 0..per_run / 4 {
                if chunk > 0 {
                    at = k.at(at, quarter);
                }
                values.extend(k.load_with(at, 4, Cache::Default));
            }
            values
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn striping_moves_every_value_to_a_place_of_its_own() {
        for len in [16, 64, 256, 4096] {
            let mut places: Vec<usize> = (0..len).map(|i| striped(i, len)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..len));
        }
    }
}
